/* Folds of a layer's result (variants/absorbed.h) by the group that has made it, behind nvidia/token: of rows of OUT
 * channels a warp makes for each of eight heads of 16 channels queries, keys or values of all tokens, then what they
 * are to the image.
 *
 * -D FOLDS: how many, at most three, of rows of -D FOLD_K channels. -D FOLD_K=0: one, plain: queries, as fragments
 * [tiles][8 heads][lane][8] whose columns are channels 4 t to 4 t + 3 of work-item t. -D ADDS: bits of those that are
 * of the result + position. weights: of each fold and head, [2][OUT / 32][lane][8] and [FOLD_K / 16][lane][8], the
 * latter with columns as they are stored; table {b, mb} [8 heads][16] of each. */
#define LD_ROW  (OUT / 8 + 1)                      /* uint4 from row to row of the result, alone, then with position */
#define FOLD    (OUT / 32 * 64 + FOLD_K / 16 * 32) /* uint4 of a head */
#define FOLDING (HIDDEN + 32 * LD_ROW)             /* local memory, in uint4 */

/* A kernel's arguments, and those of fold_rows from them. */
#if FOLDS == 1
#define FOLD_PARAMETERS , __global const half *restrict position, __global half *fold0
#define FOLD_TARGETS    fold0, fold0, fold0
#elif FOLDS == 2
#define FOLD_PARAMETERS , __global const half *restrict position, __global half *fold0, __global half *fold1
#define FOLD_TARGETS    fold0, fold1, fold1
#else
#define FOLD_PARAMETERS                                                                                                \
    , __global const half *restrict position, __global half *fold0, __global half *fold1, __global half *fold2
#define FOLD_TARGETS fold0, fold1, fold2
#endif

static inline void fetch_own(uint (*own)[OUT / 32][4], __global const uint4 *weights) {
    UNROLL for (int i = 0; i < 2; i++)
        UNROLL for (int k = 0; k < OUT / 32; k++) FETCH16(own[i][k], weights + (i * (OUT / 32) + k) * 32);
}

/* Row r to local memory. */
static inline void keep_row(const float *v, int r, const float *position, __local uint4 *memory) {
    const int lane = get_local_id(0) & 31;
    for (int c = 0; c < OUT / 32; c++) {
        __local half *at = (__local half *)(memory + HIDDEN + r * LD_ROW) + c * 32 + lane;
        vstore_half(v[c], 0, at);
        if (ADDS) vstore_half(v[c] + position[c], 16 * LD_ROW * 8, at);
    }
}

#if FOLD_K
static inline void fetch_others(uint (*others)[4], __global const uint4 *weights) {
    UNROLL for (int k = 0; k < FOLD_K / 16; k++) FETCH16(others[k], weights + OUT / 32 * 64 + k * 32);
}

/* A head of the tile's tokens, q, as what it is to the image: rows [tokens][8 heads][FOLD_K] of a prompt, then q mb as
 * two halves of each. */
static inline void store_fold(__global half *to, float (*q)[4], uint (*others)[4], __global const float *mb, int tile,
                              int prompts, const token_args arg MATRIX_SCRATCH_PARAMETER) {
    const int lane = get_local_id(0) & 31, warp = get_local_id(0) / 32, g = lane / 4, t = lane % 4;
    const uint query[4] = {halves_of(q[0][0], q[0][1]), halves_of(q[0][2], q[0][3]), halves_of(q[1][0], q[1][1]),
                           halves_of(q[1][2], q[1][3])};
    UNROLL for (int r = 0; r < 2; r++) {
        float s = 0.0f;
        UNROLL for (int i = 0; i < 2; i++)
            UNROLL for (int e = 0; e < 2; e++) s = fma(q[i][2 * r + e], mb[i * 8 + e], s);
        QUAD_SUM(s);
        s = clamp(s, -65504.0f, 65504.0f);
        const float high = floats_of(halves_of(s, 0.0f)).x;
        const int n = tile * 2 + r;
        if (t == 0 && n < prompts && g < arg.tokens)
            ((__global uint *)(to + ((size_t)n * (arg.tokens * 8 + 2) + arg.tokens * 8) * FOLD_K))[g * 8 + warp] =
                halves_of(high, s - high);
    }
    UNROLL for (int k = 0; k < FOLD_K / 32; k++) {
        float f[4][4];
        UNROLL for (int i = 0; i < 4; i++) {
            UNROLL for (int e = 0; e < 4; e++) f[i][e] = 0.0f;
            MATRIX_MULTIPLY(f[i], query, others[2 * k + i / 2][i % 2 * 2], others[2 * k + i / 2][i % 2 * 2 + 1]);
        }
        UNROLL for (int r = 0; r < 2; r++) {
            const int n = tile * 2 + r;
            if (n < prompts && g < arg.tokens)
                *(__global uint4 *)(to + ((size_t)n * (arg.tokens * 8 + 2) + g * 8 + warp) * FOLD_K + k * 32 + t * 8) =
                    (uint4)(halves_of(f[0][2 * r], f[0][2 * r + 1]), halves_of(f[1][2 * r], f[1][2 * r + 1]),
                            halves_of(f[2][2 * r], f[2][2 * r + 1]), halves_of(f[3][2 * r], f[3][2 * r + 1]));
        }
    }
}
#endif

