/* y = z + W2 gelu(W1 LN(z) + b1) + b2 on the matrix instructions of warpgroups with half storage (graph/nodes.h;
 * goes with nvidia/ptx, nvidia/norm, nvidia/wgmma, nvidia/mlp_chunks and nvidia/spread), z = x or, with SPREAD, a
 * depthwise 3x3 convolution of x. W1 and b1 come with the norm's scale and shift in them.
 *
 * A group has DOWN times ACROSS warpgroups: each takes 64 rows, whose normalised values stay in registers as fragments,
 * and its share of each 64 hidden channels, a chunk; GELU turns their sums into the fragments of the second product, so
 * that hidden channels never leave registers. The weights of both layers pass through rings in local memory. With ACROSS 2
 * the warpgroups of the same rows add their sums up at the end.
 *
 * Channels lie in an order in which a work-item of four has eight of 32 in a row: z is read and y stored so.
 *
 * -D C: 64, 128 or 160. -D HID: a multiple of 128. -D DOWN, -D ACROSS: 1 and 2, or 2 and 1. PROJECT (with SPREAD, DOWN 1 and ACROSS 2):
 * behind nvidia/projection, x is what its linear layer reads. */
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
#define W1_PLACE ((C + 63) / 64 * (BH * 8)) /* a chunk's pieces: tiles of 64 channels, the last may be half full */
#define W2_PLACE (C * 8)
#define RING     3 /* chunks of each: two multiply, one comes */
#define WHOLE    (C / 64 * (BH * 8)) /* pieces of whole tiles of W1 */
#define W2       (RING * W1_PLACE)
#define Z        (W2 + RING * W2_PLACE)
#define TABLE    (Z + BM * LDZ)
#ifdef PROJECT
#define TAPS (TABLE + (HID + 2 * C) / 4)
#define ALL  (TAPS + 10 * C / 4)
#define BIAS (HID + 2 * C)
#else
#define ALL  (TABLE + (HID + C) / 4)
#define BIAS (HID + C)
#endif

#define BIAS_OF(j) ((j)*BH + across * MINE)

#define COPY_CHUNK(j, first, count)                                                                                    \
    do {                                                                                                               \
        const uint me = (first);                                                                                       \
        if ((j) + 2 < CHUNKS) {                                                                                        \
            const uint to = shared + (((j) + 2) % RING * W1_PLACE) * 16;                                               \
            const uint half_tile = to + (WHOLE + me / 4 * 8 + (me % 4 ^ (me / 4 & 7))) * 16;                           \
            __global const uint4 *from = weights + (size_t)((j) + 2) * (2 * W2_PLACE) + me;                            \
            UNROLL for (int m = 0; m < W2_PLACE / (count); m++)                                                        \
                COPY16(m * (count) < WHOLE ? to + (m * (count) + me) * 16 : half_tile + (m * (count)-WHOLE) * 32,      \
                       from + m * (count), 16);                                                                        \
        }                                                                                                              \
        if ((j) + 1 >= 0 && (j) + 1 < CHUNKS) {                                                                        \
            const uint to = shared + (W2 + ((j) + 1) % RING * W2_PLACE + me) * 16;                                     \
            __global const uint4 *from = weights + (size_t)((j) + 1) * (2 * W2_PLACE) + W2_PLACE + me;                 \
            UNROLL for (int m = 0; m < W2_PLACE / (count); m++) COPY16(to + m * (count) * 16, from + m * (count), 16); \
        }                                                                                                              \
        COPY_COMMIT();                                                                                                 \
    } while (0)

/* u += the normalised rows by W1 of chunk j; o += h by W2 of chunk j. */
#define FIRST(u, j)                                                                                                    \
    do {                                                                                                               \
        const matrix_at w1 = from + (uint)((j) % RING * W1_PLACE + across * (MINE * 8));                               \
        UNROLL for (int k = 0; k < 2 * KC; k++) {                                                                      \
            const int i = k / 2, e = k % 2 * 2;                                                                        \
            const uint part[4] = {a[0][i][e], a[1][i][e], a[0][i][e + 1], a[1][i][e + 1]};                             \
            GROUP_MULTIPLY_A(MINE, u, part, w1 + (uint)(k / 4 * (BH * 8) + k % 4 * 2));                                \
        }                                                                                                              \
    } while (0)
#define SECOND(h, j)                                                                                                   \
    do {                                                                                                               \
        const matrix_at w2 = from + (uint)(W2 + (j) % RING * W2_PLACE + across * (MINE / 8));                          \
        UNROLL for (int k = 0; k < MINE / 16; k++) GROUP_MULTIPLY_A(C, o, (h)[k], w2 + (uint)(k * 2));                 \
    } while (0)
