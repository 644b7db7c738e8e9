/* Attention between a few tokens and an image whose projections have moved to the tokens (variants/absorbed.h), for CPUs:
 * what passes over the image; cpu/two_way_tokens makes what it takes of the tokens and reads what it gives them. One
 * work-item per group, needs cpu/tile, cpu/two_way_columns.
 *
 * -D K: channels of the image, a multiple of 64; those of cpu/two_way_columns, SUB a multiple of 12. */
#define KV (K / 16)
#define XV (KV + 1) /* vectors from one image row to the next in private memory: different cache sets */

/* Rows of a tile, whose sums lie in registers. */
#ifdef SIMD16
#define ROWS 12
#else
#define ROWS TILE_ROWS
#endif

/* Rows `from` to the end of a tile at x, `ldx` apart, of which `count` exist; further ones are the last again. NEXT:
 * rows of the image, xt = x + shift, xp = xt + position; those of xt are ldt vectors apart. The ones behind them are
 * asked for. LAST: rows u that an update has made, xt = their norms {gamma, beta} [2][K], which go to y as well, u = xt
 * + position. What begins a row, and a vector of it. */
#define NEXT_ARGS                                                                                                      \
    float16 *xt, int ldt, float16 *xp, __global const T *x, __global const T *p, int ldx, int ldp, int from,           \
        int count, __global const float *shift
#define NEXT_ALL xt, ldt, xp, x, p, ldx, ldp, from, count, shift
#define NEXT_ROW                                                                                                       \
    const int at = min(r, count - 1);                                                                                  \
    __global const T *xr = x + at * ldx, *pr = p + at * ldp;                                                           \
    float16 *to = xt + r * ldt, *sum = xp + r * KV
#define NEXT_VECTOR(i)                                                                                                 \
    {                                                                                                                  \
        const float16 v = LOAD16(xr, (i)*16) + vload16(i, shift);                                                      \
        sum[i] = v + LOAD16(pr, (i)*16);                                                                               \
        to[i] = v;                                                                                                     \
        PREFETCH_L2(xr + ROWS * ldx + (i)*16);                                                                         \
        PREFETCH_L2(pr + ROWS * ldp + (i)*16);                                                                         \
    }
#define LAST_ARGS                                                                                                      \
    float16 *u, const float *stats, float16 *xt, __global T *y, __global const T *p, int ldp, int from, int count,     \
        __global const float *norm
#define LAST_ALL u, stats, xt, y, p, ldp, from, count, norm
#define LAST_ROW                                                                                                       \
    const int at = min(r, count - 1);                                                                                  \
    __global T *yr = y + at * K;                                                                                       \
    __global const T *pr = p + at * ldp;                                                                               \
    float16 *to = xt + r * XV, *sum = u + r * KV;                                                                      \
    const float16 mean = (float16)(stats[r]), scale = (float16)(stats[ROWS + r])
#define LAST_VECTOR(i)                                                                                                 \
    {                                                                                                                  \
        const float16 d = (sum[i] - mean) * scale, v = fma(d, vload16(i, norm), vload16(i, norm + K));                 \
        to[i] = v;                                                                                                     \
        sum[i] = v + LOAD16(pr, (i)*16);                                                                               \
        STORE16(v, yr, (i)*16);                                                                                        \
    }

NOINLINE void load_rows(NEXT_ARGS) {
    for (int r = from; r < ROWS; r++) {
        NEXT_ROW;
        UNROLL for (int i = 0; i < KV; i++) {
            NEXT_VECTOR(i)
        }
    }
}
NOINLINE void norm_image_rows(LAST_ARGS) {
    for (int r = from; r < ROWS; r++) {
        LAST_ROW;
        UNROLL for (int i = 0; i < KV; i++) {
            LAST_VECTOR(i)
        }
    }
}

