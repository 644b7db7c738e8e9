/* SAM's mask upscaling from image tokens to logits (graph/nodes.h), for CPUs: one work-item per group, needs
 * cpu/tile, portable/tokens_seen, cpu/upscale_parts.
 *
 *     u = gelu(LN(deconv1(x)));  v = gelu(deconv2(u));  logit[m] = v . vectors[m]
 *
 * Transposed 2x2 convolutions with stride 2 do not overlap: an input pixel becomes 4 x 4 results on its own. Six pixels
 * go through all steps in registers and the first-level cache. Weights and bias of deconv1 are centred over its
 * channels, so that LN has no mean to subtract.
 *
 * -D K: input channels; 64 and 32 are the channels of u and v.
 *
 * Prompts of way 1 share deconv1 of their image as it was before two updates (graph/nodes.h). An update x = (x + s
 * values + bias)' f gamma + beta of a row is linear but for the factor f, which was noted with the weights s: what is
 * left for each prompt is a product of depth 2 columns + 2 where x W has depth K. */
#define TRACED (2 * 64 + 16) /* floats of a row of weights and factors */
#define XS     (K > TRACED ? K : TRACED)

/* The products are functions of their own: beside other code the compiler would keep that code's constants in registers
 * and move the accumulators of the products to memory. */
#ifdef SIMD16
#define START(r, j)        float16 c##r##_##j = k##j;
#define PRODUCT(DEPTH, ...)                                                                                            \
    for (int k = 0; k < (DEPTH); k += 2, a += 2, b += 2 * ldb) {                                                       \
        TILE_STEP(0)                                                                                                   \
        TILE_STEP(1)                                                                                                   \
        __VA_ARGS__                                                                                                    \
    }
NOINLINE void first_product(float16 *acc, const float *a, __global const float *b, __global const float *bias,
                            __global const T *next) {
    enum { lda = K, ldb = C1, LINE = 64 / sizeof(T) };
    const float16 k0 = vload16(0, bias), k1 = vload16(1, bias), k2 = vload16(2, bias), k3 = vload16(3, bias);
    TILE_EACH(START)
    PRODUCT(K, PREFETCH(next); next += LINE;)
    TILE_EACH(TILE_CLOSE)
}
NOINLINE void second_product(float16 *acc, const float *a, __global const float *b, __global const float *bias) {
    enum { lda = C1, ldb = 2 * C2 };
    const float16 k0 = vload16(0, bias), k1 = vload16(1, bias), k2 = k0, k3 = k1;
    TILE_EACH(START)
    PRODUCT(C1)
    TILE_EACH(TILE_CLOSE)
}
/* w1, w2 [columns][C1] of the updates, of which the first `depth` count; w [2][C1] of factors. */
NOINLINE void shared_product(float16 *acc, const float *s, int depth, __global const float *w1,
                             __global const float *w2, const float *w, __global const float *next,
                             __global const float *next_trace) {
    enum { lda = TRACED, ldb = C1 };
    TILE_EACH(TILE_OPEN)
    {
        const float *a = s;
        __global const float *b = w1;
        PRODUCT(depth, PREFETCH(next); PREFETCH(next_trace); next += 16; next_trace += 16;)
    }
    {
        const float *a = s + 64;
        __global const float *b = w2;
        PRODUCT(depth)
    }
    {
        const float *a = s + 128, *b = w;
        PRODUCT(2)
    }
    TILE_EACH(TILE_CLOSE)
}
#else
NOINLINE void begin(float16 *acc, __global const float *bias, int vectors) {
    for (int i = 0; i < TILE_ROWS * 4; i++) acc[i] = vload16(i % vectors, bias);
}
static inline void first_product(float16 *acc, const float *x, __global const float *w1, __global const float *bias,
                                 __global const T *next) {
    begin(acc, bias, 4);
    tile6x4_ahead(acc, x, K, w1, C1, K, next, next);
}
static inline void second_product(float16 *acc, const float *u, __global const float *w2, __global const float *bias) {
    begin(acc, bias, 2);
    tile6x4(acc, u, C1, w2, 2 * C2, C1);
}
static inline void shared_product(float16 *acc, const float *s, int depth, __global const float *w1,
                                  __global const float *w2, const float *w, __global const float *next,
                                  __global const float *next_trace) {
    tile6x4_ahead(acc, s, TRACED, w1, C1, depth, (__global const T *)next, (__global const T *)next_trace);
    tile6x4(acc, s + 64, TRACED, w2, C1, depth);
    for (int r = 0; r < TILE_ROWS; r++)
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 2; k++)
                acc[r * 4 + j] = fma((float16)(s[r * TRACED + 128 + k]), vload16(j, w + k * C1), acc[r * 4 + j]);
}
#endif