/* Group i: rows [BM i, ..) of all items. weights [HID / 64]{W1: tiles of 64 channels [64 hidden][8 pieces of 16 bytes],
 * the last of 32 as [64][4]; W2: [C][8 pieces]}, pieces of a row exchanged as nvidia/wgmma says but for the tile of 32;
 * table {b1 [HID], b2 [C]}, with PROJECT {.., p [C]}; project [C outputs][C inputs], outputs in the order in which a work-item
 * has eight in a row. Other arguments as in nvidia/norm_mlp_mma. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
norm_mlp(__global half *restrict y, __global const half *restrict x, __global const uint4 *restrict weights,
         __global const float *restrict table, __global const float *restrict taps, __global const int *restrict limit,
         __global const int *restrict content,
#ifdef PROJECT
         __global const half *restrict residual, __global const uint4 *restrict project,
#endif
         norm_mlp_mma_args arg) {
    MATRIX_SCRATCH
    __local uint4 memory[ALL + 64]; /* from a multiple of 1024 */
    const int id = get_local_id(0), lane = id % 32, g = lane / 4, t = lane % 4;
    const int group = id / 128, across = group / DOWN, row0 = group % DOWN * 64 + id / 32 % 4 * 16 + g;
    const int r0 = get_group_id(0) * BM, rows = min(arg.items, *limit) * arg.rows;
    const uint start = SHARED(memory), shared = (start + 1023u) & ~1023u;
    __local uint4 *main = memory + (shared - start) / 16;
    __local float *biases = (__local float *)(main + TABLE);
    const float eps = arg.eps;
#ifdef LEFT_OUT
    if (r0 >= rows || pixels_left_out(r0, r0 + BM, arg.h, arg.w, content, arg.out)) return;
#endif
    for (int i = id; i < BIAS / 4; i += THREADS) COPY16(shared + (TABLE + i) * 16, table + i * 4, 16);
    const matrix_at from = MATRIX_AT(shared);
    /* Weights are asked for before the limit is there. */
#ifdef PROJECT
    COPY_PROJECTION();
#elif defined(SPREAD)
    COPY_COMMIT();
    COPY_CHUNK(-2, id, THREADS);
    COPY_CHUNK(-1, id, THREADS);
#endif
    if (r0 >= rows) {
        COPY_WAIT(0);
        return;
    }
#ifdef PROJECT
    const int item = r0 / 64 / arg.h, line = r0 / 64 % arg.h;
    const int own = across * SECOND_FROM; /* channels of this warpgroup */
    uint words[LINES][2][CHANNELS / 32][4];
    COPY_LINES();
    FETCH_RESIDUAL(words, own);
    UNROLL for (int l = 0; l < LINES; l++) {
        if (l == 0)
            COPY_WAIT(2);
        else if (l == 1)
            COPY_WAIT(1);
        else
            COPY_WAIT(0);
        GROUP_PUBLISH();
        barrier(CLK_LOCAL_MEM_FENCE);
        PROJECT_LINE(words, l, own);
    }
    barrier(CLK_LOCAL_MEM_FENCE); /* nobody multiplies */
    COPY_CHUNK(-2, id, THREADS);
    PUT_LINES(words, own);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = id; i < PARTS_Z; i += THREADS) {
        const int row = i / PIECES * ACROSS_Z, c = i % PIECES * 8;
        eight z[ACROSS_Z];
        Z_OF_LINES(z, row, c);
        UNROLL for (int e = 0; e < ACROSS_Z; e++) if (row + e < 64)
            main[Z + (row + e) * LDZ + c / 8] = pieces_of(z[e].f, 1.0f);
    }
    barrier(CLK_LOCAL_MEM_FENCE); /* the lines have been read */
    COPY_CHUNK(-1, id, THREADS);
#elif defined(SPREAD)
    for (int i = id; i < BM / 4 * PIECES; i += THREADS) {
        const int row = i / PIECES * 4, c = i % PIECES * 8;
        eight z[4];
        Z_OF(z, min(r0 + row, rows - 4), c);
        UNROLL for (int e = 0; e < 4; e++) main[Z + (row + e) * LDZ + c / 8] = pieces_of(z[e].f, 1.0f);
    }
#else
    for (int i = id; i < BM * PIECES; i += THREADS) {
        const int row = i / PIECES, c = i % PIECES;
        const size_t from_row = (size_t)min(r0 + row, rows - 1) * arg.x_ld + arg.x_c0;
        COPY16(shared + (Z + row * LDZ + c) * 16, x + from_row + c * 8, 16);
    }
    COPY_COMMIT();
    COPY_CHUNK(-2, id, THREADS);
    COPY_CHUNK(-1, id, THREADS);
#endif
    COPY_WAIT(1); /* z, table and W1 of the first chunk */
    GROUP_PUBLISH();
    barrier(CLK_LOCAL_MEM_FENCE);

    uint a[2][KC][4];
    UNROLL for (int r = 0; r < 2; r++) {
        UNROLL for (int k = 0; k < KC; k++) SHARED_LOAD(a[r][k], shared + (Z + (row0 + 8 * r) * LDZ + k * 4 + t) * 16);
        NORMALISE(a[r], true);
    }

    float o[C / 8][4];
    UNROLL for (int c = 0; c < C / 8; c += 2) { /* without a branch for each */
        uint b[4];
        SHARED_LOAD(b, shared + TABLE * 16 + (HID + c / 4 * 32 + t * 8 + c % 4 * 2) * 4);
        UNROLL for (int e = 0; e < 8; e++) o[c + e / 4][e % 4] = across ? 0.0f : as_float(b[e / 4 * 2 + e % 2]);
    }
    MULTIPLY_CHUNKS();
#if ACROSS == 2
    __local float4 *sums = (__local float4 *)main + id % (128 * DOWN);
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
