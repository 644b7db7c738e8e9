/* Products of what prompts share of an image's rows, projected, with what each has: columns, and weights of rows. Needs
 * cpu/tile, cpu/two_way_columns with BLOCKS = 1.
 *
 * Sums are rows of 4 vectors, of which one, three or all are asked for. Projected rows have channel i of head h at
 * i * 8 + h: eight heads of a channel meet the columns of two tokens. */

static inline float16 both(float8 v) {
    return (float16)(v, v);
}

/* acc [6][4 vectors] += six rows times some vectors of b [depth][CP], depth even; TERM(r): a row's factor at a step.
 * Of two steps, which have one cache line of a row's channels, each may ask for something before. */
#define COLS1(F, r)    F(r, 0)
#define COLS3(F, r)    F(r, 0) F(r, 1) F(r, 2)
#define ROWS6(COLS, F) COLS(F, 0) COLS(F, 1) COLS(F, 2) COLS(F, 3) COLS(F, 4) COLS(F, 5)
#define LOAD1          const float16 b0 = vload16(0, b);
#define LOAD3          LOAD1 const float16 b1 = vload16(1, b), b2 = vload16(2, b);
#define LOAD4          LOAD3 const float16 b3 = vload16(3, b);
#define TERM_ROW(COLS, TERM, r)                                                                                        \
    {                                                                                                                  \
        const float16 v = TERM(r);                                                                                     \
        COLS(TILE_MAC, r)                                                                                              \
    }
#define STEP(COLS, TERM)                                                                                               \
    TERM_ROW(COLS, TERM, 0) TERM_ROW(COLS, TERM, 1) TERM_ROW(COLS, TERM, 2) TERM_ROW(COLS, TERM, 3)                    \
        TERM_ROW(COLS, TERM, 4) TERM_ROW(COLS, TERM, 5)
#define PRODUCT(BEGIN, COLS, LOADS, TERM, NEXT, ASK, ASK_TOO)                                                          \
    BEGIN(COLS)                                                                                                        \
    for (; depth > 0; depth -= 2) {                                                                                    \
        {ASK LOADS STEP(COLS, TERM)} NEXT, b += CP;                                                                    \
        {ASK_TOO LOADS STEP(COLS, TERM)} NEXT, b += CP;                                                                \
    }                                                                                                                  \
    ROWS6(COLS, TILE_CLOSE)
#define MORE(COLS) ROWS6(COLS, TILE_OPEN)
/* Sums begin as f times themselves + `row`. */
#define TILE_ROW_ON(r, j) float16 c##r##_##j = fma(acc[r * 4 + j], (float16)(f[r]), vload16(j, row));
#define ROW_FIRST(COLS)   ROWS6(COLS, TILE_ROW_ON)
#define WEIGHT(r)         (float16)(a[(r)*CP])
#define CHANNEL(r)        both(vload8(0, a + (r)*ld))
#define PROJECTED(r)      fma(both(vload8(0, a + (r)*ld)), (float16)(g[r]), both(vload8(0, p + (r)*ldp)))
#define NEXT_BOTH         (a += HEADS, p += HEADS)
/* Asks for the next six rows at v, `pitch` apart, which lie far from each other. */
#define AHEAD_OF(v, pitch)                                                                                             \
    UNROLL for (int r = TILE_ROWS; r < 2 * TILE_ROWS; r++) PREFETCH(v + r * pitch);
#define AHEAD      AHEAD_OF(a, ld)
#define AHEAD_OF_P AHEAD_OF(p, ldp)

NOINLINE void add_weighted1(float16 *acc, const float *a, __global const float *b, int depth) {
    PRODUCT(MORE, COLS1, LOAD1, WEIGHT, a++, , )
}

/* sums [values][4 vectors] = sums * f + s^T x: some vectors of the weights s [rows][CP], rows of x, ld apart. Values
 * are taken by COUNT; a row has VALUE(i), STEP floats apart. With each turn a cache line of every row `next` is asked
 * for. */
#define SUM_OPEN(i, j)  float16 c##i##_##j = sums[i * 4 + j] * f[j];
#define SUM_CLOSE(i, j) sums[i * 4 + j] = c##i##_##j;
#define SUM_MAC(i, j)   c##i##_##j = fma(w[j], v, c##i##_##j);
#define SUM_ROW(COLS, VALUE, i)                                                                                        \
    {                                                                                                                  \
        const float16 v = VALUE(i);                                                                                    \
        COLS(SUM_MAC, i)                                                                                               \
    }
#define FOUR(COLS, F)  COLS(F, 0) COLS(F, 1) COLS(F, 2) COLS(F, 3)
#define EIGHT(COLS, F) FOUR(COLS, F) COLS(F, 4) COLS(F, 5) COLS(F, 6) COLS(F, 7)
#define FOUR_ROWS(COLS, VALUE)                                                                                         \
    SUM_ROW(COLS, VALUE, 0) SUM_ROW(COLS, VALUE, 1) SUM_ROW(COLS, VALUE, 2) SUM_ROW(COLS, VALUE, 3)
