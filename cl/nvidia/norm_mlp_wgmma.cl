/* y = z + W2 gelu(W1 LN(z) + b1) + b2 on the matrix instructions of warpgroups with half storage (graph/nodes.h;
 * goes with nvidia/ptx, nvidia/norm, nvidia/wgmma and nvidia/spread), z = x or, with SPREAD, a depthwise 3x3 convolution of x. W1
 * and b1 come with the norm's scale and shift in them.
 *
 * A group has DOWN times ACROSS warpgroups: each takes 64 rows, whose normalised values stay in registers as fragments,
 * and its share of each 64 hidden channels; GELU turns their sums into the fragments of the second product, so that
 * hidden channels never leave registers. The weights of 64 hidden channels, both layers', pass through a ring of STAGES
 * in local memory. With ACROSS 2 the warpgroups of the same rows add their sums up at the end.
 *
 * Channels lie in an order in which a work-item of four has eight of 32 in a row: z is read and y stored so.
 *
 * -D C: 64, 128 or 160. -D HID: a multiple of 64. -D DOWN. -D ACROSS: 1 or 2. -D STAGES: 3 or 4. */
#define THREADS (128 * DOWN * ACROSS)
#define BM      (64 * DOWN)
#define BH      64 /* hidden channels at a time */
#if ACROSS == 2
#define MINE 32 /* those of a warpgroup */
#else
#define MINE 64
#endif
#define CHUNKS   (HID / BH)
#define KC       (C / 32)
#define PIECES   (C / 8)                          /* uint4 of a row of z */
#define LDZ      (PIECES + (12 - PIECES % 8) % 8) /* from row to row: even and odd ones in different banks */
#define W1_BYTES ((C + 63) / 64 * (BH * 128))     /* tiles of 64 channels */
#define STAGE    (W1_BYTES + C * 128)
#define WHOLE    (C / 64 * (BH * 8)) /* pieces of whole tiles of W1; the last may be half full */
#define LATE     (STAGES == 3)       /* the second product ends before the next stage begins */
#define Z        (STAGES * STAGE / 16)
#define TABLE    (Z + BM * LDZ)
#define ALL      (TABLE + (HID + C) / 4)

/* Copies the weights of chunk `j`, if there is one. */
#define COPY_STAGE(j)                                                                                                  \
    do {                                                                                                               \
        if ((j) < CHUNKS) {                                                                                            \
            const uint to = shared + (j) % STAGES * STAGE;                                                             \
            __global const uint4 *from = weights + (size_t)(j) * (2 * C * BH / 8);                                     \
            UNROLL for (int i = id; i < C * BH / 8; i += THREADS) {                                                    \
                const int k = i - WHOLE, row = k / 4;                                                                  \
                COPY16(to + (i < WHOLE ? i : WHOLE + row * 8 + (k % 4 ^ (row & 7))) * 16, from + i, 16);               \
            }                                                                                                          \
            UNROLL for (int i = id; i < C * BH / 8; i += THREADS)                                                      \
                COPY16(to + W1_BYTES + i * 16, from + C * BH / 8 + i, 16);                                             \
        }                                                                                                              \
        COPY_COMMIT();                                                                                                 \
    } while (0)

/* Group i: rows [BM i, ..) of all items. weights [HID / 64]{W1: tiles of 64 channels [64 hidden][8 pieces of 16 bytes],
 * the last of 32 as [64][4]; W2: [C][8 pieces]}, pieces of a row exchanged as nvidia/wgmma says but for the tile of 32;
 * table {b1 [HID], b2 [C]}. Other arguments as in nvidia/norm_mlp_mma. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
norm_mlp(__global half *restrict y, __global const half *restrict x, __global const uint4 *restrict weights,
         __global const float *restrict table, __global const float *restrict taps, __global const int *restrict limit,
         __global const int *restrict content, norm_mlp_mma_args arg) {
    MATRIX_SCRATCH
    __local uint4 memory[ALL + 64]; /* from a multiple of 1024 */
    const int id = get_local_id(0), lane = id % 32, g = lane / 4, t = lane % 4;
    const int group = id / 128, across = group / DOWN, row0 = group % DOWN * 64 + id / 32 % 4 * 16 + g;
    const int r0 = get_group_id(0) * BM, rows = min(arg.items, *limit) * arg.rows;
    const uint start = SHARED(memory), shared = (start + 1023u) & ~1023u;
    __local uint4 *main = memory + (shared - start) / 16;
    __local float *biases = (__local float *)(main + TABLE);
    const float eps = arg.eps;
    if (r0 >= rows) return;
#ifdef LEFT_OUT
    if (pixels_left_out(r0, r0 + BM, arg.h, arg.w, content, arg.out)) return;
#endif
#ifndef SPREAD
    for (int i = id; i < BM * PIECES; i += THREADS) {
        const int row = i / PIECES, c = i % PIECES;
        const size_t from = (size_t)min(r0 + row, rows - 1) * arg.x_ld + arg.x_c0;
        COPY16(shared + (Z + row * LDZ + c) * 16, x + from + c * 8, 16);
    }
