/* y = x + W2 gelu(W1 LN(x) + b1) + b2 as nvidia/norm_mlp_wgmma makes it, for more channels than the registers of a
 * warpgroup have room for (goes with nvidia/ptx, nvidia/wgmma, nvidia/mlp_chunks and nvidia/spread). W1 and b1 come
 * with the norm's scale and shift in them.
 *
 * A group has 128 rows, 64 for each of two warpgroups, whose normalised values lie in local memory; sums of all C
 * columns stay in registers, and the weights of 32 hidden channels, a chunk, pass through rings. SPLIT groups,
 * neighbours in number, have the same rows and a part of the hidden channels each (split-K of the second layer): they
 * write their sums as halves, wait for each other and finish a quarter, or half, of the columns each. So these groups
 * must run at once (capability PTX_MEET), and they do: groups begin in the order of their numbers, so that at most
 * SPLIT - 1 of a launch wait for one that has no unit yet, and all others come to an end.
 *
 * A work-item has eight channels in a row of every 32, as in nvidia/norm_mlp_wgmma.
 *
 * -D C: 192, 256 or 320. -D HID: a multiple of 64 SPLIT. -D SPLIT: 1, 2 or 4. */
#if C == 320
#define HALF_C 160 /* columns of one product of the second layer, a literal */
#elif C == 256
#define HALF_C 128
#else
#define HALF_C 96
#endif
#define THREADS       256
#define BM            128
#define MINE          32 /* hidden channels of a chunk */
#define TILES         (C / 64)
#define CHUNKS        (HID / SPLIT / MINE)
#define ROWS          (BM * 8)           /* uint4 of 64 channels of the rows */
#define W1_PLACE      (TILES * MINE * 8) /* of W1 of a chunk */
#define W2_PLACE      (C * 4)            /* of W2 of a chunk: two lie side by side, [C][8] */
#define W1            (TILES * ROWS)
#define W2            (W1 + 3 * W1_PLACE)
#define TABLE         (W2 + 4 * W2_PLACE)
#define ALL           (TABLE + HID / SPLIT / 4)
#define LANES         8 /* work-items that normalise a row */
#define PASSES        (BM * LANES / THREADS)
#define PARTS         4               /* of the columns */
#define MINE_OF_PARTS (PARTS / SPLIT) /* that a group finishes */
#define UNITS         (C / 64)        /* eight channels of a row, of a part a work-item has so many */

#define COPY_CHUNK(j, first, count)                                                                                    \
    do {                                                                                                               \
        const uint me = (first);                                                                                       \
        if ((j) + 2 < CHUNKS) {                                                                                        \
            const uint to = shared + (W1 + ((j) + 2) % 3 * W1_PLACE) * 16;                                             \
            __global const uint4 *from = weights + (size_t)((j) + 2) * (W1_PLACE + W2_PLACE);                          \
            UNROLL for (int m = 0; m < W1_PLACE / (count); m++)                                                        \
                COPY16(to + (m * (count) + me) * 16, from + m * (count) + me, 16);                                     \
        }                                                                                                              \
        if ((j) + 1 >= 0 && (j) + 1 < CHUNKS) {                                                                        \
            const uint to = shared + (W2 + ((j) + 1) / 2 % 2 * (2 * W2_PLACE) + me / 4 * 8 +                           \
                                      ((me % 4 + ((j) + 1) % 2 * 4) ^ (me / 4 & 7))) * 16;                             \
            __global const uint4 *from = weights + (size_t)((j) + 1) * (W1_PLACE + W2_PLACE) + W1_PLACE;               \
            UNROLL for (int m = 0; m < W2_PLACE / (count); m++)                                                        \
                COPY16(to + m * (count) * 32, from + m * (count) + me, 16);                                            \
        }                                                                                                              \
        COPY_COMMIT();                                                                                                 \
    } while (0)

#define BIAS_OF(j) ((j) * MINE)
#define FIRST(u, j)                                                                                                    \
    do {                                                                                                               \
        const matrix_at w1 = from + (uint)(W1 + (j) % 3 * W1_PLACE);                                                   \
        UNROLL for (int k = 0; k < 4 * TILES; k++)                                                                     \
            GROUP_MULTIPLY(MINE, u, own + (uint)(k / 4 * ROWS + k % 4 * 2),                                            \
                           w1 + (uint)(k / 4 * (MINE * 8) + k % 4 * 2));                                               \
    } while (0)
#define SECOND(h, j)                                                                                                   \
    do {                                                                                                               \
        const matrix_at w2 = from + (uint)(W2 + (j) / 2 % 2 * (2 * W2_PLACE) + (j) % 2 * 4);                           \
        UNROLL for (int k = 0; k < MINE / 16; k++) {                                                                   \
            GROUP_MULTIPLY_A(HALF_C, o, (h)[k], w2 + (uint)(k * 2));                                                   \
            GROUP_MULTIPLY_A(HALF_C, (o + HALF_C / 8), (h)[k], w2 + (uint)(HALF_C * 8 + k * 2));                       \
        }                                                                                                              \
    } while (0)