#define EIGHT_ROWS(COLS, VALUE)                                                                                        \
    FOUR_ROWS(COLS, VALUE)                                                                                             \
    SUM_ROW(COLS, VALUE, 4) SUM_ROW(COLS, VALUE, 5) SUM_ROW(COLS, VALUE, 6) SUM_ROW(COLS, VALUE, 7)
#define SUMS(COUNT, EACH, COLS, VALUE, STEP, ...)                                                                      \
    for (; values > 0; values -= COUNT, sums += COUNT * 4, x += COUNT * STEP) {                                        \
        const float16 *w = s;                                                                                          \
        const float *u = x;                                                                                            \
        EACH(COLS, SUM_OPEN)                                                                                           \
        for (int r = 0; r < rows; r++, w += CP / 16, u += ld) {                                                        \
            EACH##_ROWS(COLS, VALUE) __VA_ARGS__                                                                       \
        }                                                                                                              \
        EACH(COLS, SUM_CLOSE)                                                                                          \
    }
#define VALUE_OF(i)  (float16)(u[i])
#define VALUES_OF(i) both(vload8(i, u))
NOINLINE void sum_weights1(float16 *sums, const float16 *f, const float16 *s, const float *x, int rows, int values,
                           __global const float *next, int ld_next) {
    enum { ld = CP };
    SUMS(8, EIGHT, COLS1, VALUE_OF, 1, PREFETCH(next + values * 2 + r * ld_next);)
}
NOINLINE void sum_heads1(float16 *sums, const float16 *f, const float16 *s, const float *x, int ld, int rows,
                         int values) {
    SUMS(4, FOUR, COLS1, VALUES_OF, HEADS, )
}

/* sums = f times themselves + `row`, and projected rows at a, each times its factor of g, + those at p, times
 * plain columns of `depth` channels. */
NOINLINE void add_image1(float16 *acc, const float *f, __global const float *row, __global const float *a, int ld,
                         __global const float *p, int ldp, const float *g, __global const float *b, int depth) {
    PRODUCT(ROW_FIRST, COLS1, LOAD1, PROJECTED, NEXT_BOTH, AHEAD, AHEAD_OF_P)
}

#ifdef SIMD16
NOINLINE void add_image3(float16 *acc, const float *f, __global const float *row, __global const float *a, int ld,
                         __global const float *p, int ldp, const float *g, __global const float *b, int depth) {
    PRODUCT(ROW_FIRST, COLS3, LOAD3, PROJECTED, NEXT_BOTH, AHEAD, AHEAD_OF_P)
}
NOINLINE void add_image4(float16 *acc, const float *f, __global const float *row, __global const float *a, int ld,
                         __global const float *p, int ldp, const float *g, __global const float *b, int depth) {
    PRODUCT(ROW_FIRST, TILE_COLS, LOAD4, PROJECTED, NEXT_BOTH, AHEAD, AHEAD_OF_P)
}
static inline void add_image(float16 *sums, const float *f, __global const float *row, __global const float *a, int ld,
                             __global const float *p, int ldp, const float *g, __global const float *b, int depth,
                             int vectors) {
    if (vectors == 1)
        add_image1(sums, f, row, a, ld, p, ldp, g, b, depth);
    else if (vectors == 3)
        add_image3(sums, f, row, a, ld, p, ldp, g, b, depth);
    else
        add_image4(sums, f, row, a, ld, p, ldp, g, b, depth);
}
NOINLINE void add_weighted3(float16 *acc, const float *a, __global const float *b, int depth) {
    PRODUCT(MORE, COLS3, LOAD3, WEIGHT, a++, , )
}
/* The same for a matrix of three vectors' width with zeros in blocks of 16 by 16 below the diagonal; asks for half a
 * cache line at `next` with every step. */
#define COLS12(F, r) F(r, 1) F(r, 2)
#define COLS2(F, r)  F(r, 2)
#define LOAD12       const float16 b1 = vload16(1, b), b2 = vload16(2, b);
#define LOAD2        const float16 b2 = vload16(2, b);
#define BLOCK(COLS, LOADS, END)                                                                                        \
    for (; k < END; k++, a++, b += CP, next += 8) {                                                                    \
        PREFETCH(next);                                                                                                \
        LOADS TERM_ROW(COLS, WEIGHT, 0) TERM_ROW(COLS, WEIGHT, 1) TERM_ROW(COLS, WEIGHT, 2)                            \
            TERM_ROW(COLS, WEIGHT, 3) TERM_ROW(COLS, WEIGHT, 4) TERM_ROW(COLS, WEIGHT, 5)                              \
    }
