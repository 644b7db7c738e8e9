/* Register tiles for CPU kernels whose operands lie in private memory: one work-item per group, float16 vectors.
 *
 * tile6x4 adds a product of 6 rows (in private memory, `lda` floats apart) and 64 columns (4 vectors, `ldb` floats per
 * step of k, in global memory) to 24 accumulators in registers. A caller that passes constants for lda and ldb gets
 * immediate offsets. */
#define TILE_ROWS 6

/* -D PANEL: columns of a panel of weights [k][PANEL] (ist_cpu_panel of variants/cpu/weights.h): as many as a tile of TILE_ROWS
 * rows has registers for, so that a panel is read from its beginning to its end for tile after tile. */
#ifndef PANEL
#define PANEL 64
#endif
#define PANEL_VECTORS (PANEL / 16)

#define LOWEST    (-3.0e38f)

#define TILE_COLS(F, r) F(r, 0) F(r, 1) F(r, 2) F(r, 3)
#define TILE_EACH(F)    TILE_COLS(F, 0) TILE_COLS(F, 1) TILE_COLS(F, 2) TILE_COLS(F, 3) TILE_COLS(F, 4) TILE_COLS(F, 5)
#define TILE_OPEN(r, j)  float16 c##r##_##j = acc[r * 4 + j];
#define TILE_CLOSE(r, j) acc[r * 4 + j] = c##r##_##j;
#define TILE_MAC(r, j)   c##r##_##j = fma(v, b##j, c##r##_##j);
#define TILE_ROW(r, u)                                                                                                 \
    {                                                                                                                  \
        const float16 v = (float16)(a[(r) * lda + u]);                                                                 \
        TILE_COLS(TILE_MAC, r)                                                                                         \
    }
#define TILE_STEP(u)                                                                                                   \
    {                                                                                                                  \
        const float16 b0 = vload16(0, b + u * ldb), b1 = vload16(1, b + u * ldb), b2 = vload16(2, b + u * ldb);        \
        const float16 b3 = vload16(3, b + u * ldb);                                                                    \
        TILE_ROW(0, u) TILE_ROW(1, u) TILE_ROW(2, u) TILE_ROW(3, u) TILE_ROW(4, u) TILE_ROW(5, u)                      \
    }

#if !defined(SIMD16) || PANEL == 16
/* to[r * ldt] = from[r * ldf] + sum over i < k of a[r * lda + i] * vector b[i * ldb]; k is even. Two steps a turn:
 * what a turn costs besides its products, a core's other thread takes for itself. */
#define TILE_EACH1(F)   F(0) F(1) F(2) F(3) F(4) F(5)
#define TILE_OPEN1(r)   float16 c##r = from[(r) * ldf];
#define TILE_FIRST1(r)  c##r = fma((float16)(a[(r) * lda]), v, c##r);
#define TILE_SECOND1(r) c##r = fma((float16)(a[(r) * lda + 1]), v, c##r);
#define TILE_CLOSE1(r)  to[(r) * ldt] = c##r;
NOINLINE void tile6x1(float16 *to, int ldt, const float16 *from, int ldf, const float *a, int lda,
                      __global const float *b, int ldb, int k) {
    TILE_EACH1(TILE_OPEN1)
    for (; k > 0; k -= 2, a += 2, b += 2 * ldb) {
        {
            const float16 v = vload16(0, b);
            TILE_EACH1(TILE_FIRST1)
        }
        {
            const float16 v = vload16(0, b + ldb);
            TILE_EACH1(TILE_SECOND1)
        }
    }
    TILE_EACH1(TILE_CLOSE1)
}
#endif

#ifdef SIMD16
/* acc[r * 4 + j] += sum over i < k of a[r * lda + i] * vector j of b[i * ldb]; k is even. */
NOINLINE void tile6x4(float16 *acc, const float *a, int lda, __global const float *b, int ldb, int k) {
    TILE_EACH(TILE_OPEN)
    for (; k > 0; k -= 2, a += 2, b += 2 * ldb) {
        TILE_STEP(0)
        TILE_STEP(1)
    }
    TILE_EACH(TILE_CLOSE)
}

