/* Attention between a few tokens and an image (variants/absorbed.h), for CPUs: the tokens' side. Folds tokens into what
 * cpu/two_way takes, and joins what it has read for them; one work-item per group, needs cpu/tile, cpu/two_way_columns.
 *
 * -D K: channels of the image, a multiple of 64; those of cpu/two_way_columns. */
#define KV    (K / 16)

/* ---- folds ---- */

/* to[r * ldt] = from[r * ldf] + sum over i < k of a[r * lda + i] * vector b[i * ldb] for 8 rows; k is even: sums enough
 * that none waits for itself. */
#define TILE_AHEAD    2048 /* floats of b that are asked for ahead of their use: what follows b is read next */
#define ROW_OPEN(r)   float16 c##r = from[(r) * ldf];
#define ROW_FIRST(r)  c##r = fma((float16)(a[(r) * lda + i]), v, c##r);
#define ROW_SECOND(r) c##r = fma((float16)(a[(r) * lda + i + 1]), v, c##r);
#define ROW_CLOSE(r)  to[(r) * ldt] = c##r;
#ifdef SIMD16
#define ROWS8X1 8
#define ROWS_OF_TILE(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)
#else
#define ROWS8X1 4
#define ROWS_OF_TILE(F) F(0) F(1) F(2) F(3)
#endif
NOINLINE void tile8x1(float16 *to, int ldt, const float16 *from, int ldf, const float *a, int lda,
                      __global const float *b, int ldb, int k) {
    for (int r = 0; r < 8; r += ROWS8X1, to += ROWS8X1 * ldt, from += ROWS8X1 * ldf, a += ROWS8X1 * lda) {
        ROWS_OF_TILE(ROW_OPEN)
        __global const float *row = b;
        for (int i = 0; i < k; i += 2, row += 2 * ldb) {
            {
                const float16 v = vload16(0, row);
                ROWS_OF_TILE(ROW_FIRST)
            }
            {
                const float16 v = vload16(0, row + ldb);
                ROWS_OF_TILE(ROW_SECOND)
            }
            PREFETCH_L2(row + TILE_AHEAD);
            PREFETCH_L2(row + TILE_AHEAD + 16);
        }
        ROWS_OF_TILE(ROW_CLOSE)
    }
}

/* q[t] = scale * ((x + add) W + b) of prompt n's tokens, `wide` = 8 d channels each; `from_last`: that of the last one
 * is taken off the others. w [wide / 16][c][16]. Of BLOCKS * 8 rows of q those beyond the tokens mean nothing. */
#define FOLD_DEPTH 256
NOINLINE void fold_queries(float16 *q, __global const T *x, __global const T *add, __global const float *w,
                           __global const float *b, int n, const fold_args arg, bool from_last) {
    float xs[8 * FOLD_DEPTH];
    const int tokens = arg.tokens, c_in = arg.x_c, vectors = HEADS * arg.d / 16, last = tokens - 1;
    for (int t0 = 0; t0 < tokens; t0 += 8)
        for (int k0 = 0; k0 < c_in; k0 += FOLD_DEPTH) {
            const int depth = min(FOLD_DEPTH, c_in - k0);
            for (int r = 0; r < 8; r++) {
                const int t = min(t0 + r, last);
                const int xi = (n * tokens + t) * arg.x_ld + arg.x_c0 + k0;
                const int ai = ((arg.add_once ? 0 : n) * tokens + t) * arg.add_ld + arg.add_c0 + k0;
                float *to = xs + r * FOLD_DEPTH;
                if (depth % 16)
                    for (int k = 0; k < depth; k++) to[k] = LOAD(x, xi + k) + (arg.added ? LOAD(add, ai + k) : 0.0f);
                else
                    for (int k = 0; k < depth; k += 16)
                        vstore16(arg.added ? LOAD16(x, xi + k) + LOAD16(add, ai + k) : LOAD16(x, xi + k), 0, to + k);
            }
            for (int j = 0; j < vectors; j++) {
                const float16 bias = vload16(j, b);
                float16 *sums = q + t0 * vectors + j;
                tile8x1(sums, vectors, k0 ? sums : &bias, k0 ? vectors : 0, xs, FOLD_DEPTH,
                        w + (j * c_in + k0) * 16, 16, depth);
            }
        }
    for (int i = 0; i < tokens * vectors; i++) q[i] *= (float16)(arg.scale);
    for (int i = 0; from_last && i < last * vectors; i++) q[i] -= q[last * vectors + i % vectors];
}

