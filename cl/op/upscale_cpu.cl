/* SAM's mask upscaling from image tokens to logits (src/ops/upscale.h), for CPUs: one work-item per group, needs
 * isa/tile.
 *
 *     u = gelu(LN(deconv1(x)));  v = gelu(deconv2(u));  logit[m] = v . vectors[m]
 *
 * Transposed 2x2 convolutions with stride 2 do not overlap: an input pixel becomes 4 x 4 results on its own. Six pixels
 * go through all steps in registers and the first-level cache.
 * -D K: input channels; 64 and 32 are the channels of u and v. */
#define C1 64
#define C2 32

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
__attribute__((noinline)) static void second_product(float16 *acc, const float *u, __global const float *w2) {
    tile6x4(acc, u, C1, w2, 2 * C2, C1);
}

/* Group (i, n): pixels [i * sizes.z, ..) of item n. x [n][pixels][K]; w1 [2a + b][K][C1], w2 [c][C1][d][C2] for the
 * pixel (2a + c, 2b + d) of the block; norm {bias 1, gamma, beta} [3][C1]; vectors [n][masks][C2]; y [n * masks][4
 * h][4 w]. sizes {height, width, pixels per group, masks}; lds {x ld, c0, vectors ld, c0}. */
__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
upscale(__global float *restrict y, __global const T *restrict x, __global const float *restrict w1,
        __global const float *restrict norm, __global const float *restrict w2, __global const float *restrict b2,
        __global const T *restrict vectors, __global const int *restrict limit, int4 sizes, int4 lds, float eps) {
    const int n = get_group_id(1), pixels = sizes.x * sizes.y, first = get_group_id(0) * sizes.z;
    if (n >= *limit) return;
    const int last = min(pixels, first + sizes.z);
    float16 xs[TILE_ROWS * K / 16], acc[TILE_ROWS * 4], u[TILE_ROWS * 4];
    for (int p = first; p < last; p += TILE_ROWS) {
        for (int r = 0; r < TILE_ROWS; r++)
            for (int i = 0; i < K / 16; i++)
                xs[r * (K / 16) + i] =
                    LOAD16(x, ((size_t)n * pixels + min(p + r, last - 1)) * lds.x + lds.y + i * 16);
        __global const T *next = x + ((size_t)n * pixels + min(p + TILE_ROWS, pixels - 1)) * lds.x + lds.y;
        for (int phase = 0; phase < 4; phase++) {
            const float16 g0 = vload16(4, norm), g1 = vload16(5, norm), g2 = vload16(6, norm), g3 = vload16(7, norm);
            const float16 h0 = vload16(8, norm), h1 = vload16(9, norm), h2 = vload16(10, norm), h3 = vload16(11, norm);
            for (int i = 0; i < TILE_ROWS * 4; i++) acc[i] = vload16(i % 4, norm);
            first_product(acc, (const float *)xs, w1 + phase * K * C1, next);
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