/* The same, and with every two steps one cache line each of what will be read next from p and q. */
NOINLINE void tile6x4_ahead(float16 *acc, const float *a, int lda, __global const float *b, int ldb, int k,
                            __global const T *p, __global const T *q) {
    TILE_EACH(TILE_OPEN)
    for (; k > 0; k -= 2, a += 2, b += 2 * ldb) {
        TILE_STEP(0)
        TILE_STEP(1)
        PREFETCH(p);
        PREFETCH(q);
        p += 64 / sizeof(T);
        q += 64 / sizeof(T);
    }
    TILE_EACH(TILE_CLOSE)
}

/* The same from `from` to `to`, whose rows lie ldf and ldt vectors apart, b without gaps; asks for what the caller will
 * touch next, evenly over the steps, since a core waits for few lines at a time: 6 rows of 64 values from q on, `ldq`
 * apart, which it will read or write right after, and with every two steps one line from p on, weights for the
 * second-level cache. */
#define TILE_OPEN_FROM(r, j) float16 c##r##_##j = from[r * ldf + j];
#define TILE_CLOSE_TO(r, j)  to[r * ldt + j] = c##r##_##j;
NOINLINE void tile6x4_next(float16 *to, int ldt, const float16 *from, int ldf, const float *a, int lda,
                           __global const float *b, int k, __global const float *p, __global const T *q, int ldq) {
    TILE_EACH(TILE_OPEN_FROM)
    for (int r = 0; r < TILE_ROWS; r++, q += ldq)
        for (int v = 0; v < 64; v += 16) PREFETCH(q + v);
    for (; k > 0; k -= 2, a += 2, b += 2 * 64, p += 16) {
        const int ldb = 64;
        TILE_STEP(0)
        TILE_STEP(1)
        PREFETCH_L2(p);
    }
    TILE_EACH(TILE_CLOSE_TO)
}

/* As much for the half of a panel that is left where columns are an odd multiple of 32: b [k][32]. */
#define HALF_COLS(F, r) F(r, 0) F(r, 1)
#define HALF_EACH(F)    HALF_COLS(F, 0) HALF_COLS(F, 1) HALF_COLS(F, 2) HALF_COLS(F, 3) HALF_COLS(F, 4) HALF_COLS(F, 5)
#define HALF_ROW(r)                                                                                                    \
    {                                                                                                                  \
        const float16 v = (float16)(a[(r) * lda]);                                                                     \
        HALF_COLS(TILE_MAC, r)                                                                                         \
    }
NOINLINE void tile6x2_next(float16 *to, int ldt, const float16 *from, int ldf, const float *a, int lda,
                           __global const float *b, int k, __global const T *q, int ldq) {
    HALF_EACH(TILE_OPEN_FROM)
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < 32; v += 16) PREFETCH(q + r * ldq + v);
    for (; k > 0; k--, a++, b += 32) {
        const float16 b0 = vload16(0, b), b1 = vload16(1, b);
        HALF_ROW(0) HALF_ROW(1) HALF_ROW(2) HALF_ROW(3) HALF_ROW(4) HALF_ROW(5)
    }
    HALF_EACH(TILE_CLOSE_TO)
}
#else
/* The same where registers are narrower: 24 sums would lie in memory, those of one column of vectors fit (12 registers
 * of 8 floats, 24 of 4). Lines are asked for between columns. */
static inline void tile6x4(float16 *acc, const float *a, int lda, __global const float *b, int ldb, int k) {
    for (int j = 0; j < 4; j++) tile6x1(acc + j, 4, acc + j, 4, a, lda, b + j * 16, ldb, k);
}
static inline void tile6x4_ahead(float16 *acc, const float *a, int lda, __global const float *b, int ldb, int k,
                                 __global const T *p, __global const T *q) {
    enum { LINE = 64 / sizeof(T) };
    for (int j = 0; j < 4; j++) {
        for (int i = 0; i < k / 8; i++, p += LINE, q += LINE) {
            PREFETCH(p);
            PREFETCH(q);
        }
        tile6x1(acc + j, 4, acc + j, 4, a, lda, b + j * 16, ldb, k);
    }
}
static inline void tile6x4_next(float16 *to, int ldt, const float16 *from, int ldf, const float *a, int lda,
                                __global const float *b, int k, __global const float *p, __global const T *q, int ldq) {
    for (int j = 0; j < 4; j++) tile6x1(to + j, ldt, from + j, ldf, a, lda, b + j * 16, 64, k);
}
static inline void tile6x2_next(float16 *to, int ldt, const float16 *from, int ldf, const float *a, int lda,
                                __global const float *b, int k, __global const T *q, int ldq) {
    for (int j = 0; j < 2; j++) tile6x1(to + j, ldt, from + j, ldf, a, lda, b + j * 16, 32, k);
}
#endif