/* y[k][c] = sum over i < d of m[k][i * 8 + c % 8] * plain[i][c], plain [d][CP], for six rows of which `count` exist. */
#define FOLD_ROW(r, F)                                                                                                 \
    {                                                                                                                  \
        const float8 e = vload8(i, m + (r) * HEADS * d);                                                               \
        const float16 v = (float16)(e, e);                                                                             \
        F(r)                                                                                                           \
    }
#define FOLD_ROWS(F) FOLD_ROW(0, F) FOLD_ROW(1, F) FOLD_ROW(2, F) FOLD_ROW(3, F) FOLD_ROW(4, F) FOLD_ROW(5, F)
#ifdef SIMD16
#define FOLD_WIDTH       4
#define FOLD_OPEN(r, j)  float16 c##r##_##j = (float16)(0.0f);
#define FOLD_CLOSE(r, j) if (r < count) vstore16(c##r##_##j, j, y + (r) * CP);
#define FOLD_MAC(r)      TILE_COLS(TILE_MAC, r)
NOINLINE void fold_tile(__global float *y, __global const float *m, const float16 *plain, int d, int count) {
    TILE_EACH(FOLD_OPEN)
    for (int i = 0; i < d; i++, plain += CP / 16) {
        const float16 b0 = plain[0], b1 = plain[1], b2 = plain[2], b3 = plain[3];
        FOLD_ROWS(FOLD_MAC)
    }
    TILE_EACH(FOLD_CLOSE)
}
#else /* six sums of two registers each */
#define FOLD_WIDTH    1
#define FOLD_OPEN(r)  float16 c##r = (float16)(0.0f);
#define FOLD_CLOSE(r) if (r < count) vstore16(c##r, 0, y + (r) * CP);
#define FOLD_MAC(r)   c##r = fma(v, b0, c##r);
NOINLINE void fold_tile(__global float *y, __global const float *m, const float16 *plain, int d, int count) {
    TILE_EACH1(FOLD_OPEN)
    for (int i = 0; i < d; i++, plain += CP / 16) {
        const float16 b0 = plain[0];
        FOLD_ROWS(FOLD_MAC)
    }
    TILE_EACH1(FOLD_CLOSE)
}
#endif

/* Part `slice` of `slices` of rows [0, K]: y [K + 1][CP], m [K + 1, to whole tiles][8 d]. */
static inline void fold_columns(__global float *y, __global const float *m, const float16 *plain, int d, int slice,
                                int slices) {
    const int tiles = (K + TILE_ROWS) / TILE_ROWS, end = tiles * (slice + 1) / slices;
    for (int tile = tiles * slice / slices; tile < end; tile++) {
        const int k = tile * TILE_ROWS;
        for (int j = 0; j < CP / 16; j += FOLD_WIDTH)
            fold_tile(y + k * CP + j * 16, m + k * HEADS * d, plain + j, d, min(TILE_ROWS, K + 1 - k));
    }
}

/* 64 channels of all tokens and heads: y [tokens * 8][64], m [8 d][64], q [tokens][8 d]. */
static inline void fold_panel(__global float *y, __global const float *m, const float *q, int d, int tokens) {
    const float16 zero = (float16)(0.0f);
    for (int t0 = 0; t0 < tokens; t0 += 8)
        for (int h = 0; h < HEADS; h++)
            for (int k = 0; k < 64; k += 16) {
                float16 s[8];
                tile8x1(s, 1, &zero, 0, q + (t0 * HEADS + h) * d, HEADS * d, m + h * d * 64 + k, 64, d);
                for (int r = 0; r < 8 && t0 + r < tokens; r++)
                    vstore16(s[r], 0, y + ((t0 + r) * HEADS + h) * 64 + k);
            }
}

