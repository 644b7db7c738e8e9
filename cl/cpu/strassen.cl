/* Products of matrices on CPUs by one step of Strassen's algorithm in Winograd's form, behind cpu/tile: seven products
 * of quarters in place of eight, an eighth of the multiply-adds less.
 *
 * A, B and C = A B are halved in both directions: A11 A12 above A21 A22. With
 *     S1 = A21 + A22   S2 = S1 - A11   S3 = A11 - A21   S4 = A12 - S2
 *     T1 = B12 - B11   T3 = B22 - B12   T2 = B11 + T3 = B22 - T1   T4 = B21 - T2
 * the seven are
 *     P0 = A11 B11   P1 = A12 B21   P2 = S2 T2   P3 = S3 T3   P4 = A22 T4   P5 = S1 T1   P6 = S4 B22.
 * C11 = P0 + P1 is plain. As S2 + A11 = S1 and S2 + S3 = A22,
 *     P0 + P2      = S1 B11 + S2 T3
 *     P0 + P2 + P3 = S1 B11 + A22 T3, so that with P4 = A22 (B21 - B11 - T3) and P5 = S1 (B12 - B11)
 *     C21 = P0 + P2 + P3 + P4 = S1 B11 + A22 (B21 - B11)  = A21 B11 + A22 B21
 *     C22 = P0 + P2 + P3 + P5 = S1 B12 + A22 (B22 - B12)  = A21 B12 + A22 B22
 *     C12 = P0 + P2 + P5 + P6 = S1 B12 + S2 (T3 - B22) + A12 B22 = (S1 - S2) B12 + A12 B22 = A11 B12 + A12 B22.
 * Rounding errors grow by a small factor.
 *
 * What comes in sevens lies in this order. The left factors are made of rows as they come, in pairs of tiles of six
 * rows, of which the second is the lower half. The right ones are weights: the host makes them (strassen_weights of
 * variants/cpu/norm_mlp.c), in panels of `columns` columns, the seven of a panel in a row. */
#define PRODUCTS 7

/* Columns of the panel that begins where `left` columns of a half are left, a multiple of 16 from 32 on: 64, at the
 * end 48 or 32. */
static inline int strassen_columns(int left) {
    return left == 80 ? 48 : min(left, 64);
}

/* A tile to [6][VECTORS] = from + the product of a [k / 16][6][16] and b [k][16 VECTORS], k a multiple of 16, from's
 * rows ldf vectors apart. Asks for what the caller will touch next: with every two steps for a line from p on, weights
 * for the second-level cache, and with every sixteen for 64 values of one of four rows from q on, `ldq` apart. */
#define STRASSEN_COLS2(F, r)   F(r, 0) F(r, 1)
#define STRASSEN_COLS3(F, r)   F(r, 0) F(r, 1) F(r, 2)
#define STRASSEN_ROWS(COLS, F) COLS(F, 0) COLS(F, 1) COLS(F, 2) COLS(F, 3) COLS(F, 4) COLS(F, 5)
#define STRASSEN_ROW(COLS, r, u)                                                                                       \
    {                                                                                                                  \
        const float16 v = (float16)(a[(r) * 16 + u]);                                                                  \
        COLS(TILE_MAC, r)                                                                                              \
    }
#define STRASSEN_LOAD(u, j) const float16 b##j = vload16((u) * ldt + (j), b);
#define STRASSEN_STEP(COLS, u)                                                                                         \
    {                                                                                                                  \
        COLS(STRASSEN_LOAD, u)                                                                                         \
        STRASSEN_ROW(COLS, 0, u)                                                                                       \
        STRASSEN_ROW(COLS, 1, u)                                                                                       \
        STRASSEN_ROW(COLS, 2, u)                                                                                       \
        STRASSEN_ROW(COLS, 3, u)                                                                                       \
        STRASSEN_ROW(COLS, 4, u)                                                                                       \
        STRASSEN_ROW(COLS, 5, u)                                                                                       \
    }