/* to[r * ldt + j] = from[r * ldf + j] + the product of six rows and a panel; asks for lines as tile6x4_next where a
 * tile is four vectors wide. */
static inline void panel_product(float16 *to, int ldt, const float16 *from, int ldf, const float *a, int lda,
                                 __global const float *b, int k, __global const float *p, __global const T *q,
                                 int ldq) {
#if PANEL == 64
    tile6x4_next(to, ldt, from, ldf, a, lda, b, k, p, q, ldq);
#else
    tile6x1(to, ldt, from, ldf, a, lda, b, 16, k);
#endif
}

/* to[r * ldt + i] = the activation of v[r * step + i], `rows` rows of `count` vectors in memory: where registers hold
 * sums, LLVM makes it a call for each vector. */
NOINLINE void activate_to(float16 *to, int ldt, const float16 *v, int rows, int count, int step, int act) {
    for (; rows > 0; rows--, v += step, to += ldt)
        if (act == ACT_GELU) {
            for (int i = 0; i < count; i++) to[i] = ist_gelu_float16(v[i]);
        } else if (act != ACT_NONE || to != v) {
            for (int i = 0; i < count; i++) to[i] = activate_float16(v[i], act);
        }
}
/* The same in place. */
static inline void activate_rows(float16 *v, int rows, int count, int step, int act) {
    activate_to(v, step, v, rows, count, step, act);
}
static inline void activate_all(float16 *v, int count, int act) {
    activate_rows(v, 1, count, count, act);
}

static inline float sum16(float16 v) {
    float8 a = v.lo + v.hi;
    float4 b = a.lo + a.hi;
    return (b.x + b.y) + (b.z + b.w);
}

static inline float16 larger(float16 a, float16 b) {
    return a > b ? a : b; /* one instruction; fmax would also order NaN */
}

/* 2^t for t <= 0, 2^-100 below, whose products with factors are no subnormal numbers, which take long: nearest integer
 * by the 1.5 * 2^23 trick, 1 + r * q(r) on the rest with q fitted for relative error 2e-9. */
static inline float16 exp2_negative(float16 t) {
    t = larger(t, (float16)(-100.0f));
    float16 n = t + (float16)(12582912.0f), r = t - (n - (float16)(12582912.0f));
    float16 p = fma((float16)(0.00015353362f), r, (float16)(0.00133988739f));
    p = fma(p, r, (float16)(0.00961843692f));
    p = fma(p, r, (float16)(0.0555033237f));
    p = fma(p, r, (float16)(0.240226477f));
    p = fma(p, r, (float16)(0.693147182f));
    p = fma(p, r, (float16)(1.0f));
    return as_float16(as_int16(p) + (as_int16(n) << (int16)(23)));
}

/* One row of `vectors` vectors becomes (v - mean) / sqrt(variance + eps) * gamma + beta; two passes. */
static inline void norm_row(float16 *v, int vectors, __global const float *gamma, __global const float *beta,
                            float eps) {
    const int odd = vectors & 1; /* two sums: one would wait for itself */
    float16 even = odd ? v[0] : (float16)(0.0f), total = (float16)(0.0f), square = total;
    for (int i = odd; i < vectors; i += 2) {
        even += v[i];
        total += v[i + 1];
    }
    const float16 mean = (float16)(sum16(even + total) / (vectors * 16)), d0 = v[0] - mean;
    even = odd ? d0 * d0 : (float16)(0.0f);
    for (int i = odd; i < vectors; i += 2) {
        const float16 d = v[i] - mean, e = v[i + 1] - mean;
        even = fma(d, d, even);
        square = fma(e, e, square);
    }
    const float16 scale = (float16)(1.0f / sqrt(sum16(even + square) / (vectors * 16) + eps));
    for (int i = 0; i < vectors; i++) v[i] = fma((v[i] - mean) * scale, vload16(i, gamma), vload16(i, beta));
}

/* The same for `rows` rows, a constant of at most 8, side by side: a row's sums, quotients and root wait for each
 * other, and a core looks less than two rows ahead. */
