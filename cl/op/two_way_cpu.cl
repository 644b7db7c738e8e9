/* Attention between a few tokens and an image whose projections have moved to the tokens (src/ops/two_way.h), for CPUs:
 * what passes over the image; op/two_way_tokens_cpu makes what it takes of the tokens and reads what it gives them. One
 * work-item per group, needs isa/tile, isa/columns.
 *
 * -D K: channels of the image, a multiple of 64; those of isa/columns. */
#define KV (K / 16)
#define XV (KV + 1) /* vectors from one image row to the next in private memory: different cache sets */

/* A row of the image: xt = x + shift, xp = xt + position; a vector of it. */
#define LOAD_VECTOR(i)                                                                                                 \
    {                                                                                                                  \
        const float16 v = LOAD16(x, (i)*16) + vload16(i, shift);                                                       \
        xp[i] = v + LOAD16(p, (i)*16);                                                                                 \
        xt[i] = v;                                                                                                     \
    }
/* A row u that an update has made: xt = its norm {gamma, beta} [2][K], which goes to y as well, u = xt + position; a
 * vector of it. */
#define NORM_VECTOR(i)                                                                                                 \
    {                                                                                                                  \
        const float16 d = (u[i] - mean) * scale, v = fma(d, vload16(i, norm), vload16(i, norm + K));                   \
        xt[i] = v;                                                                                                     \
        u[i] = v + LOAD16(p, (i)*16);                                                                                  \
        STORE16(v, y, (i)*16);                                                                                         \
    }

/* Six rows at x, `ldx` apart, of which `count` exist; those of xt are ldt vectors apart. */
NOINLINE void load_rows(float16 *xt, int ldt, float16 *xp, __global const T *x, __global const T *p, int ldx, int ldp,
                        int count, __global const float *shift) {
    for (int r = 0; r < TILE_ROWS; r++, xt += ldt, xp += KV) {
        UNROLL for (int i = 0; i < KV; i++) LOAD_VECTOR(i) if (r + 1 < count) x += ldx, p += ldp;
    }
}

/* Six rows of x: means, then 1 / sqrt(variance + eps). All rows' means come first: a row's are a long chain. */
NOINLINE void row_stats(float *stats, const float16 *x, float eps) {
    const float16 *v = x;
    for (int r = 0; r < TILE_ROWS; r++, v += KV) {
        float16 sum[4];
        UNROLL for (int i = 0; i < 4; i++) sum[i] = v[i];
        UNROLL for (int i = 4; i < KV; i++) sum[i % 4] += v[i];
        stats[r] = sum16((sum[0] + sum[1]) + (sum[2] + sum[3])) / K;
    }
    v = x;
    for (int r = 0; r < TILE_ROWS; r++, v += KV) {
        const float16 mean = (float16)(stats[r]);
        float16 square[4];
        UNROLL for (int i = 0; i < 4; i++) square[i] = (v[i] - mean) * (v[i] - mean);
        UNROLL for (int i = 4; i < KV; i++) {
            const float16 d = v[i] - mean;
            square[i % 4] = fma(d, d, square[i % 4]);
        }
        stats[TILE_ROWS + r] = 1.0f / sqrt(sum16((square[0] + square[1]) + (square[2] + square[3])) / K + eps);
    }
}
/* What an update has made of six rows, of which `count` exist, becomes their norm, and the next rows' input. */
NOINLINE void norm_image_rows(float16 *u, const float *stats, float16 *xt, __global T *y, __global const T *p, int ldp,
                              int count, __global const float *norm) {
    for (int r = 0; r < TILE_ROWS; r++, u += KV, xt += XV) {
        const float16 mean = (float16)(stats[r]), scale = (float16)(stats[TILE_ROWS + r]);
        UNROLL for (int i = 0; i < KV; i++) NORM_VECTOR(i) if (r + 1 < count) y += K,
            p += ldp; /* rows that do not exist are the last one again */
    }
}

/* s[r] = xp[r] . columns + their constants, for 6 rows and up to four vectors of columns; the rows of s are CP floats.
 * With `count` above zero prepares other rows meanwhile: by itself that takes three times what it adds to the products.
 * NEXT loads those that follow, as load_rows does, and asks for the ones behind them; LAST norms those before, as
 * norm_image_rows does. */
