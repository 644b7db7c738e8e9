/* SAM's mask upscaling from image tokens to logits (src/ops/upscale.h), for CPUs: one work-item per group, needs
 * isa/tile.
 *
 *     u = gelu(LN(deconv1(x)));  v = gelu(deconv2(u));  logit[m] = v . vectors[m]
 *
 * Transposed 2x2 convolutions with stride 2 do not overlap: an input pixel becomes 4 x 4 results on its own. Six pixels
 * go through all steps in registers and the first-level cache.
 * -D K: input channels; 64 and 32 are the channels of u and v.
 *
 * Prompts of way 1 share deconv1 of their image as it was before two updates (ops/upscale.h). An update x = (x + s
 * values
 * + bias - m) f gamma + beta of a row is linear but for the factor f and the mean m, which were noted with the weights
 * s: what is left for each prompt is a product of depth 2 columns + 4 where x W has depth K. */
#define C1 64
#define C2 32
#define TRACE  80            /* floats of a noted update: 64 weights, factor, mean */
#define TRACED (2 * 64 + 16) /* floats of a row of weights, factors and means */
#define XS     (K > TRACED ? K : TRACED)

#define NORM_SUM(r)                                                                                                    \
    {                                                                                                                  \
        float16 *v = acc + r * 4;                                                                                      \
        const float mean = sum16((v[0] + v[1]) + (v[2] + v[3])) / C1;                                                  \
        const float16 d0 = v[0] - mean, d1 = v[1] - mean, d2 = v[2] - mean, d3 = v[3] - mean;                          \
        const float16 square = fma(d0, d0, d1 * d1) + fma(d2, d2, d3 * d3);                                            \
        const float16 scale = (float16)(1.0f / sqrt(sum16(square) / C1 + eps));                                        \
        u[r * 4] = activate_float16(fma(d0 * scale, g0, h0), ACT_GELU);                                                \
        u[r * 4 + 1] = activate_float16(fma(d1 * scale, g1, h1), ACT_GELU);                                            \
        u[r * 4 + 2] = activate_float16(fma(d2 * scale, g2, h2), ACT_GELU);                                            \
        u[r * 4 + 3] = activate_float16(fma(d3 * scale, g3, h3), ACT_GELU);                                            \
    }

/* The products are functions of their own: beside other code the compiler would keep that code's constants in registers
 * and move the accumulators of the products to memory. */
__attribute__((noinline)) static void first_product(float16 *acc, const float *x, __global const float *w1,
                                                    __global const T *next) {
    tile6x4_ahead(acc, x, K, w1, C1, K, next, next);
}
/* w1, w2 [columns][C1] of the updates, w [4][C1] of factors and means. */
__attribute__((noinline)) static void shared_product(float16 *acc, const float *s, int columns,
                                                     __global const float *w1, __global const float *w2,
                                                     __global const float *w, __global const float *next,
                                                     __global const float *next_trace) {
    tile6x4_ahead(acc, s, TRACED, w1, C1, columns, (__global const T *)next, (__global const T *)next_trace);
    tile6x4(acc, s + 64, TRACED, w2, C1, columns);
    tile6x4(acc, s + 128, TRACED, w, C1, 4);
}
__attribute__((noinline)) static void second_product(float16 *acc, const float *u, __global const float *w2) {
    tile6x4(acc, u, C1, w2, 2 * C2, C1);
}

/* A row of both updates as the left side of shared_product; returns the factor of the shared image. */
static inline float traced_row(float16 *s, __global const float *trace) {
    const float f = trace[64], m = trace[65], f2 = trace[TRACE + 64], m2 = trace[TRACE + 65], both = f * f2;
    for (int i = 0; i < 4; i++) {
        s[i] = vload16(i, trace) * (float16)(both);
        s[4 + i] = vload16(i, trace + TRACE) * (float16)(f2);
    }
    s[8] = (float16)(both, both * m, f2, f2 * m2, 0.0f, 0.0f, 0.0f, 0.0f, (float8)(0.0f));
    return both;
}

/* Group (i, n): pixels [i * sizes.z, ..) of item n. x [n][pixels][K]; w1 [2a + b][K][C1], w2 [c][C1][d][C2] for the
 * pixel (2a + c, 2b + d) of the block; norm {bias 1, gamma, beta} [3][C1]; vectors [n][masks][C2]; y [n * masks][4
 * h][4 w]. sizes {height, width, pixels per group, masks}; lds {x ld, c0, vectors ld, c0}. For prompts of way 1: shared
 * [map[n]][rows][4 C1], trace [n][pixels][2][TRACE], values 1 and 2 [n][2a + b][columns][C1], constants [2a + b]{of
 * factors and means [4], to add}[C1]; sharing {columns or 0, shared ld, shared rows}. */