/* u = gelu(LN(acc)) of six rows whose mean is zero; norm {gamma, beta} [2][C1]. All rows' scales come first: a row's is
 * a long chain. */
NOINLINE void norm_gelu(float16 *u, const float16 *acc, __global const float *norm, float eps) {
    float scale[TILE_ROWS];
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const float16 *v = acc + r * 4;
        const float16 square = fma(v[0], v[0], v[1] * v[1]) + fma(v[2], v[2], v[3] * v[3]);
        scale[r] = 1.0f / sqrt(sum16(square) / C1 + eps);
    }
    for (int r = 0; r < TILE_ROWS; r++, u += 4, acc += 4)
        UNROLL for (int i = 0; i < 4; i++) u[i] =
            activate_float16(fma(acc[i] * (float16)(scale[r]), vload16(i, norm), vload16(4 + i, norm)), ACT_GELU);
}

/* Two logits of each of `count` rows, at most six: v . vector, v two pixels of C2 channels. Row r's are at y +
 * at[r]. */
NOINLINE void dots(__global float *y, const int *at, int count, const float16 *v, __global const T *vector) {
    const float16 v0 = LOAD16(vector, 0), v1 = LOAD16(vector, 16);
    for (int r = 0; r < count; r += 2, v += 8) dot_rows(y, at + r, count - r, v, v0, v1);
}

/* A row of both updates as the left side of shared_product; returns the factor of the shared image. */
static inline float traced_row(float16 *s, __global const float *trace, __global const float *trace2) {
    const float f2 = trace2[TRACE - 1], both = trace[TRACE - 1] * f2;
    float *rest = (float *)(s + 8);
    for (int i = 0; i < 4; i++) {
        s[i] = vload16(i, trace) * (float16)(both);
        s[4 + i] = vload16(i, trace2) * (float16)(f2);
    }
    rest[0] = both, rest[1] = f2;
    return both;
}

/* Group (i, n): group_pixels of the pixels of item n that are seen (portable/tokens_seen); the logits of
 * the others are not written. x [n][pixels][K]; w1 [2a + b][K][C1], w2 [c][C1][d][C2] for the pixel (2a + c, 2b + d)
 * of the block; norm {bias 1, gamma, beta} [3][C1]; vectors [n][masks][C2]; y [n * masks][4 h][4 w]. For prompts of
 * way 1: shared [map[n]][rows][4 C1], trace [n][2][pixels][TRACE], values 1 and 2 [n][2a + b][columns][C1], constants
 * [2a + b]{of factors [2], to add}[C1]. */
