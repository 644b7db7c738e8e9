/* Attention between a few tokens and an image whose projections have moved to the tokens (src/ops/two_way.h), for CPUs:
 * what passes over the image; op/two_way_tokens_cpu makes what it takes of the tokens and reads what it gives them. One
 * work-item per group, needs isa/tile, isa/columns.
 *
 * -D K: channels of the image, a multiple of 64; those of isa/columns. */
#define KV    (K / 16)
#define XV    (KV + 1) /* vectors from one image row to the next in private memory: different cache sets */

/* s[r] = xp[r] . columns + their constants, for 6 rows and up to four vectors of columns; the rows of s are CP floats.
 * The next rows are at x and p. */
#ifdef SIMD16
#define LINE           (64 / sizeof(T))
#define ROWS6(F)       F(0) F(1) F(2) F(3) F(4) F(5)
#define SCORE_OPEN(r, j)  float16 c##r##_##j = k##j;
#define SCORE_CLOSE(r, j) s[r * (CP / 16) + j] = c##r##_##j;
NOINLINE void scores4(float16 *s, const float *a, __global const float *b, __global const T *x,
                      __global const T *p) {
    enum { lda = K, ldb = CP };
    const float16 k0 = vload16(0, b + K * CP), k1 = vload16(1, b + K * CP), k2 = vload16(2, b + K * CP);
    const float16 k3 = vload16(3, b + K * CP);
    TILE_EACH(SCORE_OPEN)
    for (int k = 0; k < K; k += 2, a += 2, b += 2 * CP, x += LINE, p += LINE) {
        TILE_STEP(0)
        TILE_STEP(1)
        PREFETCH(x);
        PREFETCH(p);
    }
    TILE_EACH(SCORE_CLOSE)
}
#define SCORE_COLS3(F, r) F(r, 0) F(r, 1) F(r, 2)
#define SCORE_OPEN3(r)    SCORE_COLS3(SCORE_OPEN, r)
#define SCORE_CLOSE3(r)   SCORE_COLS3(SCORE_CLOSE, r)
#define SCORE_FIRST3(r)                                                                                                \
    {                                                                                                                  \
        const float16 v = (float16)(a[(r) * K]);                                                                       \
        SCORE_COLS3(TILE_MAC, r)                                                                                       \
    }
#define SCORE_SECOND3(r)                                                                                               \
    {                                                                                                                  \
        const float16 v = (float16)(a[(r) * K + 1]);                                                                   \
        SCORE_COLS3(TILE_MAC, r)                                                                                       \
    }
NOINLINE void scores3(float16 *s, const float *a, __global const float *b, __global const T *x,
                      __global const T *p) {
    const float16 k0 = vload16(0, b + K * CP), k1 = vload16(1, b + K * CP), k2 = vload16(2, b + K * CP);
    ROWS6(SCORE_OPEN3)
    for (int k = 0; k < K; k += 2, a += 2, b += 2 * CP, x += LINE, p += LINE) {
        {
            const float16 b0 = vload16(0, b), b1 = vload16(1, b), b2 = vload16(2, b);
            ROWS6(SCORE_FIRST3)
        }
        {
            const float16 b0 = vload16(0, b + CP), b1 = vload16(1, b + CP), b2 = vload16(2, b + CP);
            ROWS6(SCORE_SECOND3)
        }
        PREFETCH(x);
        PREFETCH(p);
    }
    ROWS6(SCORE_CLOSE3)
}
/* Two sums each, of even and of odd channels: six alone would wait for themselves. */
#define SCORE_OPEN1(r)   float16 c##r = k0, d##r = (float16)(0.0f);
#define SCORE_CLOSE1(r)  s[r * (CP / 16)] = c##r + d##r;
#define SCORE_FIRST1(r)  c##r = fma((float16)(a[(r) * K]), b0, c##r);
#define SCORE_SECOND1(r) d##r = fma((float16)(a[(r) * K + 1]), b1, d##r);
NOINLINE void scores1(float16 *s, const float *a, __global const float *b, __global const T *x,
                      __global const T *p) {
    const float16 k0 = vload16(0, b + K * CP);
    ROWS6(SCORE_OPEN1)
    for (int k = 0; k < K; k += 2, a += 2, b += 2 * CP, x += LINE, p += LINE) {
        const float16 b0 = vload16(0, b), b1 = vload16(0, b + CP);
        ROWS6(SCORE_FIRST1)
        ROWS6(SCORE_SECOND1)
        PREFETCH(x);
        PREFETCH(p);
    }
    ROWS6(SCORE_CLOSE1)
}
static inline void scores_block(float16 *s, const float *xp, __global const float *columns, int count,
                                __global const T *x, __global const T *p) {
    if (count > 3)
        scores4(s, xp, columns, x, p);
    else if (count > 1)
        scores3(s, xp, columns, x, p);
    else if (count == 1)
        scores1(s, xp, columns, x, p);
}
#else
static inline void scores_block(float16 *s, const float *xp, __global const float *columns, int count,
                                __global const T *x, __global const T *p) {
    enum { LINE = 64 / sizeof(T) };
    for (int j = 0; j < count && j < 4; j++, columns += 16, s++) {
        for (int i = 0; i < K / 8; i++, x += LINE, p += LINE) {
            PREFETCH(x);
            PREFETCH(p);
        }
        for (int r = 0; r < TILE_ROWS; r++) s[r * (CP / 16)] = vload16(0, columns + K * CP);
        tile6x1(s, CP / 16, s, CP / 16, xp, K, columns, CP, K);
    }
}
#endif