/* finish_rows (nvidia/token) with the folds of what it stores, to fold0, fold1 and fold2. */
static inline void fold_rows(__global half *y, __global const half *add, __global const float *table, int tile,
                             int prompts, const token_args arg, __global const half *position, int position_ld,
                             __global const uint4 *weights, __global const float *fold_table, __global half *fold0,
                             __global half *fold1, __global half *fold2,
                             __local uint4 *memory MATRIX_SCRATCH_PARAMETER) {
    const int lane = get_local_id(0) & 31, warp = get_local_id(0) / 32, t = lane % 4;
    const uint from = SHARED(memory) + (HIDDEN + lane % 16 * LD_ROW + lane / 16) * 16;
    uint own[2][OUT / 32][4];
    weights += warp * FOLD + lane;
    fetch_own(own, weights);
#if FOLD_K
    uint others[FOLD_K / 16][4];
    fetch_others(others, weights);
#endif
    for (int r = warp * 2; r < warp * 2 + 2; r++) {
        const size_t token = token_of(tile, r, arg);
        float v[OUT / 32], place[OUT / 32]; /* asked for here, since stores would wait for one after the other */
        for (int c = 0; c < OUT / 32; c++)
            place[c] = ADDS ? LOAD(position, token * position_ld + c * 32 + lane) : 0.0f;
        normalised_row(v, r, add + token * arg.add_ld + arg.add_c0, arg.add_ld, table, arg.eps,
                       memory MATRIX_SCRATCH_ARGUMENT);
        keep_row(v, r, place, memory);
        store_row(y, v, r, tile, prompts, arg);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int j = 0; j < FOLDS; j++) {
        __global half *to = j == 0 ? fold0 : j == 1 ? fold1 : fold2;
        __global const float *b = fold_table + (j * 16 + warp) * 16 + 2 * t;
        float q[2][4];
        UNROLL for (int i = 0; i < 2; i++)
            UNROLL for (int e = 0; e < 4; e++) q[i][e] = b[i * 8 + e % 2];
        UNROLL for (int k = 0; k < OUT / 32; k++) {
            uint a[2][4];
            UNROLL for (int i = 0; i < 2; i++)
                MATRIX_LOAD(a[i], from + (ADDS >> j & 1) * (16 * LD_ROW * 16) + (2 * k + i) * 32);
            UNROLL for (int i = 0; i < 2; i++) {
                MATRIX_MULTIPLY(q[i], a[0], own[i][k][0], own[i][k][1]);
                MATRIX_MULTIPLY(q[i], a[1], own[i][k][2], own[i][k][3]);
            }
        }
        weights += 8 * FOLD;
        if (j + 1 < FOLDS) fetch_own(own, weights);
#if FOLD_K
        store_fold(to, q, others, b + 128, tile, prompts, arg MATRIX_SCRATCH_ARGUMENT);
        if (j + 1 < FOLDS) fetch_others(others, weights);
#else
        *(__global uint4 *)(to + (size_t)((tile * 8 + warp) * 32 + lane) * 8) =
            (uint4)(halves_of(q[0][0], q[0][1]), halves_of(q[0][2], q[0][3]), halves_of(q[1][0], q[1][1]),
                    halves_of(q[1][2], q[1][3]));
#endif
    }
}