NOINLINE void upscale_group(__global float *restrict y, __global const T *restrict x, __global const float *restrict w1,
                            __global const float *restrict norm, __global const float *restrict w2,
                            __global const float *restrict b2, __global const T *restrict vectors,
                            __global const float *restrict shared, __global const float *restrict trace,
                            __global const float *restrict values1, __global const float *restrict values2,
                            __global const float *restrict constants, __global const int *restrict map,
                            __global const int *restrict ways, __global const int *restrict limit,
                            __global const int *restrict content, __global const int *restrict image_of,
                            cpu_upscale_args arg, const int4 group) {
    const int n = group.y, w = arg.common.w, pixels = arg.common.h * w, wide = w * 4;
    if (n >= *limit) return;
    const int2 shown = tokens_seen(content, image_of, n, arg.common.seen, (int2)(w, arg.common.h));
    const int first = group_by_turns(group.x, group.w) * arg.group_pixels;
    const int last = min(shown.x * shown.y, first + arg.group_pixels);
    if (first >= last) return;
    const int columns = arg.sharing.value_columns && ways[n] ? arg.sharing.value_columns : 0;
    const int depth = arg.sharing.noted_columns, masks = arg.common.vectors, image_ld = arg.sharing.image_ld;
    const int x_ld = arg.common.x_ld, x_c0 = arg.common.x_c0;
    float16 xs[TILE_ROWS * XS / 16], acc[TILE_ROWS * 4], u[TILE_ROWS * 4], rest[4 * 8];
    if (columns) {
        shared += (size_t)map[n] * arg.sharing.image_length * arg.sharing.image_ld + arg.sharing.image_c0;
        values1 += (size_t)n * 4 * columns * C1;
        values2 += (size_t)n * 4 * columns * C1;
        sum_constants(rest, constants, values1, values2, depth, columns);
    }
    y += (size_t)n * masks * pixels * 16;
    for (int p = first; p < last; p += TILE_ROWS) {
        float f[TILE_ROWS];
        int pixel[TILE_ROWS], at[TILE_ROWS]; /* at: of its first logit */
        place_tokens(pixel, at, TILE_ROWS, p, last - 1, shown.x, w);
        const int ahead = min(pixel[TILE_ROWS - 1] + 1, pixels - 1), count = min(TILE_ROWS, last - p);
        __global const T *next = x + ((size_t)n * pixels + ahead) * x_ld + x_c0;
        for (int r = 0; r < TILE_ROWS; r++) {
            const size_t row = (size_t)n * pixels + pixel[r];
            if (columns)
                f[r] = traced_row(xs + r * (TRACED / 16), trace + (row + (size_t)n * pixels) * TRACE,
                                  trace + (row + (size_t)(n + 1) * pixels) * TRACE);
            else
                for (int i = 0; i < K / 16; i++) xs[r * (K / 16) + i] = LOAD16(x, row * x_ld + x_c0 + i * 16);
        }
        for (int phase = 0; phase < 4; phase++) {
            if (columns) {
                __global const float *to_add = constants + (phase * 3 + 2) * C1;
                for (int r = 0; r < TILE_ROWS; r++)
                    UNROLL for (int j = 0; j < 4; j++) acc[r * 4 + j] = fma(
                        vload16(j, shared + pixel[r] * image_ld + phase * C1), (float16)(f[r]), vload16(j, to_add));
                shared_product(acc, (const float *)xs, depth, values1 + phase * columns * C1,
                               values2 + phase * columns * C1, (const float *)(rest + phase * 8),
                               shared + ahead * image_ld + phase * TILE_ROWS * C1,
                               trace + (((size_t)n * 2 + phase / 2) * pixels + ahead) * TRACE +
                                   phase % 2 * (TILE_ROWS * TRACE / 2));
            } else {
                first_product(acc, (const float *)xs, w1 + phase * K * C1, norm, next);
            }
            norm_gelu(u, acc, norm + C1, arg.common.eps);
            for (int second = 0; second < 2; second++) {
                second_product(acc, (const float *)u, w2 + second * C1 * 2 * C2, b2);
                activate_all(acc, TILE_ROWS * 4, ACT_GELU);
                for (int m = 0; m < masks; m++)
                    dots(y + (size_t)m * pixels * 16 + ((phase >> 1) * 2 + second) * wide + (phase & 1) * 2, at, count,
                         acc, vectors + ((size_t)n * masks + m) * arg.common.vectors_ld + arg.common.vectors_c0);
            }
        }
    }
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
upscale(__global float *restrict y, __global const T *restrict x, __global const float *restrict w1,
        __global const float *restrict norm, __global const float *restrict w2, __global const float *restrict b2,
        __global const T *restrict vectors, __global const float *restrict shared, __global const float *restrict trace,
        __global const float *restrict values1, __global const float *restrict values2,
        __global const float *restrict constants, __global const int *restrict map, __global const int *restrict ways,
        __global const int *restrict limit, __global const int *restrict content, __global const int *restrict image_of,
        cpu_upscale_args arg) {
    upscale_group(y, x, w1, norm, w2, b2, vectors, shared, trace, values1, values2, constants, map, ways, limit,
                  content, image_of, arg, THIS_GROUP);
}