/* The same for `count` vectors of columns. */
static inline void scores(float16 *s, const float *xp, __global const float *columns, int count, __global const T *x,
                          __global const T *p) {
    for (int j = 0; j < BLOCKS; j++) scores_block(s + j * 4, xp, columns + j * 64, count - j * 4, x, p);
}

/* Six rows of the image at x, `ldx` apart, of which `count` exist: xp = x + shift + position, xt = x + shift + add. */
NOINLINE void load_rows(float16 *xt, float16 *xp, __global const T *x, __global const T *p, int ldx, int ldp, int count,
                        __global const float *shift, const float16 *add) {
    for (int r = 0; r < TILE_ROWS; r++, xt += XV, xp += KV) {
        UNROLL for (int i = 0; i < KV; i++) {
            const float16 v = LOAD16(x, i * 16) + vload16(i, shift);
            xp[i] = v + LOAD16(p, i * 16);
            xt[i] = v + add[i];
        }
        if (r + 1 < count) x += ldx, p += ldp;
    }
}

/* x becomes its layer norm, norm {gamma, beta} [2][K], and goes to y as well if that is not NULL; xp = x + position. */
NOINLINE void norm_image_row(float16 *x, float16 *xp, __global T *y, __global const T *p, __global const float *norm,
                               float eps) {
#ifdef SIMD16 /* the row in registers */
    float16 v[KV], sum[4], square[4];
    UNROLL for (int i = 0; i < KV; i++) v[i] = x[i];
    UNROLL for (int i = 0; i < 4; i++) sum[i] = v[i];
    UNROLL for (int i = 4; i < KV; i++) sum[i % 4] += v[i];
    const float mean = sum16((sum[0] + sum[1]) + (sum[2] + sum[3])) / K;
    UNROLL for (int i = 0; i < KV; i++) v[i] -= (float16)(mean);
    UNROLL for (int i = 0; i < 4; i++) square[i] = v[i] * v[i];
    UNROLL for (int i = 4; i < KV; i++) square[i % 4] = fma(v[i], v[i], square[i % 4]);
    const float scale = 1.0f / sqrt(sum16((square[0] + square[1]) + (square[2] + square[3])) / K + eps);
    UNROLL for (int i = 0; i < KV; i++) {
        v[i] = fma(v[i] * (float16)(scale), vload16(i, norm), vload16(i, norm + K));
        x[i] = v[i];
        xp[i] = v[i] + LOAD16(p, i * 16);
    }
    if (y) UNROLL for (int i = 0; i < KV; i++) STORE16(v[i], y, i * 16);
#else
    norm_row(x, KV, norm, norm + K, eps);
    for (int i = 0; i < KV; i++) {
        xp[i] = x[i] + LOAD16(p, i * 16);
        if (y) STORE16(x[i], y, i * 16);
    }
#endif
}