/* A tile's rows: means, then 1 / sqrt(variance + eps). All rows' means come first: a row's are a long chain. */
NOINLINE void row_stats(float *stats, const float16 *x, float eps) {
    const float16 *v = x;
    for (int r = 0; r < ROWS; r++, v += KV) {
        float16 sum[4];
        UNROLL for (int i = 0; i < 4; i++) sum[i] = v[i];
        UNROLL for (int i = 4; i < KV; i++) sum[i % 4] += v[i];
        stats[r] = sum16((sum[0] + sum[1]) + (sum[2] + sum[3])) / K;
    }
    v = x;
    for (int r = 0; r < ROWS; r++, v += KV) {
        const float16 mean = (float16)(stats[r]);
        float16 square[4];
        UNROLL for (int i = 0; i < 4; i++) square[i] = (v[i] - mean) * (v[i] - mean);
        UNROLL for (int i = 4; i < KV; i++) {
            const float16 d = v[i] - mean;
            square[i % 4] = fma(d, d, square[i % 4]);
        }
        stats[ROWS + r] = 1.0f / sqrt(sum16((square[0] + square[1]) + (square[2] + square[3])) / K + eps);
    }
}

/* s[r] = xp[r] . columns + their constants, for a tile's rows; the rows of s are CP floats. Prepares other rows
 * meanwhile, a vector with every 24 steps of a sum: by itself, or all at once, that takes three times what it adds to
 * the products, since rows come from the third-level cache and go there. */
#ifdef SIMD16
/* A tile of 12 rows by 2 vectors: with 6 by 4, columns and values would come twice as often from the second-level
 * cache, which has enough to do with rows. */
#define EACH12(F)   EACH8(F) F(8) F(9) F(10) F(11)
#define EACH_ROW(F) EACH12(F)
#define MAC2(r)                                                                                                        \
    {                                                                                                                  \
        const float16 v = (float16)(a[(r)*lda]);                                                                       \
        p##r = fma(v, b0, p##r);                                                                                       \
        q##r = fma(v, b1, q##r);                                                                                       \
    }
#define STEP2                                                                                                          \
    {                                                                                                                  \
        const float16 b0 = vload16(0, b), b1 = vload16(1, b);                                                          \
        EACH_ROW(MAC2)                                                                                                 \
        a++, b += ldb;                                                                                                 \
    }
#define SCORE_OPEN(r) float16 p##r = k0, q##r = k1;
#define SCORE_CLOSE(r)                                                                                                 \
    s[(r) * (CP / 16)] = p##r;                                                                                         \
    s[(r) * (CP / 16) + 1] = q##r;
#define SCORES32(NAME, BESIDE)                                                                                         \
    NOINLINE void NAME(float16 *s, const float *a, __global const float *b, BESIDE##_ARGS) {                           \
        enum { lda = K, ldb = CP };                                                                                    \
        const float16 k0 = vload16(0, b + K * CP), k1 = vload16(1, b + K * CP);                                        \
        int k = K;                                                                                                     \
        EACH_ROW(SCORE_OPEN)                                                                                           \
        for (int r = from; r < min(from + 8, ROWS); r++) {                                                             \
            BESIDE##_ROW;                                                                                              \
            for (int i = 0; i < KV; i++, k -= 2) {                                                                     \
                STEP2;                                                                                                 \
                STEP2;                                                                                                 \
                BESIDE##_VECTOR(i);                                                                                    \
            }                                                                                                          \
        }                                                                                                              \
        for (; k > 0; k -= 4) {                                                                                        \
            STEP2;                                                                                                     \
            STEP2;                                                                                                     \
            STEP2;                                                                                                     \
            STEP2;                                                                                                     \
        }                                                                                                              \
        EACH_ROW(SCORE_CLOSE)                                                                                          \
    }
SCORES32(scores32, NEXT)
SCORES32(scores32_norm, LAST)

/* What 32 columns leave: 8 by even and odd channels are a vector, so that a pair of channels is what is loaded for all
 * lanes. pairs: [K / 2][16 columns][2], if there are 16, then [K / 2][8][2]. */