/* Item (n, slice) of prompts n: q = (x + add) W + b, then per token t and head h y[t, h] = scale * q_h M_h.
 * FOLD_PANELS: y [K / 64][c][64]. FOLD_COLUMNS: y [K + 1][CP], row K is scale * q . mb; columns of tokens that are not
 * there score LOWEST. FOLD_PLAIN: y [d + 1][CP] is scale * q itself, row d zero. Channel i of head h is column h * d +
 * i of w for panels, else i * 8 + h; m is fold_panel's for each 64 channels, or fold_columns', row K has mb. A group
 * makes q once for all its items of a prompt. With `from_last` the last token's q is taken off that of the others
 * first, and the last token has no columns. */
NOINLINE void fold_heads_group(__global float *restrict y, __global const T *restrict x, __global const T *restrict add,
                               __global const float *restrict w, __global const float *restrict b,
                               __global const float *restrict m, __global const int *limit, cpu_fold_args arg,
                               __global const int *ways, __global int *queue, const int4 group) {
    const int tokens = arg.fold.tokens, d = arg.fold.d, form = arg.fold.form, slices = arg.slices;
    const int seen = form != FOLD_PANELS && arg.from_last ? tokens - 1 : tokens; /* of which there are columns */
    const int last = form == FOLD_PLAIN ? d : K; /* row of constants */
    float16 q[BLOCKS * 8 * 16], plain[32 * CP / 16];
    int made = -1; /* whose q there is */
    work_t work = work_begin(group.w, min(arg.prompts, *limit) * slices, false);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        const int n = item / slices, slice = item % slices;
        if (skipped(ways, n, arg.wanted_way)) continue;
        if (made != n) fold_queries(q, x, add, w, b, n, arg.fold, arg.from_last);
        __global float *to = y + (size_t)n * (form != FOLD_PANELS ? (last + 1) * CP : tokens * HEADS * K);
        if (form == FOLD_PANELS) {
            fold_panel(to + slice * tokens * HEADS * 64, m + slice * HEADS * d * 64, (const float *)q, d, tokens);
            made = n;
            continue;
        }
        if (made != n) {
            for (int i = 0; i < d * CP / 16; i++) plain[i] = (float16)(0.0f);
            for (int t = 0; t < seen; t++)
                for (int i = 0; i < d; i++)
                    vstore8(vload8(t * d + i, (const float *)q), 0, (float *)plain + i * CP + t * HEADS);
            made = n;
        }
        if (form == FOLD_COLUMNS)
            fold_columns(to, m, plain, d, slice, slices);
        else
            for (int i = 0; i < d * CP / 16; i++) vstore16(plain[i], i, to);
        const int there = seen * HEADS;
        if (slice + 1 == slices)
            for (int c = form == FOLD_COLUMNS ? there : 0; c < CP; c++) to[last * CP + c] = c < there ? 0.0f : LOWEST;
    }
    work_end(&work, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
fold_heads(__global float *restrict y, __global const T *restrict x, __global const T *restrict add,
           __global const float *restrict w, __global const float *restrict b, __global const float *restrict m,
           __global const int *limit, cpu_fold_args arg, __global const int *ways, __global int *queue) {
    fold_heads_group(y, x, add, w, b, m, limit, arg, ways, queue, THIS_GROUP);
}

/* ---- what the tokens read ---- */

/* Joins the parts of two heads from h on, `rows` tokens from t0 on: o [8][2][K] are their sums, total [4] the sums of
 * weights of 8 tokens by 8 heads. */
NOINLINE void join_parts(float16 *o, float16 *total, __global const float *part, int parts, int t0, int rows, int h) {
    enum { PART = CP * (K + 2) };
    float16 m[4], f[4];
    __global const float *p = part + t0 * HEADS;
    for (int j = 0; j < 4; j++) m[j] = (float16)(LOWEST), total[j] = (float16)(0.0f);
    for (int g = 0; g < parts; g++)
        for (int j = 0; j < 4; j++) m[j] = larger(m[j], vload16(j, p + (size_t)g * PART));
    for (int i = 0; i < 8 * 2 * KV; i++) o[i] = (float16)(0.0f);
    for (int g = 0; g < parts; g++, p += PART) {
        for (int j = 0; j < 4; j++) {
            f[j] = exp2_negative(vload16(j, p) - m[j]);
            total[j] = fma(vload16(j, p + CP), f[j], total[j]);
        }
        __global const float *sums = p + 2 * CP + (t0 * (K - 1) * HEADS + h * K);
        for (int t = 0; t < rows; t++, sums += HEADS * K) {
            const float16 f0 = (float16)(((const float *)f)[t * HEADS + h]);
            const float16 f1 = (float16)(((const float *)f)[t * HEADS + h + 1]);
            float16 *to = o + t * 2 * KV;
            UNROLL for (int i = 0; i < KV; i++) {
                to[i] = fma(vload16(i, sums), f0, to[i]);
                to[KV + i] = fma(vload16(i, sums + K), f1, to[KV + i]);
            }
        }
    }
}

/* Item (n, pair of heads h): y[t][h d ..] = V_h (average of x under the whole softmax of column t * 8 + h) + b. w
 * [head][K][d padded to 16], b [head][16s]. */
NOINLINE void image_merge_group(__global T *restrict y, __global const float *restrict part,
                                __global const float *restrict w, __global const float *restrict b,
                                __global const int *limit, cpu_image_merge_args arg, __global const int *ways,
                                __global int *queue, const int4 group) {
    enum { HEAD_PAIRS = HEADS / 2 };
    const int tokens = arg.merge.tokens, groups = arg.merge.groups, d = arg.merge.d, d16 = (d + 15) / 16 * 16;
    const float16 zero = (float16)(0.0f);
    float16 o[8 * 2 * KV], total[4], s[8];
    work_t work = work_begin(group.w, min(arg.prompts, *limit) * HEAD_PAIRS, false);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        const int n = item / HEAD_PAIRS, first = item % HEAD_PAIRS * 2;
        if (skipped(ways, n, arg.wanted_way)) continue;
        for (int t0 = 0; t0 < tokens; t0 += 8) {
            const int rows = min(8, tokens - t0);
            join_parts(o, total, part + (size_t)n * groups * CP * (K + 2), groups, t0, rows, first);
            for (int h = first; h < first + 2; h++)
                for (int i = 0; i < d; i += 16) {
                    tile8x1(s, 1, &zero, 0, (const float *)o + (h - first) * K, 2 * K, w + h * K * d16 + i, d16, K);
                    for (int r = 0; r < rows; r++) {
                        const float sum = ((const float *)total)[r * HEADS + h];
                        const float16 v = fma(s[r], (float16)(1.0f / sum), vload16(0, b + h * d16 + i));
                        const int to = (n * tokens + t0 + r) * arg.merge.y_ld + h * d + i;
                        if (d - i >= 16)
                            STORE16(v, y, to);
                        else
                            for (int k = 0; k < d - i; k++) STORE(((const float *)&v)[k], y, to + k);
                    }
                }
        }
    }
    work_end(&work, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
image_merge(__global T *restrict y, __global const float *restrict part, __global const float *restrict w,
            __global const float *restrict b, __global const int *limit, cpu_image_merge_args arg,
            __global const int *ways, __global int *queue) {
    image_merge_group(y, part, w, b, limit, arg, ways, queue, THIS_GROUP);
}