/* Adds weights^T x to sums of 8 columns by 2 vectors, scaled by f before or, if `first`, zeros: SUB rows. The next sums
 * are at `next`. */
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
NOINLINE void weighted_sums(__global float *sums, const float *f, const float *w, const float16 *x, int first,
                            __global const float *next) {
    EACH8(SUM_BEGIN)
    if (!first) {
        EACH8(SUM_OPEN)
    }
    for (int r = 0; r < 16; r++, w += CP, x += XV) {
        const float16 x0 = x[0], x1 = x[1];
        EACH8(SUM_STEP)
        PREFETCH(next + r / 2 * K + r % 2 * 16);
    }
    for (int r = 16; r < SUB; r++, w += CP, x += XV) {
        const float16 x0 = x[0], x1 = x[1];
        EACH8(SUM_STEP)
    }
    EACH8(SUM_CLOSE)
}
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
static inline void weighted_sums(__global float *sums, const float *f, const float *w, const float16 *x, int first,
                                 __global const float *next) {
    for (int i = 0; i < 4; i++)
        weighted_quad(sums + i / 2 * 4 * K + i % 2 * 16, f + i / 2 * 4, w + i / 2 * 4, x + i % 2, first);
}
#endif

/* Takes SUB rows of weights and of the image to sums [columns][K]. */
static inline void sum_rows(__global float *sums, const float16 *f, const float16 *s, const float16 *x, int columns,
                            int first) {
    for (int v = 0; v < K; v += 32)
        for (int c = 0; c < columns; c += 8)
            weighted_sums(sums + c * K + v, (const float *)f + c, (const float *)s + c, x + v / 16, first,
                          sums + (c + 8 < columns ? (c + 8) * K + v : v + 32));
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
    float16 xs[SUB * XV], s[SUB * CP / 16], xp[TILE_ROWS * KV], a[TILE_ROWS * CP / 16];
    float16 f[CP / 16], top[CP / 16], total[CP / 16], add[KV];
    for (int i = 0; i < reads; i++) {
        top[i] = (float16)(LOWEST);
        total[i] = (float16)(0.0f);
    }
    keys += (size_t)n * (K + 1) * CP;
    values += (size_t)n * columns * K;
    queries += (size_t)n * (K + 1) * CP;
    for (int i = 0; i < KV; i++) {
        add[i] = modes.x ? vload16(i, norm) : (float16)(0.0f);
        for (int c = depth; modes.x && c < columns; c++)
            add[i] += vload16(0, values + i / 4 * 64 * columns + c * 64 + i % 4 * 16);
    }
    part += ((size_t)n * sizes.s1 + group.x) * CP * (K + 2);
    for (int r0 = first; r0 < last; r0 += SUB) {
        const int rows = min(SUB, last - r0);
        for (int t = 0; t < SUB; t += TILE_ROWS) {
            float16 *xt = xs + t * XV;
            if (t >= rows) { /* weights there are zeros, but zero times garbage may be NaN */
                for (int i = 0; i < TILE_ROWS * XV; i++) xt[i] = (float16)(0.0f);
                continue;
            }
            const size_t row = r0 + t, next = min(r0 + t + TILE_ROWS, sizes.s0 - 1);
            const int count = min(TILE_ROWS, rows - t);
            __global const T *next_x = x + ((size_t)item * sizes.s0 + next) * lds.x + lds.y;
            __global const T *next_p = position + next * lds.z + lds.w;
            __global const T *row_p = position + row * lds.z + lds.w;
            load_rows(xt, xp, x + ((size_t)item * sizes.s0 + row) * lds.x + lds.y, row_p, lds.x, lds.z, count, shift,
                      add);
            if (modes.x) {
                scores(a, (const float *)xp, keys, vectors, next_x, next_p);
                softmax_tokens(a, vectors, none);
                __global T *to = x_out + ((size_t)n * sizes.s0 + row) * K;
                for (int j = 0; j < K; j += 64) /* and asks for the lines to be written */
                    tile6x4_next(xt + j / 16, XV, xt + j / 16, XV, (const float *)a, CP, values + j * columns, depth,
                                 values + j * columns, to + j, K);
                for (int r = 0; r < TILE_ROWS; r++) {
                    norm_image_row(xt + r * XV, xp + r * KV, r < count ? to + r * K : (__global T *)0, row_p, norm + K,
                                   eps);
                    if (r + 1 < count) row_p += lds.z;
                }
            }
            scores(s + t * (CP / 16), (const float *)xp, queries, reads, next_x, next_p);
        }
        weigh_rows(top, total, f, s, rows, reads);
        sum_rows(part + 2 * CP, f, s, xs, read, r0 == first);
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