#define PAIR_ROOM        (K * 24)
#define PAIRS_LOW(a, b)  LANES(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define PAIRS_HIGH(a, b) LANES(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define PAIRS_EVEN(a, b) LANES(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define PAIRS_ODD(a, b)  LANES(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
NOINLINE void pair_columns(float16 *pairs, __global const float *b, int columns) {
    b += columns / 32 * 32;
    for (int k = 0; (columns & 16) && k < K * CP; k += 2 * CP, pairs += 2) {
        const float16 even = vload16(0, b + k), odd = vload16(0, b + k + CP);
        pairs[0] = PAIRS_LOW(even, odd);
        pairs[1] = PAIRS_HIGH(even, odd);
    }
    b += columns & 16;
    for (int k = 0; (columns & 8) && k < K * CP; k += 2 * CP, pairs++) {
        const float16 even = vload16(0, b + k), odd = vload16(0, b + k + CP);
        pairs[0] = PAIRS_LOW(even, odd);
    }
}
#define PAIR_OF(r)                                                                                                     \
    const float2 e = vload2(0, a + (r)*K);                                                                             \
    const float16 v = (float16)(e, e, e, e, e, e, e, e);
#define PAIR_OPEN2(r) float16 p##r = (float16)(0.0f), q##r = p##r;
#define PAIR_MAC2(r)                                                                                                   \
    {                                                                                                                  \
        PAIR_OF(r)                                                                                                     \
        p##r = fma(v, b0, p##r);                                                                                       \
        q##r = fma(v, b1, q##r);                                                                                       \
    }
#define PAIR_CLOSE2(r) s[(r) * (CP / 16)] = PAIRS_EVEN(p##r, q##r) + PAIRS_ODD(p##r, q##r) + k0;
#define PAIR_STEP                                                                                                      \
    {                                                                                                                  \
        const float16 b0 = pairs[0], b1 = pairs[1];                                                                    \
        EACH_ROW(PAIR_MAC2)                                                                                            \
        a += 2, pairs += 2;                                                                                            \
    }
#define SCORES16(NAME, BESIDE)                                                                                         \
    NOINLINE void NAME(float16 *s, const float *a, const float16 *pairs, const float16 k0, BESIDE##_ARGS) {            \
        int k = K;                                                                                                     \
        EACH_ROW(PAIR_OPEN2)                                                                                           \
        for (int r = from; r < min(from + 4, ROWS); r++) {                                                             \
            BESIDE##_ROW;                                                                                              \
            for (int i = 0; i < KV; i++, k -= 4) {                                                                     \
                PAIR_STEP;                                                                                             \
                PAIR_STEP;                                                                                             \
                BESIDE##_VECTOR(i);                                                                                    \
            }                                                                                                          \
        }                                                                                                              \
        for (; k > 0; k -= 4) {                                                                                        \
            PAIR_STEP PAIR_STEP                                                                                        \
        }                                                                                                              \
        EACH_ROW(PAIR_CLOSE2)                                                                                          \
    }
SCORES16(scores16, NEXT)
SCORES16(scores16_norm, LAST)
#define PAIR_OPEN1(r) float16 p##r = (float16)(0.0f);
#define PAIR_MAC1(r)                                                                                                   \
    {                                                                                                                  \
        PAIR_OF(r)                                                                                                     \
        p##r = fma(v, b0, p##r);                                                                                       \
    }
