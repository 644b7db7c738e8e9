/* Depthwise 3x3 convolution, layer norm, linear layer, activation and a second linear layer with residual
 * (src/ops/norm_mlp.h), for CPUs: one work-item per group, needs isa/tile.
 *
 * For each piece of work a group normalises at most CHUNK rows into private memory and takes them through the layers;
 * what lies between stays in the second-level cache. Hidden channels come in blocks, each of which adds its part to the
 * second layer's sums. Every tile asks for its part of the panel of weights that follows and for the lines that it will
 * store, or, in the first of two layers, for rows of the next piece.
 * -D C_MAX: channels of x and of a block of hidden channels at most, a multiple of 64. -D CHUNK: rows, a multiple of
 * 6. */

#define NV   PANEL_VECTORS
#define SUMS (TILE_ROWS * NV)

/* panel_product of a panel of `columns` columns: PANEL, or half of 64. */
static inline void part_product(float16 *to, int ldt, const float16 *from, int ldf, const float *a, int lda,
                                __global const float *b, int k, int columns, __global const float *p,
                                __global const T *q, int ldq) {
#if PANEL == 64
    if (columns < PANEL) {
        tile6x2_next(to, ldt, from, ldf, a, lda, b, k, q, ldq);
        return;
    }
#endif
    panel_product(to, ldt, from, ldf, a, lda, b, k, p, q, ldq);
}

/* Norm of a tile's rows, as many at a time as registers hold sums and means of; norm {gamma, beta} [2][vectors]. */
NOINLINE void norm_tile(float16 *u, int vectors, __global const float *norm, float eps) {
    enum { TOGETHER = PANEL == 64 ? TILE_ROWS : TILE_ROWS / 2 };
    for (int r = 0; r < TILE_ROWS; r += TOGETHER)
        norm_rows(u + r * vectors, TOGETHER, vectors, norm, norm + vectors * 16, eps);
}

/* u = depthwise sums of the pixel at x, `line` and `ld` elements from its neighbours below and on the right; of lines
 * [top, bottom) and columns [left, right) of the window, the others are padding. w [vectors][9][16]. */
NOINLINE void spread_pixel(float16 *u, int vectors, __global const T *x, int line, int ld, int top, int bottom, int left,
                           int right, __global const float *w, __global const float *b) {
#define TAP(t) sum = fma(LOAD16(x, at + (t / 3 - 1) * line + (t % 3 - 1) * ld), vload16(t, w), sum);
    const bool inside = bottom - top == 3 && right - left == 3;
    for (int i = 0, at = 0; i < vectors; i++, at += 16, w += 9 * 16) {
        float16 sum = vload16(i, b);
        if (inside) {
            TAP(0) TAP(1) TAP(2) TAP(3) TAP(4) TAP(5) TAP(6) TAP(7) TAP(8)
        } else {
            for (int ky = top; ky < bottom; ky++)
                for (int kx = left; kx < right; kx++)
                    sum = fma(LOAD16(x, at + (ky - 1) * line + (kx - 1) * ld), vload16(ky * 3 + kx, w), sum);
        }
        u[i] = sum;
    }
#undef TAP
}

/* The same for a tile's pixels side by side, windows within the map, the first of which begins at x. */
NOINLINE void spread_tile(float16 *u, int vectors, __global const T *x, int line, int ld, __global const float *w,
                          __global const float *b) {
    for (int i = 0; i < vectors; i++, x += 16, w += 9 * 16) {
        float16 sum[TILE_ROWS];
#pragma unroll
        for (int r = 0; r < TILE_ROWS; r++) sum[r] = vload16(i, b);
        __global const T *column = x;
#pragma unroll
        for (int c = 0; c < TILE_ROWS + 2; c++, column += ld)
#pragma unroll
            for (int ky = 0; ky < 3; ky++) {
                const float16 v = LOAD16(column, ky * line);
#pragma unroll
                for (int kx = 0; kx < 3; kx++)
                    if (c - kx >= 0 && c - kx < TILE_ROWS)
                        sum[c - kx] = fma(v, vload16(ky * 3 + kx, w), sum[c - kx]);
            }
#pragma unroll
        for (int r = 0; r < TILE_ROWS; r++) u[r * vectors + i] = sum[r];
    }
}

/* Group: takes pieces of tiles of six rows, `queue` (see prelude) saying which, at most CHUNK rows each. w1 [hidden /
 * PANEL][c][PANEL], w2 [c2 / PANEL][hidden][PANEL], the last panel of what is stored may be half; norm {gamma, beta} [2][c]; spread as above, with biases. sizes {rows per item, c, hidden, block
 * of hidden, c2 (0: no second layer), act, residual?, columns of the map, 0: no depthwise convolution}; lds {x ld, c0, y ld, c0};
 * work {items, pieces of each, backwards?, 0}. */