static inline __attribute__((always_inline)) void norm_rows(float16 *v, const int rows, int vectors,
                                                            __global const float *gamma, __global const float *beta,
                                                            float eps) {
    float16 sum[8], mean[8];
#pragma unroll
    for (int r = 0; r < rows; r++) sum[r] = (float16)(0.0f);
    for (int i = 0; i < vectors; i++)
#pragma unroll
        for (int r = 0; r < rows; r++) sum[r] += v[r * vectors + i];
#pragma unroll
    for (int r = 0; r < rows; r++) {
        mean[r] = (float16)(sum16(sum[r]) / (vectors * 16));
        sum[r] = (float16)(0.0f);
    }
    for (int i = 0; i < vectors; i++)
#pragma unroll
        for (int r = 0; r < rows; r++) {
            const float16 d = v[r * vectors + i] - mean[r];
            sum[r] = fma(d, d, sum[r]);
        }
#pragma unroll
    for (int r = 0; r < rows; r++) sum[r] = (float16)(1.0f / sqrt(sum16(sum[r]) / (vectors * 16) + eps));
    for (int i = 0; i < vectors; i++) {
        const float16 g = vload16(i, gamma), b = vload16(i, beta);
#pragma unroll
        for (int r = 0; r < rows; r++) v[r * vectors + i] = fma((v[r * vectors + i] - mean[r]) * sum[r], g, b);
    }
}

/* ---- 16x16 transpose, four columns at a time ---- */

/* Lane l of shuffles of two vectors is the l-th of 32 lanes that the numbers name. */
#ifdef __clang__ /* LLVM takes long to find out what is written lane by lane */
#define LANES(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define LANES(a, b, ...) shuffle2(a, b, (uint16)(__VA_ARGS__))
#endif
#define LOW_OF_EACH(a, b)  LANES(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define HIGH_OF_EACH(a, b) LANES(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#define LOW_PAIRS(a, b)    LANES(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define HIGH_PAIRS(a, b)   LANES(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
/* Lane i of y0 .. y3 is the first .. fourth of the four floats AT(i), i below 16. To be in a loop over columns: LLVM
 * takes as long for the shuffles of all sixteen as for the rest of a kernel. */
#define TRANSPOSE16X4(y, AT)                                                                                           \
    const float16 y##_0 = (float16)(AT(0), AT(4), AT(8), AT(12)), y##_1 = (float16)(AT(1), AT(5), AT(9), AT(13));      \
    const float16 y##_2 = (float16)(AT(2), AT(6), AT(10), AT(14)), y##_3 = (float16)(AT(3), AT(7), AT(11), AT(15));    \
    const float16 y##01 = LOW_OF_EACH(y##_0, y##_1), y##23 = LOW_OF_EACH(y##_2, y##_3);                                \
    const float16 y##45 = HIGH_OF_EACH(y##_0, y##_1), y##67 = HIGH_OF_EACH(y##_2, y##_3);                              \
    const float16 y##0 = LOW_PAIRS(y##01, y##23), y##1 = HIGH_PAIRS(y##01, y##23);                                     \
    const float16 y##2 = LOW_PAIRS(y##45, y##67), y##3 = HIGH_PAIRS(y##45, y##67);

#define EACH8(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)

/* ---- 8x8 transpose ---- */

#ifdef __clang__
#define LANES8(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define LANES8(a, b, ...) shuffle2(a, b, (uint8)(__VA_ARGS__))
#endif
#define PAIRS(y, z, a, b)                                                                                              \
    const float8 y = LANES8(a, b, 0, 8, 1, 9, 4, 12, 5, 13), z = LANES8(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
#define FOURS(y, z, a, b)                                                                                              \
    const float8 y = LANES8(a, b, 0, 1, 8, 9, 4, 5, 12, 13), z = LANES8(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
#define HALVES(y, z, a, b)                                                                                             \
    const float8 y = LANES8(a, b, 0, 1, 2, 3, 8, 9, 10, 11), z = LANES8(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
/* Lane j of vector i of y becomes lane i of vector j of x, i and j below 8; also defines p and q of as many. */
#define TRANSPOSE8(y, x)                                                                                               \
    PAIRS(p0, p1, x##0, x##1) PAIRS(p2, p3, x##2, x##3) PAIRS(p4, p5, x##4, x##5) PAIRS(p6, p7, x##6, x##7)            \
    FOURS(q0, q1, p0, p2) FOURS(q2, q3, p1, p3) FOURS(q4, q5, p4, p6) FOURS(q6, q7, p5, p7)                            \
    HALVES(y##0, y##4, q0, q4) HALVES(y##1, y##5, q1, q5) HALVES(y##2, y##6, q2, q6) HALVES(y##3, y##7, q3, q7)
