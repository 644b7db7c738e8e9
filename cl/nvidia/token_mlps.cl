/* Perceptrons of three layers on single tokens (variants/nvidia/tokens.h) on matrix instructions with half storage; goes with
 * nvidia/ptx. -D IN: channels, a multiple of 64. */
#define THREADS 256
#define LD  (IN / 8 + 1)             /* uint4 from row to row */
#define NT  (IN / 64)                /* blocks of eight outputs of a warp */
#define MLP (IN / 32 * (2 * IN / 8 + 4) * 32) /* uint4 of a perceptron's weights */

/* c = b, then += the rows at `from` times w, whose blocks are [COUNT][IN / 32]. */
#define LAYER(c, from, w, COUNT, bias)                                                                                 \
    UNROLL for (int j = 0; j < COUNT; j++) {                                                                           \
        (c)[j][0] = (c)[j][2] = (bias)[j * 8 + 2 * t];                                                                 \
        (c)[j][1] = (c)[j][3] = (bias)[j * 8 + 2 * t + 1];                                                             \
    }                                                                                                                  \
    UNROLL for (int k = 0; k < IN / 32; k++) {                                                                         \
        uint a[2][4];                                                                                                  \
        UNROLL for (int i = 0; i < 2; i++)                                                                             \
            MATRIX_LOAD(a[i], shared + (from) * 16 + lane % 16 * (LD * 16) + (2 * k + i) * 32 + lane / 16 * 16);       \
        UNROLL for (int j = 0; j < COUNT; j++) {                                                                       \
            MATRIX_MULTIPLY((c)[j], a[0], (w)[j][k][0], (w)[j][k][1]);                                                 \
            MATRIX_MULTIPLY((c)[j], a[1], (w)[j][k][2], (w)[j][k][3]);                                                 \
        }                                                                                                              \
    }
/* relu of c as halves to the rows at `to`. */
#define KEEP(c, to)                                                                                                    \
    UNROLL for (int j = 0; j < NT; j++)                                                                                \
        UNROLL for (int r = 0; r < 2; r++)                                                                             \
            words[((to) + (g + 8 * r) * LD + warp * NT + j) * 4 + t] =                                                 \
                halves_of(fmax((c)[j][2 * r], 0.0f), fmax((c)[j][2 * r + 1], 0.0f));

/* Group (i, j): perceptron j on one token each of prompts [16 i, ..): W3 relu(W2 relu(W1 x + b1) + b2) + b3. The first
 * is of token 0 and has `scores_c` results, to `scores`; the others are of tokens first_token, .. and have 32, to
 * `vectors`. weights of a perceptron: fragments [outputs / 8][IN / 32][lane][8 halves] of the three layers, the last of
 * 32; table {b1, b2} [IN], b3 [32]. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
perceptrons(__global half *restrict vectors, __global float *restrict scores, __global const half *restrict x,
            __global const uint4 *restrict weights, __global const float *restrict table,
            __global const int *restrict limit, perceptrons_args arg) {
    MATRIX_SCRATCH
    __local uint4 memory[32 * LD];
    __local uint *words = (__local uint *)memory;
    const int id = get_local_id(0), lane = id & 31, warp = id / 32, g = lane / 4, t = lane % 4, which = get_group_id(1);
    const int n0 = get_group_id(0) * 16, count = min(arg.prompts, *limit);
    const int token = which ? arg.first_token + which - 1 : 0;
    const uint shared = SHARED(memory);
    weights += (size_t)which * MLP + lane;
    table += which * (2 * IN + 32);
    uint w[NT][IN / 32][4], last[1][IN / 32][4];
    UNROLL for (int j = 0; j < NT; j++)
        UNROLL for (int k = 0; k < IN / 32; k++) FETCH16(w[j][k], weights + ((warp * NT + j) * (IN / 32) + k) * 32);
    if (n0 >= count) return;
    for (int i = id; i < 16 * (IN / 8); i += THREADS) {
        const size_t from = (size_t)min(n0 + i / (IN / 8), count - 1) * arg.tokens + token;
        COPY16(shared + (i / (IN / 8) * LD + i % (IN / 8)) * 16, x + from * arg.x_ld + arg.x_c0 + i % (IN / 8) * 8, 16);
    }
    COPY_COMMIT();
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    float c[NT][4], y[1][4];
    LAYER(c, 0, w, NT, table + warp * (NT * 8))
    KEEP(c, 16 * LD)
    weights += IN / 32 * (IN / 8) * 32;
    UNROLL for (int j = 0; j < NT; j++)
        UNROLL for (int k = 0; k < IN / 32; k++) FETCH16(w[j][k], weights + ((warp * NT + j) * (IN / 32) + k) * 32);
    weights += IN / 32 * (IN / 8) * 32;
    UNROLL for (int k = 0; k < IN / 32; k++) FETCH16(last[0][k], weights + (warp % 4 * (IN / 32) + k) * 32);
    barrier(CLK_LOCAL_MEM_FENCE);
    LAYER(c, 16 * LD, w, NT, table + IN + warp * (NT * 8))
    KEEP(c, 0)
    barrier(CLK_LOCAL_MEM_FENCE);
    LAYER(y, 0, last, 1, table + 2 * IN + warp % 4 * 8)
    for (int e = 0; e < 4 && warp < 4; e++) {
        const int n = n0 + g + e / 2 * 8, at = warp * 8 + 2 * t + e % 2, masks = get_num_groups(1) - 1;
        if (n < count && which) STORE(y[0][e], vectors, ((size_t)n * masks + which - 1) * 32 + at);
        if (n < count && !which && at < arg.scores_c) scores[(size_t)n * arg.scores_c + at] = y[0][e];
    }
}