NOINLINE void upscale_group(__global float *restrict y, __global const T *restrict x, __global const float *restrict w1,
                            __global const float *restrict norm, __global const float *restrict w2,
                            __global const float *restrict b2, __global const T *restrict vectors,
                            __global const float *restrict shared, __global const float *restrict trace,
                            __global const float *restrict values1, __global const float *restrict values2,
                            __global const float *restrict constants, __global const int *restrict map,
                            __global const int *restrict ways, __global const int *restrict limit, int4 sizes, int4 lds,
                            int4 sharing, float eps, const int4 group) {
    const int n = group.y, pixels = sizes.x * sizes.y, first = group.x * sizes.z;
    if (n >= *limit) return;
    const int last = min(pixels, first + sizes.z), columns = sharing.x && ways[n] ? sharing.x : 0;
    float16 xs[TILE_ROWS * XS / 16], acc[TILE_ROWS * 4], u[TILE_ROWS * 4];
    if (columns) shared += (size_t)map[n] * sharing.z * sharing.y;
    for (int p = first; p < last; p += TILE_ROWS) {
        float f[TILE_ROWS];
        const int ahead = min(p + TILE_ROWS, pixels - 1);
        __global const T *next = x + ((size_t)n * pixels + ahead) * lds.x + lds.y;
        for (int r = 0; r < TILE_ROWS; r++) {
            const size_t row = (size_t)n * pixels + min(p + r, last - 1);
            if (columns)
                f[r] = traced_row(xs + r * (TRACED / 16), trace + row * 2 * TRACE);
            else
                for (int i = 0; i < K / 16; i++) xs[r * (K / 16) + i] = LOAD16(x, row * lds.x + lds.y + i * 16);
        }
        for (int phase = 0; phase < 4; phase++) {
            const float16 g0 = vload16(4, norm), g1 = vload16(5, norm), g2 = vload16(6, norm), g3 = vload16(7, norm);
            const float16 h0 = vload16(8, norm), h1 = vload16(9, norm), h2 = vload16(10, norm), h3 = vload16(11, norm);
            if (columns) {
                __global const float *c = constants + phase * 5 * C1;
                for (int i = 0; i < TILE_ROWS * 4; i++)
                    acc[i] = fma(vload16(i % 4, shared + min(p + i / 4, last - 1) * sharing.y + phase * C1),
                                 (float16)(f[i / 4]), vload16(16 + i % 4, c));
                const size_t at = ((size_t)n * 4 + phase) * columns * C1;
                shared_product(acc, (const float *)xs, columns, values1 + at, values2 + at, c,
                               shared + ahead * sharing.y + phase * TILE_ROWS * C1,
                               trace + ((size_t)n * pixels + ahead) * 2 * TRACE + phase * (TILE_ROWS * TRACE / 2));
            } else {
                for (int i = 0; i < TILE_ROWS * 4; i++) acc[i] = vload16(i % 4, norm);
                first_product(acc, (const float *)xs, w1 + phase * K * C1, next);
            }
            NORM_SUM(0) NORM_SUM(1) NORM_SUM(2) NORM_SUM(3) NORM_SUM(4) NORM_SUM(5)
            for (int line = 0; line < 2; line++) {
                for (int i = 0; i < TILE_ROWS * 4; i++) acc[i] = vload16(i % 2, b2);
                second_product(acc, (const float *)u, w2 + line * C1 * 2 * C2);
                for (int i = 0; i < TILE_ROWS * 4; i++) acc[i] = activate_float16(acc[i], ACT_GELU);
                for (int m = 0; m < sizes.w; m++) {
                    const size_t at = ((size_t)n * sizes.w + m) * lds.z + lds.w;
                    const float16 v0 = LOAD16(vectors, at), v1 = LOAD16(vectors, at + 16);
                    for (int r = 0; r < min(TILE_ROWS, last - p); r++) {
                        const int row = (p + r) / sizes.y * 4 + (phase >> 1) * 2 + line;
                        const int column = (p + r) % sizes.y * 4 + (phase & 1) * 2;
                        const size_t to = (((size_t)n * sizes.w + m) * sizes.x * 4 + row) * sizes.y * 4 + column;
                        y[to] = sum16(fma(acc[r * 4], v0, acc[r * 4 + 1] * v1));
                        y[to + 1] = sum16(fma(acc[r * 4 + 2], v0, acc[r * 4 + 3] * v1));
                    }
                }
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
        __global const int *restrict limit, int4 sizes, int4 lds, int4 sharing, float eps) {
    upscale_group(y, x, w1, norm, w2, b2, vectors, shared, trace, values1, values2, constants, map, ways, limit, sizes,
                  lds, sharing, eps, THIS_GROUP);
}