NOINLINE void add_square3(float16 *acc, const float *a, __global const float *b, int depth,
                          __global const float *next) {
    int k = 0;
    ROWS6(COLS3, TILE_OPEN)
    BLOCK(COLS3, LOAD3, 16)
    BLOCK(COLS12, LOAD12, 32)
    BLOCK(COLS2, LOAD2, depth)
    ROWS6(COLS3, TILE_CLOSE)
}
NOINLINE void add_weighted4(float16 *acc, const float *a, __global const float *b, int depth) {
    PRODUCT(MORE, TILE_COLS, LOAD4, WEIGHT, a++, , )
}
/* Projected rows, `ld` apart, times plain columns of `depth` channels. */
NOINLINE void add_heads4(float16 *acc, const float *a, int ld, __global const float *b, int depth) {
    PRODUCT(MORE, TILE_COLS, LOAD4, CHANNEL, a += HEADS, AHEAD, )
}
NOINLINE void add_heads3(float16 *acc, const float *a, int ld, __global const float *b, int depth) {
    PRODUCT(MORE, COLS3, LOAD3, CHANNEL, a += HEADS, AHEAD, )
}
static inline void add_heads(float16 *sums, const float *x, int ld, __global const float *b, int depth, int vectors) {
    if (vectors == 3)
        add_heads3(sums, x, ld, b, depth);
    else
        add_heads4(sums, x, ld, b, depth);
}
NOINLINE void sum_weights4(float16 *sums, const float16 *f, const float16 *s, const float *x, int rows, int values,
                           __global const float *next, int ld_next) {
    enum { ld = CP };
    SUMS(4, FOUR, TILE_COLS, VALUE_OF, 1, PREFETCH(next + values * 4 + r * ld_next);)
}
NOINLINE void sum_heads4(float16 *sums, const float16 *f, const float16 *s, const float *x, int ld, int rows,
                         int values) {
    SUMS(4, FOUR, TILE_COLS, VALUES_OF, HEADS, )
}
static inline void add_weighted(float16 *sums, const float *a, __global const float *b, int depth, int vectors) {
    if (vectors == 1)
        add_weighted1(sums, a, b, depth);
    else if (vectors == 3)
        add_weighted3(sums, a, b, depth);
    else
        add_weighted4(sums, a, b, depth);
}
/* By the form of a square. */
static inline void add_square(float16 *sums, const float *a, __global const float *b, int depth, int vectors,
                              __global const float *next) {
    if (vectors == 3)
        add_square3(sums, a, b, depth, next);
    else
        add_weighted(sums, a, b, depth, vectors);
}
static inline void sum_weights(float16 *sums, const float16 *f, const float16 *s, const float *x, int rows, int values,
                               int vectors, __global const float *next, int ld_next) {
    if (vectors == 1)
        sum_weights1(sums, f, s, x, rows, values, next, ld_next);
    else
        sum_weights4(sums, f, s, x, rows, values, next, ld_next);
}
static inline void sum_heads(float16 *sums, const float16 *f, const float16 *s, const float *x, int ld, int rows,
                             int values, int vectors) {
    if (vectors == 1)
        sum_heads1(sums, f, s, x, ld, rows, values);
    else
        sum_heads4(sums, f, s, x, ld, rows, values);
}
#else /* a vector at a time: more sums would lie in memory */
#define add_square(sums, a, b, depth, vectors, next) add_weighted(sums, a, b, depth, vectors)
static inline void add_weighted(float16 *sums, const float *a, __global const float *b, int depth, int vectors) {
    for (int j = 0; j < vectors; j++) add_weighted1(sums + j, a, b + j * 16, depth);
}
/* Projected rows, `ld` apart, times plain columns of `depth` channels. */
NOINLINE void add_heads1(float16 *acc, const float *a, int ld, __global const float *b,
                         int depth) {
    PRODUCT(MORE, COLS1, LOAD1, CHANNEL, a += HEADS, AHEAD, )
}
static inline void add_heads(float16 *sums, const float *x, int ld, __global const float *b, int depth, int vectors) {
    for (int j = 0; j < vectors; j++) add_heads1(sums + j, x, ld, b + j * 16, depth);
}
static inline void add_image(float16 *sums, const float *f, __global const float *row, __global const float *a, int ld,
                             __global const float *p, int ldp, const float *g, __global const float *b, int depth,
                             int vectors) {
    for (int j = 0; j < vectors; j++)
        add_image1(sums + j, f, row + j * 16, a, ld, p, ldp, g, b + j * 16, depth);
}
static inline void sum_weights(float16 *sums, const float16 *f, const float16 *s, const float *x, int rows, int values,
                               int vectors, __global const float *next, int ld_next) {
    for (int j = 0; j < vectors; j++) sum_weights1(sums + j, f + j, s + j, x, rows, values, next, ld_next);
}
static inline void sum_heads(float16 *sums, const float16 *f, const float16 *s, const float *x, int ld, int rows,
                             int values, int vectors) {
    for (int j = 0; j < vectors; j++) sum_heads1(sums + j, f + j, s + j, x, ld, rows, values);
}
#endif