#endif
    for (int i = id; i < (HID + C) / 4; i += THREADS) COPY16(shared + (TABLE + i) * 16, table + i * 4, 16);
    COPY_COMMIT();
    COPY_STAGE(0);
    COPY_STAGE(1);
#ifdef SPREAD
    for (int i = id; i < BM / 4 * PIECES; i += THREADS) {
        const int row = i / PIECES * 4, c = i % PIECES * 8;
        eight z[4];
        Z_OF(z, min(r0 + row, rows - 4), c);
        UNROLL for (int e = 0; e < 4; e++) main[Z + (row + e) * LDZ + c / 8] = pieces_of(z[e].f, 1.0f);
    }
#endif
    COPY_WAIT(2);
    barrier(CLK_LOCAL_MEM_FENCE);

    uint a[2][KC][4];
    UNROLL for (int r = 0; r < 2; r++) {
        UNROLL for (int k = 0; k < KC; k++) SHARED_LOAD(a[r][k], shared + (Z + (row0 + 8 * r) * LDZ + k * 4 + t) * 16);
        NORMALISE(a[r], true);
    }

    float o[C / 8][4];
    UNROLL for (int c = 0; c < C / 8; c++) UNROLL for (int e = 0; e < 4; e++) o[c][e] =
        across ? 0.0f : biases[HID + c / 4 * 32 + t * 8 + c % 4 * 2 + e % 2];
    const matrix_at from = MATRIX_AT(shared);
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        const matrix_at w1 = from + (uint)(chunk % STAGES * (STAGE / 16) + across * (MINE * 8));
        const matrix_at w2 = from + (uint)(chunk % STAGES * (STAGE / 16) + W1_BYTES / 16 + across * (MINE / 8));
        float u[MINE / 8][4];
        uint h[MINE / 16][4];
        UNROLL for (int c = 0; c < MINE / 8; c++) {
            const float2 b = *(__local const float2 *)(biases + chunk * BH + across * MINE + c * 8 + 2 * t);
            u[c][0] = u[c][2] = b.x;
            u[c][1] = u[c][3] = b.y;
            GROUP_TAKE(u, c);
        }
        COPY_WAIT(1);
#if LATE
        GROUP_WAIT(0);
#endif
        GROUP_PUBLISH();
        barrier(CLK_LOCAL_MEM_FENCE);
        GROUP_BEGIN();
        UNROLL for (int k = 0; k < 2 * KC; k++) {
            const int i = k / 2, e = k % 2 * 2;
            const uint part[4] = {a[0][i][e], a[1][i][e], a[0][i][e + 1], a[1][i][e + 1]};
            GROUP_MULTIPLY_A(MINE, u, part, w1 + (uint)(k / 4 * (BH * 8) + k % 4 * 2));
        }
        GROUP_COMMIT();
        COPY_STAGE(chunk + 2);
        GROUP_WAIT(0);
        UNROLL for (int c = 0; c < MINE / 8; c++) {
            GROUP_TAKE(u, c);
            UNROLL for (int r = 0; r < 2; r++) h[c / 2][c % 2 * 2 + r] =
                halves_of(quick_gelu(u[c][2 * r]), quick_gelu(u[c][2 * r + 1]));
        }
        GROUP_BEGIN();
        UNROLL for (int k = 0; k < MINE / 16; k++) GROUP_MULTIPLY_A(C, o, h[k], w2 + (uint)(k * 2));
        GROUP_COMMIT();
    }
    GROUP_WAIT(0);
    UNROLL for (int c = 0; c < C / 8; c++) GROUP_TAKE(o, c);
#if ACROSS == 2
    __local float4 *sums = (__local float4 *)main + id % (128 * DOWN);
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int c = 0; c < C / 8; c++) if (across) sums[c * (128 * DOWN)] =
        (float4)(o[c][0], o[c][1], o[c][2], o[c][3]);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (across) return;
    UNROLL for (int c = 0; c < C / 8; c++) {
        const float4 more = sums[c * (128 * DOWN)];
        o[c][0] += more.x, o[c][1] += more.y, o[c][2] += more.z, o[c][3] += more.w;
    }
#endif
    UNROLL for (int k = 0; k < KC; k++) UNROLL for (int r = 0; r < 2; r++) {
        const uint4 z = main[Z + (row0 + 8 * r) * LDZ + k * 4 + t];
        const float2 z0 = floats_of(z.x), z1 = floats_of(z.y), z2 = floats_of(z.z), z3 = floats_of(z.w);
        const int e = 2 * r, c = 4 * k;
        if (r0 + row0 + 8 * r < rows)
            *(__global uint4 *)(y + (size_t)(r0 + row0 + 8 * r) * arg.y_ld + arg.y_c0 + k * 32 + t * 8) =
                (uint4)(halves_of(o[c][e] + z0.x, o[c][e + 1] + z0.y),
                        halves_of(o[c + 1][e] + z1.x, o[c + 1][e + 1] + z1.y),
                        halves_of(o[c + 2][e] + z2.x, o[c + 2][e + 1] + z2.y),
                        halves_of(o[c + 3][e] + z3.x, o[c + 3][e + 1] + z3.y));
    }
}