#define NEXT_ARGS                                                                                                      \
    float16 *xt, int ldt, float16 *xp, __global const T *x, __global const T *p, int ldx, int ldp, int count,          \
        __global const float *shift
#define LAST_ARGS                                                                                                      \
    float16 *u, const float *stats, float16 *xt, __global T *y, __global const T *p, int ldp, int count,               \
        __global const float *norm
#ifdef SIMD16
#define ROWS6(F)          F(0) F(1) F(2) F(3) F(4) F(5)
#define SCORE_OPEN(r, j)  float16 c##r##_##j = k##j;
#define SCORE_CLOSE(r, j) s[r * (CP / 16) + j] = c##r##_##j;
#define NEXT_ROW
#define NEXT_VECTOR(i)                                                                                                 \
    LOAD_VECTOR(i)                                                                                                     \
    PREFETCH_L2(x + TILE_ROWS * ldx + i * 16);                                                                         \
    PREFETCH_L2(p + TILE_ROWS * ldp + i * 16);
#define NEXT_END                                                                                                       \
    xt += ldt, xp += KV;                                                                                               \
    if (r + 1 < count) x += ldx, p += ldp;
#define LAST_ROW const float16 mean = (float16)(stats[r]), scale = (float16)(stats[TILE_ROWS + r]);
#define LAST_VECTOR(i)                                                                                                 \
    NORM_VECTOR(i)                                                                                                     \
    PREFETCH_L2(y + TILE_ROWS * K + i * 16);
#define LAST_END                                                                                                       \
    u += KV, xt += XV;                                                                                                 \
    if (r + 1 < count) y += K, p += ldp;
#define SCORE_STEPS(STEP, BESIDE)                                                                                      \
    int k = K;                                                                                                         \
    for (int r = 0; count && r < TILE_ROWS; r++) {                                                                     \
        BESIDE##_ROW for (int i = 0; i < KV; i++, k -= 2, a += 2, b += 2 * CP){STEP BESIDE##_VECTOR(i)} BESIDE##_END   \
    }                                                                                                                  \
    for (; k > 0; k -= 2, a += 2, b += 2 * CP) {                                                                       \
        STEP                                                                                                           \
    }
#define SCORES4(NAME, BESIDE)                                                                                          \
    NOINLINE void NAME(float16 *s, const float *a, __global const float *b, BESIDE##_ARGS) {                           \
        enum { lda = K, ldb = CP };                                                                                    \
        const float16 k0 = vload16(0, b + K * CP), k1 = vload16(1, b + K * CP), k2 = vload16(2, b + K * CP);           \
        const float16 k3 = vload16(3, b + K * CP);                                                                     \
        TILE_EACH(SCORE_OPEN)                                                                                          \
        SCORE_STEPS(TILE_STEP(0) TILE_STEP(1), BESIDE)                                                                 \
        TILE_EACH(SCORE_CLOSE)                                                                                         \
    }
SCORES4(scores4, NEXT)
SCORES4(scores4_norm, LAST)
#define SCORE_COLS3(F, r) F(r, 0) F(r, 1) F(r, 2)
#define SCORE_OPEN3(r)    SCORE_COLS3(SCORE_OPEN, r)
#define SCORE_CLOSE3(r)   SCORE_COLS3(SCORE_CLOSE, r)
#define SCORE_FIRST3(r)                                                                                                \
    {                                                                                                                  \
        const float16 v = (float16)(a[(r)*K]);                                                                         \
        SCORE_COLS3(TILE_MAC, r)                                                                                       \
    }
#define SCORE_SECOND3(r)                                                                                               \
    {                                                                                                                  \
        const float16 v = (float16)(a[(r)*K + 1]);                                                                     \
        SCORE_COLS3(TILE_MAC, r)                                                                                       \
    }
#define SCORE_STEP3(u, ROW)                                                                                            \
    {                                                                                                                  \
        const float16 b0 = vload16(0, b + u * CP), b1 = vload16(1, b + u * CP), b2 = vload16(2, b + u * CP);           \
        ROWS6(ROW)                                                                                                     \
    }