#define PAIR_CLOSE1(r) s[(r) * (CP / 16)] = (float16)(p##r.even + p##r.odd + k0.lo, k0.hi);
NOINLINE void scores8(float16 *s, const float *a, const float16 *pairs, const float16 k0) {
    EACH_ROW(PAIR_OPEN1)
    for (int k = 0; k < K; k += 2, a += 2, pairs++) {
        const float16 b0 = pairs[0];
        EACH_ROW(PAIR_MAC1)
    }
    EACH_ROW(PAIR_CLOSE1)
}
/* The same for all columns. */
#define ALL_SCORES(NAME, BESIDE, WIDE, NARROW, REST)                                                                   \
    static inline void NAME(float16 *s, const float *a, __global const float *b, const float16 *pairs, int columns,    \
                            BESIDE##_ARGS) {                                                                           \
        for (; columns >= 32; columns -= 32, s += 2, b += 32, from = min(from + 8, ROWS)) WIDE(s, a, b, BESIDE##_ALL); \
        if (columns & 16) {                                                                                            \
            NARROW(s++, a, pairs, vload16(0, b + K * CP), BESIDE##_ALL);                                               \
            from = min(from + 4, ROWS);                                                                                \
            pairs += K, b += 16;                                                                                       \
        }                                                                                                              \
        if (columns & 8) scores8(s, a, pairs, vload16(0, b + K * CP));                                                 \
        if (from < ROWS) REST(BESIDE##_ALL);                                                                           \
    }
ALL_SCORES(scores, NEXT, scores32, scores16, load_rows)
ALL_SCORES(scores_norm, LAST, scores32_norm, scores16_norm, norm_image_rows)
#else
#define PAIR_ROOM 16
static inline void pair_columns(float16 *pairs, __global const float *b, int columns) {}
static inline void scores(float16 *s, const float *a, __global const float *b, const float16 *pairs, int columns,
                          NEXT_ARGS) {
    if (from < ROWS) load_rows(NEXT_ALL);
    for (int j = 0; j < columns; j += 16, b += 16, s++) {
        for (int i = 0; from < ROWS && i < K / 8; i++) {
            PREFETCH(x + ROWS * ldx + (j * (K / 128) + i) * (64 / (int)sizeof(T)));
            PREFETCH(p + ROWS * ldp + (j * (K / 128) + i) * (64 / (int)sizeof(T)));
        }
        for (int r = 0; r < ROWS; r++) s[r * (CP / 16)] = vload16(0, b + K * CP);
        tile6x1(s, CP / 16, s, CP / 16, a, K, b, CP, K);
    }
}
static inline void scores_norm(float16 *s, const float *a, __global const float *b, const float16 *pairs, int columns,
                               LAST_ARGS) {
    if (from < ROWS) norm_image_rows(LAST_ALL);
    scores(s, a, b, pairs, columns, 0, 0, 0, 0, 0, 0, 0, ROWS, 0, 0);
}
#endif

/* to[r] = x[r] + add + weights a[r] of `k` values b [k][64], for 32 channels of a tile's rows at x, of which `count`
 * exist. Then xp becomes the same channels of the rows that follow, as in load_rows, of which `coming` exist: none, if
 * zero. Asks for the rows behind those. */
#define FOLLOWING_VECTOR(i)                                                                                            \
    xp[i] = LOAD16(next, (i)*16) + vload16(i, shift) + LOAD16(position, (i)*16);                                       \
    PREFETCH_L2(next + ROWS * ldx + (i)*16);                                                                           \
    PREFETCH_L2(position + ROWS * ldp + (i)*16);
#define FOLLOWING_ROW                                                                                                  \
    FOLLOWING_VECTOR(0)                                                                                                \
    FOLLOWING_VECTOR(1)                                                                                                \
    xp += KV;                                                                                                          \
    if (r + 1 < coming) next += ldx, position += ldp;
#ifdef SIMD16
#define VALUE_OPEN(r)                                                                                                  \
    float16 p##r = LOAD16(x, 0) + add[0], q##r = LOAD16(x, 16) + add[1];                                               \
    if (r + 1 < count) x += ldx;
#define VALUE_CLOSE(r) to[(r)*KV] = p##r, to[(r)*KV + 1] = q##r;
NOINLINE void values_tile(float16 *to, const float *a, __global const float *b, int k, __global const T *x, int ldx,
                          int count, const float16 *add, float16 *xp, __global const T *next,
                          __global const T *position, int ldp, int coming, __global const float *shift) {
    enum { lda = CP, ldb = 64 };
    EACH_ROW(VALUE_OPEN)
    for (int r = 0; coming && r < ROWS; r++) {
        if (k > 0) { /* seven tokens have 48 steps, four for each row */
            STEP2;
            STEP2;
            STEP2;
            STEP2;
            k -= 4;
        }
        FOLLOWING_ROW
    }
    for (; k > 0; k -= 4) {
        STEP2;
        STEP2;
        STEP2;
        STEP2;
    }
    EACH_ROW(VALUE_CLOSE)
}
#else
static inline void values_tile(float16 *to, const float *a, __global const float *b, int k, __global const T *x,
                               int ldx, int count, const float16 *add, float16 *xp, __global const T *next,
                               __global const T *position, int ldp, int coming, __global const float *shift) {
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < 2; j++) to[r * KV + j] = LOAD16(x, min(r, count - 1) * ldx + j * 16) + add[j];
    for (int j = 0; j < 2; j++) tile6x1(to + j, KV, to + j, KV, a, CP, b + j * 16, 64, k);
    for (int r = 0; coming && r < ROWS; r++) {
        FOLLOWING_ROW
    }
}
#endif

/* Adds weights^T x to sums of 12 or 8 columns by 2 vectors, scaled by f before or, if `first`, zeros: SUB rows. */
#ifdef SIMD16
#define SUM_BEGIN(i) float16 p##i = (float16)(0.0f), q##i = p##i;
#define SUM_OPEN(i)                                                                                                    \
    p##i = vload16(0, sums + i * K) * (float16)(f[i]);                                                                 \
    q##i = vload16(1, sums + i * K) * (float16)(f[i]);
#define SUM_CLOSE(i)                                                                                                   \
    vstore16(p##i, 0, sums + i * K);                                                                                   \
    vstore16(q##i, 1, sums + i * K);
#define SUM_STEP(i)                                                                                                    \
    {                                                                                                                  \
        const float16 v = (float16)(w[i]);                                                                             \
        p##i = fma(v, x0, p##i);                                                                                       \
        q##i = fma(v, x1, q##i);                                                                                       \
    }
#define WEIGHTED_SUMS(NAME, EACH)                                                                                      \
    NOINLINE void NAME(__global float *sums, const float *f, const float *w, const float16 *x, int first) {            \
        EACH(SUM_BEGIN)                                                                                                \
        if (!first) {                                                                                                  \
            EACH(SUM_OPEN)                                                                                             \
        }                                                                                                              \
        for (int r = 0; r < SUB; r++, w += CP, x += XV) {                                                              \
            const float16 x0 = x[0], x1 = x[1];                                                                        \
            EACH(SUM_STEP)                                                                                             \
        }                                                                                                              \
        EACH(SUM_CLOSE)                                                                                                \
    }
WEIGHTED_SUMS(weighted_sums12, EACH12)
WEIGHTED_SUMS(weighted_sums8, EACH8)
#else /* 4 columns by a vector at a time: 8 registers of 8 floats */
#define EACH4(F)     F(0) F(1) F(2) F(3)
#define SUM_BEGIN(i) float16 p##i = (float16)(0.0f);
#define SUM_OPEN(i)  p##i = vload16(0, sums + i * K) * (float16)(f[i]);
#define SUM_CLOSE(i) vstore16(p##i, 0, sums + i * K);
#define SUM_STEP(i)  p##i = fma((float16)(w[i]), x0, p##i);
NOINLINE void weighted_quad(__global float *sums, const float *f, const float *w, const float16 *x, int first) {
    EACH4(SUM_BEGIN)
    if (!first) {
        EACH4(SUM_OPEN)
    }
    for (int r = 0; r < SUB; r++, w += CP, x += XV) {
        const float16 x0 = x[0];
        EACH4(SUM_STEP)
    }
    EACH4(SUM_CLOSE)
}
static inline void weighted_sums8(__global float *sums, const float *f, const float *w, const float16 *x, int first) {
    for (int i = 0; i < 4; i++)
        weighted_quad(sums + i / 2 * 4 * K + i % 2 * 16, f + i / 2 * 4, w + i / 2 * 4, x + i % 2, first);
}
#endif

/* Takes SUB rows of weights and of the image to sums [columns][K]. */
static inline void sum_rows(__global float *sums, const float16 *f, const float16 *s, const float16 *x, int columns,
                            int first) {
    for (int v = 0; v < K; v += 32) {
        int c = 0;
#ifdef SIMD16
        for (; c < columns / 24 * 24; c += 12) /* the rest is eights */
            weighted_sums12(sums + c * K + v, (const float *)f + c, (const float *)s + c, x + v / 16, first);
#endif
        for (; c < columns; c += 8)
            weighted_sums8(sums + c * K + v, (const float *)f + c, (const float *)s + c, x + v / 16, first);
    }
}

/* What `rows` rows of s and of the image x add to what a group reads, with zeros behind them. */
NOINLINE void read_rows(__global float *part, float16 *top, float16 *total, float16 *s, float16 *x, int rows,
                        int columns, int first) {
    float16 f[CP / 16];
    for (int i = (rows + ROWS - 1) / ROWS * ROWS * XV; i < SUB * XV; i++)
        x[i] = (float16)(0.0f); /* weights there are zeros, but zero times garbage may be NaN */
    weigh_rows(top, total, f, s, rows, (columns + 15) / 16);
    sum_rows(part + 2 * CP, f, s, x, columns, first);
}

/* Group (i, n): image rows [i * group_rows, ..) of prompt n. x [items][rows][K] (item map[n], or n), plus `shift` [K].
 * With an update first x = LN(x + softmax over tokens((x + p) keys) values + bias), stored to x_out. Then the softmax
 * over this group's rows of (x + p) queries, and x weighted by it: part [n][group]{m [CP], sum [CP], sums
 * [read_columns][K]}. Where keys and values are relative to the last token, that one scores zero, and its own values
 * count whole. */
NOINLINE void image_step_group(__global T *restrict x_out, __global float *restrict part, __global const T *restrict x,
                               __global const T *restrict position, __global const int *restrict map,
                               __global const float *restrict shift, __global const float *restrict keys,
                               __global const float *restrict values, __global const float *restrict norm,
                               __global const float *restrict queries, __global const int *restrict ways,
                               __global const int *restrict limit, cpu_image_step_args arg, const int4 group) {
    const int n = group.y, columns = arg.update_columns, first = group.x * arg.group_rows;
    const int read = arg.read_columns;
    if (n >= *limit || skipped(ways, n, arg.wanted_way)) return;
    const image_side_args image = arg.image;
    const bool relative = arg.from_last, update = arg.with_update;
    const int last = min(image.length, first + arg.group_rows), item = image.mapped ? map[n] : n;
    const int x_ld = image.x_ld, position_ld = image.position_ld;
    const int depth = relative ? columns - HEADS : columns, vectors = (depth + 15) / 16, reads = (read + 15) / 16;
    const float none = relative ? 0.0f : LOWEST;
    float16 xs[SUB * XV], xn[ROWS * XV], s[SUB * CP / 16], xps[2 * ROWS * KV], a[ROWS * CP / 16];
    float16 key_pairs[PAIR_ROOM / 16], query_pairs[PAIR_ROOM / 16];
    float16 top[CP / 16], total[CP / 16], add[KV];
    float stats[2 * ROWS];
    for (int i = 0; i < reads; i++) {
        top[i] = (float16)(LOWEST);
        total[i] = (float16)(0.0f);
    }
    keys += (size_t)n * (K + 1) * CP;
    values += (size_t)n * columns * K;
    queries += (size_t)n * (K + 1) * CP;
    for (int i = 0; update && i < KV; i++) {
        add[i] = vload16(i, shift) + vload16(i, norm);
        for (int c = depth; c < columns; c++) add[i] += vload16(0, values + i / 4 * 64 * columns + c * 64 + i % 4 * 16);
    }
    if (update) pair_columns(key_pairs, keys, depth);
    pair_columns(query_pairs, queries, read);
    part += ((size_t)n * arg.groups + group.x) * CP * (K + 2);
    x += (size_t)item * image.length * x_ld + image.x_c0;
    position += image.position_c0;
    load_rows(xn, XV, xps, x + (size_t)first * x_ld, position + (size_t)first * position_ld, x_ld, position_ld, 0,
              min(ROWS, last - first), shift);
    /* With an update, rows are normed and read while those that follow are updated. */
    const int late = update ? ROWS : 0;
    int turn = 0; /* half of xps that has the rows at hand */
    for (int row = first; row < last + late; row += ROWS, turn ^= 1) {
        float16 *xp = xps + turn * ROWS * KV, *other = xps + (turn ^ 1) * ROWS * KV;
        const int next = row + ROWS, coming = clamp(last - next, 0, ROWS);
        __global const T *next_x = x + (size_t)next * x_ld, *next_p = position + (size_t)next * position_ld;
        const int from = max(first, row - late), t = (from - first) % SUB; /* rows to be read */
        float16 *xt = xs + t * XV, *st = s + t * (CP / 16);
        if (update) {
            const int count = clamp(last - row, 0, ROWS), normed = row > first ? min(ROWS, last - from) : 0;
            __global T *to = x_out + ((size_t)n * image.length + from) * K;
            __global const T *p = position + (size_t)from * position_ld;
            if (count)
                scores_norm(a, (const float *)xp, keys, key_pairs, depth, other, stats, xt, to, p, position_ld,
                            normed ? 0 : ROWS, normed, norm + K);
            else
                norm_image_rows(other, stats, xt, to, p, position_ld, 0, normed, norm + K);
            if (normed) scores(st, (const float *)other, queries, query_pairs, read, 0, 0, 0, 0, 0, 0, 0, ROWS, 0, 0);
            if (count) {
                for (int r = 0; r < ROWS; r += TILE_ROWS) softmax_tokens(a + r * (CP / 16), vectors, none);
                for (int j = 0; j < K; j += 32)
                    values_tile(xp + j / 16, (const float *)a, values + j / 64 * 64 * columns + j % 64, depth,
                                x + (size_t)row * x_ld + j, x_ld, count, add + j / 16, other + j / 16, next_x + j,
                                next_p + j, position_ld, coming, shift + j);
                row_stats(stats, xp, arg.eps);
            }
            if (!normed) continue;
        } else {
            for (int i = 0; !t && i < ROWS * XV; i++) xt[i] = xn[i];
            scores(st, (const float *)xp, queries, query_pairs, read, t + ROWS < SUB ? xt + ROWS * XV : xn, XV, other,
                   next_x, next_p, x_ld, position_ld, coming ? 0 : ROWS, coming, shift);
        }
        if (t + ROWS == SUB || from + ROWS >= last)
            read_rows(part, top, total, s, xs, min(SUB, last - from + t), read, from - t == first);
    }
    for (int i = 0; i < reads; i++) {
        vstore16(top[i], i, part);
        vstore16(total[i], i, part + CP);
    }
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
image_step(__global T *restrict x_out, __global float *restrict part, __global const T *restrict x,
           __global const T *restrict position, __global const int *restrict map, __global const float *restrict shift,
           __global const float *restrict keys, __global const float *restrict values,
           __global const float *restrict norm, __global const float *restrict queries,
           __global const int *restrict ways, __global const int *restrict limit, cpu_image_step_args arg) {
    image_step_group(x_out, part, x, position, map, shift, keys, values, norm, queries, ways, limit, arg,
                     THIS_GROUP);
}