#if SPLIT > 1
#ifdef IST_PTX
static inline uint arrivals(__global const uint *p) {
    uint v;
    __asm__ volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
#else
static inline uint arrivals(volatile __global const uint *p) {
    return *p;
}
#endif

/* Until the SPLIT groups of these rows are here; what they have stored is seen behind it. `arrived` counts on from
 * launch to launch, past what a word holds, too. */
static inline void groups_meet(__global uint *arrived) {
    DEVICE_FENCE();
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        const uint all = (atomic_inc((volatile __global uint *)arrived) | (SPLIT - 1)) + 1;
        while ((int)(arrivals(arrived) - all) < 0) {
        }
        DEVICE_FENCE();
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
}
#endif

/* Unit e of part p: its first channel, its row, and where o has its sums. */
#define CHANNEL_OF(p, e) (((p)*UNITS + (e)) / 2 * 32 + t * 8)
#define ROW_OF(p, e)     (row0 + ((p)*UNITS + (e)) % 2 * 8)
#define SUM_OF(p, e, i)  o[((p) * UNITS + (e)) / 2 * 4 + (i) / 2][((p) * UNITS + (e)) % 2 * 2 + (i) % 2]

/* What group s of the same rows has made of it. */
#define SUMS_OF(p, s, e) ((((p) * SPLIT + (s)) * UNITS + (e)) * THREADS)

#if SPLIT > 1
/* Sums of part p for the group that finishes it, if that is another one. Not a loop over parts: `o` would be in
 * memory. */
#define PUT_PART(p)                                                                                                    \
    if ((p) / MINE_OF_PARTS != slice) UNROLL for (int e = 0; e < UNITS; e++) {                                         \
        float sum[8];                                                                                                  \
        UNROLL for (int i = 0; i < 8; i++) sum[i] = SUM_OF(p, e, i);                                                   \
        sums[SUMS_OF(p, slice, e)] = as_float4(pieces_of(sum, 1.0f));                                                  \
    }
#define TAKE_PART(p)                                                                                                   \
    if ((p) == part) UNROLL for (int e = 0; e < UNITS; e++) UNROLL for (int i = 0; i < 8; i++)                         \
        sum[e][i] = SUM_OF(p, e, i)
#define TAKE(number)                                                                                                   \
    do {                                                                                                               \
        TAKE_PART(0);                                                                                                  \
        TAKE_PART(1);                                                                                                  \
        TAKE_PART(2);                                                                                                  \
        TAKE_PART(3);                                                                                                  \
        if ((number) == 0) groups_meet(arrived + block);                                                               \
    } while (0)
#define FETCH_OTHERS(more)                                                                                             \
    UNROLL for (int e = 0; e < UNITS; e++) UNROLL for (int s = 0; s < SPLIT - 1; s++)                                  \
        more[e][s] = load_shared_result(sums + SUMS_OF(part, s + (s >= slice), e))
#define OTHERS (SPLIT - 1)
#else
#define TAKE(number)                                                                                                   \
    UNROLL for (int e = 0; e < UNITS; e++) UNROLL for (int i = 0; i < 8; i++) sum[e][i] = SUM_OF(number, e, i)
#define FETCH_OTHERS(more)
#define OTHERS 1
#endif

/* y of the group's own part with this number: its own sums, biases and x, then what the others have, in their order. */
#define FINISH_PART(number)                                                                                            \
    do {                                                                                                               \
        const int part = slice * MINE_OF_PARTS + (number);                                                             \
        float sum[UNITS][8];                                                                                           \
        uint z[UNITS][4], b[UNITS][2][4];                                                                              \
        float4 more[UNITS][OTHERS];                                                                                    \
        UNROLL for (int e = 0; e < UNITS; e++) {                                                                       \
            const int row = min(r0 + ROW_OF(part, e), rows - 1);                                                       \
            FETCH16(z[e], x + (size_t)row * arg.x_ld + arg.x_c0 + CHANNEL_OF(part, e));                                \
            UNROLL for (int q = 0; q < 2; q++) FETCH16(b[e][q], table + HID + CHANNEL_OF(part, e) + q * 4);            \
        }                                                                                                              \
        TAKE(number);                                                                                                  \
        FETCH_OTHERS(more);                                                                                            \
        UNROLL for (int e = 0; e < UNITS; e++) {                                                                       \
            const int row = r0 + ROW_OF(part, e);                                                                      \
            const eight own_z = eight_of(z[e]);                                                                        \
            UNROLL for (int i = 0; i < 8; i++) sum[e][i] += as_float(b[e][i / 4][i % 4]) + own_z.f[i];                 \
            UNROLL for (int s = 0; s < SPLIT - 1; s++) {                                                               \
                uint words[4];                                                                                         \
                vstore4(as_uint4(more[e][s]), 0, words);                                                               \
                const eight v = eight_of(words);                                                                       \
                UNROLL for (int i = 0; i < 8; i++) sum[e][i] += v.f[i];                                                \
            }                                                                                                          \
            if (row < rows)                                                                                            \
                *(__global uint4 *)(y + (size_t)row * arg.y_ld + arg.y_c0 + CHANNEL_OF(part, e)) =                     \
                    pieces_of(sum[e], 1.0f);                                                                           \
        }                                                                                                              \
    } while (0)

/* Group SPLIT i + s: rows [BM i, ..) of all items, part s of the hidden channels. weights [HID / 32]{W1: tiles of 64
 * channels [32 hidden][8 pieces of 16 bytes], exchanged as nvidia/wgmma says; W2: [C][4 pieces]}, table {b1 [HID], b2
 * [C]}, outputs of W2 in the order in which a work-item has eight in a row. With SPLIT above 1 partial [row blocks]
 * [PARTS][SPLIT][UNITS][256] of eight halves and arrived [row blocks], zeros before the first launch. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
norm_mlp(__global half *restrict y, __global const half *restrict x, __global const uint4 *restrict weights,
         __global const float *restrict table, __global const int *restrict limit,
#if SPLIT > 1
         __global float4 *partial, __global uint *arrived,
#endif
         norm_mlp_mma_args arg) {
    MATRIX_SCRATCH
    __local uint4 memory[ALL + 64]; /* from a multiple of 1024 */
    const int id = get_local_id(0), lane = id % 32, g = lane / 4, t = lane % 4;
    const int group = id / 128, row0 = id / 32 * 16 + g, slice = get_group_id(0) % SPLIT, block = get_group_id(0) / SPLIT;
    const int r0 = block * BM, rows = min(arg.items, *limit) * arg.rows;
    const uint start = SHARED(memory), shared = (start + 1023u) & ~1023u;
    __local uint4 *main = memory + (shared - start) / 16;
    __local float *biases = (__local float *)(main + TABLE);
    weights += (size_t)slice * CHUNKS * (W1_PLACE + W2_PLACE);
    for (int i = id; i < HID / SPLIT / 4; i += THREADS)
        COPY16(shared + (TABLE + i) * 16, table + slice * (HID / SPLIT) + i * 4, 16);
    COPY_CHUNK(-2, id, THREADS);
    COPY_CHUNK(-1, id, THREADS);
    if (r0 >= rows) {
        COPY_WAIT(0);
        return;
    }

    uint v[PASSES][TILES][4];
    UNROLL for (int i = 0; i < PASSES; i++) {
        const int row = min(r0 + i * (THREADS / LANES) + id / LANES, rows - 1);
        UNROLL for (int k = 0; k < TILES; k++)
            FETCH16(v[i][k], x + (size_t)row * arg.x_ld + arg.x_c0 + (k * LANES + id % LANES) * 8);
    }
    UNROLL for (int i = 0; i < PASSES; i++) {
        const int row = i * (THREADS / LANES) + id / LANES;
        float mean = 0.0f, square = 0.0f;
        UNROLL for (int k = 0; k < TILES; k++) UNROLL for (int e = 0; e < 4; e++) {
            const float2 two = floats_of(v[i][k][e]);
            mean += two.x + two.y;
            square = fma(two.x, two.x, fma(two.y, two.y, square));
        }
        SUM_OF_8(mean);
        SUM_OF_8(square);
        mean /= C;
        const float by = 1.0f / sqrt(fmax(square / C - mean * mean, 0.0f) + arg.eps);
        UNROLL for (int k = 0; k < TILES; k++) {
            uint w[4];
            UNROLL for (int e = 0; e < 4; e++) {
                const float2 two = fma(floats_of(v[i][k][e]), (float2)(by), (float2)(-mean * by));
                w[e] = halves_of(two.x, two.y);
            }
            main[k * ROWS + row * 8 + (id % LANES ^ (row & 7))] = (uint4)(w[0], w[1], w[2], w[3]);
        }
    }
    COPY_WAIT(1); /* table and W1 of the first chunk */
    GROUP_PUBLISH();
    barrier(CLK_LOCAL_MEM_FENCE);

    const matrix_at from = MATRIX_AT(shared), own = from + (uint)(group * 512);
    float o[C / 8][4];
    UNROLL for (int c = 0; c < C / 8; c++) UNROLL for (int e = 0; e < 4; e++) o[c][e] = 0.0f;
    MULTIPLY_CHUNKS();

#if SPLIT > 1
    __global float4 *sums = partial + (size_t)block * (PARTS * SPLIT * UNITS * THREADS) + id;
    PUT_PART(0);
    PUT_PART(1);
    PUT_PART(2);
    PUT_PART(3);
#endif
    FINISH_PART(0);
#if SPLIT < 4
    FINISH_PART(1);
#endif
#if SPLIT < 2
    FINISH_PART(2);
    FINISH_PART(3);
#endif
}