#define SCORES3(NAME, BESIDE)                                                                                          \
    NOINLINE void NAME(float16 *s, const float *a, __global const float *b, BESIDE##_ARGS) {                           \
        const float16 k0 = vload16(0, b + K * CP), k1 = vload16(1, b + K * CP), k2 = vload16(2, b + K * CP);           \
        ROWS6(SCORE_OPEN3)                                                                                             \
        SCORE_STEPS(SCORE_STEP3(0, SCORE_FIRST3) SCORE_STEP3(1, SCORE_SECOND3), BESIDE)                                \
        ROWS6(SCORE_CLOSE3)                                                                                            \
    }
SCORES3(scores3, NEXT)
SCORES3(scores3_norm, LAST)
/* Two sums each, of even and of odd channels: six alone would wait for themselves. */
#define SCORE_OPEN1(r)   float16 c##r = k0, d##r = (float16)(0.0f);
#define SCORE_CLOSE1(r)  s[r * (CP / 16)] = c##r + d##r;
#define SCORE_FIRST1(r)  c##r = fma((float16)(a[(r)*K]), b0, c##r);
#define SCORE_SECOND1(r) d##r = fma((float16)(a[(r)*K + 1]), b1, d##r);
#define SCORE_STEPS1                                                                                                   \
    const float16 b0 = vload16(0, b), b1 = vload16(0, b + CP);                                                         \
    ROWS6(SCORE_FIRST1)                                                                                                \
    ROWS6(SCORE_SECOND1)