NOINLINE void norm_mlp_group(__global T *restrict y, __global const T *restrict x, __global const float *restrict norm,
                             __global const float *restrict w0, __global const float *restrict b0,
                             __global const float *restrict w1, __global const float *restrict b1,
                             __global const float *restrict w2, __global const float *restrict b2,
                             __global const int *restrict limit, int8 sizes, int4 lds, int4 work, __global int *queue,
                             float eps, const int4 group) {
    const int c = sizes.s1, hidden = sizes.s2, block = sizes.s3, c2 = sizes.s4, act = sizes.s5;
    const int cv = c / 16, bv = block / 16, all = (sizes.s0 + TILE_ROWS - 1) / TILE_ROWS, width = sizes.s7;
    float16 u[CHUNK * C_MAX / 16], h[CHUNK * C_MAX / 16], o[CHUNK * C_MAX / 16], acc[SUMS], bias[NV];
    work_t shares = work_begin(group.w, min(work.x, *limit) * work.y, work.z);
    for (int item; (item = work_next(&shares, queue)) >= 0;) {
        const int n = item / work.y, piece = item - n * work.y, begin = piece * all / work.y;
        const int first = begin * TILE_ROWS, tiles = (piece + 1) * all / work.y - begin;
        const int rows = min(tiles * TILE_ROWS, sizes.s0 - first);
        const int away = work.z ? -rows - width : rows + width; /* what the next piece reads first */
        const size_t row0 = (size_t)n * sizes.s0 + first;
        for (int r = 0; r < tiles * TILE_ROWS; r++) {
            const size_t at = (row0 + min(r, rows - 1)) * lds.x + lds.y;
            if (width) {
                const int pixel = first + min(r, rows - 1), oy = pixel / width, ox = pixel - oy * width;
                const bool below = pixel + width < sizes.s0, whole = r % TILE_ROWS == 0 && r + TILE_ROWS <= rows;
                if (whole && oy > 0 && below && ox > 0 && ox + TILE_ROWS < width) {
                    spread_tile(u + r * cv, cv, x + at - (width + 1) * lds.x, width * lds.x, lds.x, w0, b0);
                    r += TILE_ROWS - 1;
                    continue;
                }
                spread_pixel(u + r * cv, cv, x + at, width * lds.x, lds.x, oy == 0, below ? 3 : 2, ox == 0,
                             ox + 1 < width ? 3 : 2, w0, b0);
            } else {
                for (int i = 0; i < cv; i++) u[r * cv + i] = LOAD16(x, at + i * 16);
            }
        }
        for (int r = 0; r < tiles * TILE_ROWS; r++)
            for (int i = 0; i < c2 / 16; i++) {
                float16 v = vload16(i, b2);
                if (sizes.s6) v += u[r * cv + i];
                o[r * (c2 / 16) + i] = v;
            }
        for (int t = 0; t < tiles; t++) norm_tile(u + t * TILE_ROWS * cv, cv, norm, eps);
        for (int k = 0; k < hidden; k += block) {
            for (int j = k; j < k + block; j += PANEL) {
                const int columns = min(PANEL, hidden - j), nv = columns / 16;
                __global const float *next = !c2 || j + PANEL < k + block ? w1 + (j + PANEL) * c : w2 + k * PANEL;
                for (int i = 0; i < nv; i++) bias[i] = vload16(i, b1 + j);
                for (int t = 0; t < tiles; t++) {
                    const size_t row = row0 + t * TILE_ROWS;
                    __global const T *near =
                        c2 ? x + (row + away) * lds.x + lds.y + (j - k) % c : y + row * lds.z + lds.w + j;
                    float16 *to = c2 ? h + t * TILE_ROWS * bv + (j - k) / 16 : acc;
                    part_product(to, c2 ? bv : nv, bias, 0, (const float *)(u + t * TILE_ROWS * cv), c, w1 + j * c, c,
                                 columns, next + t * c * 8, near, c2 ? lds.x : lds.z);
                    if (c2) {
                        activate_rows(to, TILE_ROWS, NV, bv, act);
                        continue;
                    }
                    activate_all(acc, TILE_ROWS * nv, act);
                    for (int r = 0, i = 0; r < min(TILE_ROWS, rows - t * TILE_ROWS); r++)
                        for (int v = 0; v < nv; v++, i++) STORE16(acc[i], y, (row + r) * lds.z + lds.w + j + v * 16);
                }
            }
            for (int j = 0; j < c2; j += PANEL) {
                const int columns = min(PANEL, c2 - j);
                __global const float *next =
                    j + PANEL < c2 ? w2 + ((j + PANEL) * hidden + k * PANEL) : w1 + (k + block) * c;
                for (int t = 0; t < tiles; t++) {
                    float16 *sums = o + t * TILE_ROWS * (c2 / 16) + j / 16;
                    part_product(sums, c2 / 16, sums, c2 / 16, (const float *)(h + t * TILE_ROWS * bv), block,
                                 w2 + (j * hidden + k * columns), block, columns, next + t * block * 8,
                                 y + (row0 + t * TILE_ROWS) * lds.z + lds.w + j, lds.z);
                }
            }
        }
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < c2; i += 16)
                STORE16(o[(r * c2 + i) / 16], y, (row0 + r) * lds.z + lds.w + i);
    }
    work_end(&shares, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
norm_mlp(__global T *restrict y, __global const T *restrict x, __global const float *restrict norm,
         __global const float *restrict w0, __global const float *restrict b0, __global const float *restrict w1, __global const float *restrict b1, __global const float *restrict w2,
         __global const float *restrict b2, __global const int *restrict limit, int8 sizes, int4 lds, int4 work,
         __global int *queue, float eps) {
    norm_mlp_group(y, x, norm, w0, b0, w1, b1, w2, b2, limit, sizes, lds, work, queue, eps, THIS_GROUP);
}