#define DEFINE_STRASSEN_TILE(VECTORS, COLS)                                                                            \
    NOINLINE void strassen_tile##VECTORS(float16 *to, const float16 *from, int ldf, const float *a,                    \
                                         __global const float *b, int k, __global const float *p, __global const T *q, \
                                         int ldq) {                                                                    \
        enum { ldt = VECTORS };                                                                                        \
        STRASSEN_ROWS(COLS, TILE_OPEN_FROM)                                                                            \
        for (int row = 0; k > 0; k -= 16, a += (TILE_ROWS - 1) * 16, q += ++row < 4 ? ldq : 0)                         \
            for (int i = 0; i < 8; i++, a += 2, b += 2 * VECTORS * 16, p += 16) {                                      \
                STRASSEN_STEP(COLS, 0)                                                                                 \
                STRASSEN_STEP(COLS, 1)                                                                                 \
                PREFETCH_L2(p);                                                                                        \
                PREFETCH(q + (i & 3) * 16);                                                                            \
            }                                                                                                          \
        STRASSEN_ROWS(COLS, TILE_CLOSE_TO)                                                                             \
    }
DEFINE_STRASSEN_TILE(4, TILE_COLS)
DEFINE_STRASSEN_TILE(3, STRASSEN_COLS3)
DEFINE_STRASSEN_TILE(2, STRASSEN_COLS2)

/* A panel's seven products with `tiles` pairs of tiles: to [7][tiles][6][columns] = what it was, or where `start` is
 * not null its row [7][64] for all, + a [7][tiles][k / 16][6][16] times b [7][k][columns]. Asks for the weights at
 * `next` and for 64 values of each of the pairs' rows, from q on `ldq` apart, and as many `side` values further. */
NOINLINE void strassen_products(float16 *to, const float16 *start, const float16 *a, int tiles, __global const float *b,
                                int k, int columns, __global const float *next, __global const T *q, int side,
                                int ldq) {
    const int nv = columns / 16;
    for (int p = 0; p < PRODUCTS; p++, b += columns * k) {
        __global const float *ahead = p + 1 < PRODUCTS ? b + columns * k : next;
        __global const T *lines = q + min(p / 2, 2) * 4 * ldq + (p & 1 ? side : 0);
        for (int t = 0; t < tiles; t++, to += TILE_ROWS * nv, a += TILE_ROWS * k / 16) {
            const float16 *from = start ? start + p * 4 : to;
            const int ldf = start ? 0 : nv;
            const float *left = (const float *)a;
            if (columns == 64)
                strassen_tile4(to, from, ldf, left, b, k, ahead, lines, ldq);
            else if (columns == 48)
                strassen_tile3(to, from, ldf, left, b, k, ahead, lines, ldq);
            else
                strassen_tile2(to, from, ldf, left, b, k, ahead, lines, ldq);
            ahead += k * 8;
            lines += 2 * TILE_ROWS * ldq;
        }
    }
}

/* The seven left factors, `apart` vectors from each other. */
static inline void strassen_factors(float16 *to, int apart, float16 a11, float16 a12, float16 a21, float16 a22) {
    const float16 s1 = a21 + a22, s2 = s1 - a11;
    to[0] = a11;
    to[apart] = a12;
    to[2 * apart] = s2;
    to[3 * apart] = a11 - a21;
    to[4 * apart] = a22;
    to[5 * apart] = s1;
    to[6 * apart] = a12 - s2;
}

/* Products that sum up to c11, c12, c21 and c22. */
static inline void strassen_start(float16 *p, int apart, float16 c11, float16 c12, float16 c21, float16 c22) {
    p[0] = p[2 * apart] = p[3 * apart] = (float16)(0.0f);
    p[apart] = c11;
    p[4 * apart] = c21;
    p[5 * apart] = c22;
    p[6 * apart] = c12 - c22;
}

/* c = {C11, C12, C21, C22}. */
static inline void strassen_sums(float16 *c, const float16 *p, int apart) {
    const float16 two = p[0] + p[2 * apart], three = two + p[3 * apart], fifth = p[5 * apart];
    c[0] = p[0] + p[apart];
    c[1] = two + fifth + p[6 * apart];
    c[2] = three + p[4 * apart];
    c[3] = three + fifth;
}