NOINLINE void scores1(float16 *s, const float *a, __global const float *b, NEXT_ARGS) {
    const float16 k0 = vload16(0, b + K * CP);
    ROWS6(SCORE_OPEN1)
    SCORE_STEPS(SCORE_STEPS1, NEXT)
    ROWS6(SCORE_CLOSE1)
}
/* The same for `columns` vectors of columns; other rows are prepared with the first of them. */
static inline void scores(float16 *s, const float *a, __global const float *b, int columns, NEXT_ARGS) {
    for (; columns > 0; s += 4, b += 64, columns -= 4, count = 0)
        if (columns > 3)
            scores4(s, a, b, xt, ldt, xp, x, p, ldx, ldp, count, shift);
        else if (columns > 1)
            scores3(s, a, b, xt, ldt, xp, x, p, ldx, ldp, count, shift);
        else
            scores1(s, a, b, xt, ldt, xp, x, p, ldx, ldp, count, shift);
}
static inline void scores_norm(float16 *s, const float *a, __global const float *b, int columns, LAST_ARGS) {
    for (; columns > 0; s += 4, b += 64, columns -= 4, count = 0)
        if (columns > 3)
            scores4_norm(s, a, b, u, stats, xt, y, p, ldp, count, norm);
        else
            scores3_norm(s, a, b, u, stats, xt, y, p, ldp, count, norm);
}
#else
static inline void scores(float16 *s, const float *a, __global const float *b, int columns, NEXT_ARGS) {
    if (count) load_rows(xt, ldt, xp, x, p, ldx, ldp, count, shift);
    for (int j = 0; j < columns; j++, b += 16, s++) {
        for (int i = 0; count && i < K / 8; i++) {
            PREFETCH(x + TILE_ROWS * ldx + (j * (K / 8) + i) * (64 / (int)sizeof(T)));
            PREFETCH(p + TILE_ROWS * ldp + (j * (K / 8) + i) * (64 / (int)sizeof(T)));
        }
        for (int r = 0; r < TILE_ROWS; r++) s[r * (CP / 16)] = vload16(0, b + K * CP);
        tile6x1(s, CP / 16, s, CP / 16, a, K, b, CP, K);
    }
}
static inline void scores_norm(float16 *s, const float *a, __global const float *b, int columns, LAST_ARGS) {
    if (count) norm_image_rows(u, stats, xt, y, p, ldp, count, norm);
    scores(s, a, b, columns, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}
#endif

/* to[r] = x[r] + add + weights a[r] of `k` values b [k][64], for 64 channels of six rows at x, of which `count` exist.
 * Then xp becomes the same channels of the rows that follow, as in load_rows, of which `coming` exist: none, if zero.
 * Asks for the rows behind those. */
#define FOLLOWING_VECTOR(i)                                                                                            \
    xp[i] = LOAD16(next, (i)*16) + vload16(i, shift) + LOAD16(p, (i)*16);                                              \
    PREFETCH_L2(next + TILE_ROWS * ldx + (i)*16);                                                                      \
    PREFETCH_L2(p + TILE_ROWS * ldp + (i)*16);
#define FOLLOWING_END                                                                                                  \
    xp += KV;                                                                                                          \
    if (r + 1 < coming) next += ldx, p += ldp;
#ifdef SIMD16
#define VALUE_ROW(r)      __global const T *x##r = x + (r < count ? r : count - 1) * ldx;
#define VALUE_OPEN(r, j)  float16 c##r##_##j = LOAD16(x##r, j * 16) + add[j];
#define VALUE_CLOSE(r, j) to[r * KV + j] = c##r##_##j;
NOINLINE void values_tile(float16 *to, const float *a, __global const float *b, int k, __global const T *x, int ldx,
                          int count, const float16 *add, float16 *xp, __global const T *next, __global const T *p,
                          int ldp, int coming, __global const float *shift) {
    enum { lda = CP, ldb = 64 };
    ROWS6(VALUE_ROW)
    TILE_EACH(VALUE_OPEN)
    for (int r = 0; coming && r < TILE_ROWS; r++) {
        for (int i = 0; i < 4; i++) {
            if (k > 0) { /* six tokens have as many steps as there are vectors */
                TILE_STEP(0)
                TILE_STEP(1)
                k -= 2, a += 2, b += 2 * ldb;
            }
            FOLLOWING_VECTOR(i)
        }
        FOLLOWING_END
    }
    for (; k > 0; k -= 2, a += 2, b += 2 * ldb) {
        TILE_STEP(0)
        TILE_STEP(1)
    }
    TILE_EACH(VALUE_CLOSE)
}
#else
static inline void values_tile(float16 *to, const float *a, __global const float *b, int k, __global const T *x,
                               int ldx, int count, const float16 *add, float16 *xp, __global const T *next,
                               __global const T *p, int ldp, int coming, __global const float *shift) {
    for (int r = 0; r < TILE_ROWS; r++)
        for (int j = 0; j < 4; j++) to[r * KV + j] = LOAD16(x, min(r, count - 1) * ldx + j * 16) + add[j];
    for (int j = 0; j < 4; j++) tile6x1(to + j, KV, to + j, KV, a, CP, b + j * 16, 64, k);
    for (int r = 0; coming && r < TILE_ROWS; r++) {
        for (int i = 0; i < 4; i++) {
            FOLLOWING_VECTOR(i)
        }
        FOLLOWING_END
    }
}
#endif

/* Adds weights^T x to sums of 12 or 8 columns by 2 vectors, scaled by f before or, if `first`, zeros: SUB rows. */
#ifdef SIMD16
#define EACH12(F)    EACH8(F) F(8) F(9) F(10) F(11)
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
    for (int i = (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS * XV; i < SUB * XV; i++)
        x[i] = (float16)(0.0f); /* weights there are zeros, but zero times garbage may be NaN */
    weigh_rows(top, total, f, s, rows, (columns + 15) / 16);
    sum_rows(part + 2 * CP, f, s, x, columns, first);
}

/* Group (i, n): image rows [i * sizes.s2, ..) of prompt n. x [items][rows][K] (item map[n], or n), plus `shift` [K].
 * With modes.x first x = LN(x + softmax over tokens((x + p) keys) values + bias), stored to x_out. Then the softmax
 * over this group's rows of (x + p) queries, and x weighted by it: part [n][group]{m [CP], sum [CP], sums
 * [read][K]}. sizes {rows, groups, rows per group, columns = 8 tokens of the update, read = 8 tokens of the queries};
 * lds {x ld, c0, p ld, c0}; modes {update, mapped, skipped(n), relative}: where keys and values are relative to the
 * last token, that one scores zero, and its own values count whole. */
NOINLINE void image_step_group(__global T *restrict x_out, __global float *restrict part, __global const T *restrict x,
                               __global const T *restrict position, __global const int *restrict map,
                               __global const float *restrict shift, __global const float *restrict keys,
                               __global const float *restrict values, __global const float *restrict norm,
                               __global const float *restrict queries, __global const int *restrict ways,
                               __global const int *restrict limit, int8 sizes, int4 lds, int4 modes, float eps,
                               const int4 group) {
    const int n = group.y, columns = sizes.s3, first = group.x * sizes.s2, read = sizes.s4;
    if (n >= *limit || skipped(ways, n, modes.z)) return;
    const bool relative = modes.w;
    const int last = min(sizes.s0, first + sizes.s2), item = modes.y ? map[n] : n;
    const int depth = relative ? columns - HEADS : columns, vectors = (depth + 15) / 16, reads = (read + 15) / 16;
    const float none = relative ? 0.0f : LOWEST;
    float16 xs[SUB * XV], xn[TILE_ROWS * XV], s[SUB * CP / 16], xps[2 * TILE_ROWS * KV], a[TILE_ROWS * CP / 16];
    float16 top[CP / 16], total[CP / 16], add[KV];
    float stats[2 * TILE_ROWS];
    for (int i = 0; i < reads; i++) {
        top[i] = (float16)(LOWEST);
        total[i] = (float16)(0.0f);
    }
    keys += (size_t)n * (K + 1) * CP;
    values += (size_t)n * columns * K;
    queries += (size_t)n * (K + 1) * CP;
    for (int i = 0; modes.x && i < KV; i++) {
        add[i] = vload16(i, shift) + vload16(i, norm);
        for (int c = depth; c < columns; c++) add[i] += vload16(0, values + i / 4 * 64 * columns + c * 64 + i % 4 * 16);
    }
    part += ((size_t)n * sizes.s1 + group.x) * CP * (K + 2);
    x += (size_t)item * sizes.s0 * lds.x + lds.y;
    position += lds.w;
    load_rows(xn, XV, xps, x + (size_t)first * lds.x, position + (size_t)first * lds.z, lds.x, lds.z,
              min(TILE_ROWS, last - first), shift);
    /* With an update, rows are normed and read while those that follow are updated. */
    const int late = modes.x ? TILE_ROWS : 0;
    int turn = 0; /* half of xps that has the rows at hand */
    for (int row = first; row < last + late; row += TILE_ROWS, turn ^= 1) {
        float16 *xp = xps + turn * TILE_ROWS * KV, *other = xps + (turn ^ 1) * TILE_ROWS * KV;
        const int next = row + TILE_ROWS, coming = clamp(last - next, 0, TILE_ROWS);
        __global const T *next_x = x + (size_t)next * lds.x, *next_p = position + (size_t)next * lds.z;
        const int from = max(first, row - late), t = (from - first) % SUB; /* rows to be read */
        float16 *xt = xs + t * XV, *st = s + t * (CP / 16);
        if (modes.x) {
            const int count = clamp(last - row, 0, TILE_ROWS), normed = row > first ? min(TILE_ROWS, last - from) : 0;
            __global T *to = x_out + ((size_t)n * sizes.s0 + from) * K;
            __global const T *p = position + (size_t)from * lds.z;
            if (count)
                scores_norm(a, (const float *)xp, keys, vectors, other, stats, xt, to, p, lds.z, normed, norm + K);
            else
                norm_image_rows(other, stats, xt, to, p, lds.z, normed, norm + K);
            if (normed) scores(st, (const float *)other, queries, reads, 0, 0, 0, 0, 0, 0, 0, 0, 0);
            if (count) {
                softmax_tokens(a, vectors, none);
                for (int j = 0; j < K; j += 64)
                    values_tile(xp + j / 16, (const float *)a, values + j * columns, depth, x + (size_t)row * lds.x + j,
                                lds.x, count, add + j / 16, other + j / 16, next_x + j, next_p + j, lds.z, coming,
                                shift + j);
                row_stats(stats, xp, eps);
            }
            if (!normed) continue;
        } else {
            for (int i = 0; !t && i < TILE_ROWS * XV; i++) xt[i] = xn[i];
            scores(st, (const float *)xp, queries, reads, t + TILE_ROWS < SUB ? xt + TILE_ROWS * XV : xn, XV, other,
                   next_x, next_p, lds.x, lds.z, coming, shift);
        }
        if (t + TILE_ROWS == SUB || from + TILE_ROWS >= last)
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
           __global const int *restrict ways, __global const int *restrict limit, int8 sizes, int4 lds, int4 modes,
           float eps) {
    image_step_group(x_out, part, x, position, map, shift, keys, values, norm, queries, ways, limit, sizes, lds, modes,
                     eps, THIS_GROUP);
}
