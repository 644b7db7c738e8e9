/* Depthwise 3x3 convolution, layer norm, linear layer, activation and a second linear layer with residual
 * (graph/nodes.h), for CPUs: one work-item per group, needs cpu/tile.
 *
 * For each piece of work a group normalises at most CHUNK rows into private memory and takes them through the layers;
 * what lies between stays in the second-level cache. Hidden channels come in blocks, each of which adds its part to the
 * second layer's sums. Every tile asks for its part of the panel of weights that follows and for the lines that it will
 * store, or, in the first of two layers, for rows of the next piece.
 * -D C_MAX: channels of x and of a block of hidden channels at most, a multiple of 64. -D CHUNK: rows, a multiple of
 * 6. -D STRASSEN: products by cpu/strassen, CHUNK a multiple of 12; -D BLOCK: hidden channels of a block at most. */

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
NOINLINE void spread_pixel(float16 *u, int vectors, __global const T *x, int line, int ld, int top, int bottom,
                           int left, int right, __global const float *w, __global const float *b) {
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

/* u [6][vectors] = rows `first` on of a map of `total`, or of its depthwise sums where it has a width; rows from `end`
 * on repeat the one before them. */
NOINLINE void take_tile(float16 *u, int vectors, __global const T *x, int ld, int first, int end, int total, int width,
                        __global const float *w, __global const float *b) {
    for (int r = 0; r < TILE_ROWS; r++, u += vectors) {
        const int pixel = min(first + r, end - 1);
        __global const T *at = x + (size_t)pixel * ld;
        if (!width) {
            for (int i = 0; i < vectors; i++) u[i] = LOAD16(at, i * 16);
            continue;
        }
        const int oy = pixel / width, ox = pixel - oy * width;
        const bool below = pixel + width < total, whole = r == 0 && first + TILE_ROWS <= end;
        if (whole && oy > 0 && below && ox > 0 && ox + TILE_ROWS < width) {
            spread_tile(u, vectors, at - (width + 1) * ld, width * ld, ld, w, b);
            return;
        }
        spread_pixel(u, vectors, at, width * ld, ld, oy == 0, below ? 3 : 2, ox == 0, ox + 1 < width ? 3 : 2, w, b);
    }
}

#ifdef STRASSEN
/* Both layers by cpu/strassen: the first halves rows, channels of x and each block of hidden channels, the second rows,
 * the block and its results. The second adds up products over the blocks, results are made of them at the end. */

/* to [tile][ldt][6], seven of them `apart`: factors of the activations of what v [7][rows][nv] sums up to. */
NOINLINE void hidden_factors(float16 *to, int ldt, int apart, const float16 *v, int rows, int nv, int act) {
    for (int r = 0; r < rows; r++) {
        float16 *line = to + r / TILE_ROWS * ldt * TILE_ROWS + r % TILE_ROWS;
        for (int i = 0; i < nv; i++, v++, line += TILE_ROWS) {
            float16 c[4];
            strassen_sums(c, v, rows * nv);
            if (act == ACT_GELU) {
                for (int q = 0; q < 4; q++) c[q] = ist_gelu_float16(c[q]);
            } else {
                for (int q = 0; q < 4; q++) c[q] = activate_float16(c[q], act);
            }
            strassen_factors(line, apart, c[0], c[1], c[2], c[3]);
        }
    }
}

/* The first `count` rows of y, whose right half is `side` elements from the left: activations of what v [7][rows][nv]
 * sums up to. */
NOINLINE void store_sums(__global T *y, int ldy, int side, const float16 *v, int rows, int nv, int count, int act) {
    for (int r = 0; r < rows; r++) {
        const int upper = r / TILE_ROWS * TILE_ROWS + r, lower = upper + TILE_ROWS;
        if (upper >= count) break;
        for (int i = 0; i < nv; i++, v++) {
            const size_t at = (size_t)upper * ldy + i * 16, below = at + TILE_ROWS * ldy;
            float16 c[4];
            strassen_sums(c, v, rows * nv);
            STORE16(activate_float16(c[0], act), y, at);
            STORE16(activate_float16(c[1], act), y, at + side);
            if (lower >= count) continue;
            STORE16(activate_float16(c[2], act), y, below);
            STORE16(activate_float16(c[3], act), y, below + side);
        }
    }
}

/* As the plain one below, by pairs of tiles, with w1 and w2 for cpu/strassen: [block of hidden channels][panel][7]
 * [half of k][columns], where k are the c channels for w1, for w2 those of the block. */
NOINLINE void norm_mlp_group(__global T *restrict y, __global const T *restrict x, __global const float *restrict norm,
                             __global const float *restrict w0, __global const float *restrict b0,
                             __global const float *restrict w1, __global const float *restrict b1,
                             __global const float *restrict w2, __global const float *restrict b2,
                             __global const int *restrict limit, const cpu_norm_mlp_args arg,
                             __global int *queue, const int4 group) {
    enum { PAIR = 2 * TILE_ROWS };
    const int c = arg.c, hidden = arg.hidden, block = arg.block_c, c2 = arg.c2, act = arg.act, width = arg.width;
    const int x_ld = arg.x_ld, y_ld = arg.y_ld, pieces = arg.pieces;
    const int c_half = c / 2, block_half = block / 2, c2_half = c2 / 2, cv = c_half / 16, bv = block_half / 16;
    const int all = (arg.rows + PAIR - 1) / PAIR;
    float16 u[PRODUCTS * CHUNK * C_MAX / 64], h[PRODUCTS * CHUNK * BLOCK / 64], o[PRODUCTS * CHUNK * C_MAX / 64];
    float16 sums[PRODUCTS * CHUNK / 2 * NV], bias[PRODUCTS * NV], pair[PAIR * C_MAX / 16];
    work_t shares = work_begin(group.w, min(arg.items, *limit) * pieces, arg.backwards);
    for (int item; (item = work_next(&shares, queue)) >= 0;) {
        const int n = item / pieces, piece = item - n * pieces, begin = piece * all / pieces;
        const int first = begin * PAIR, tiles = (piece + 1) * all / pieces - begin, half_rows = tiles * TILE_ROWS;
        const int rows = min(tiles * PAIR, arg.rows - first);
        const int away = arg.backwards ? -rows - width : rows + width; /* what the next piece reads first */
        const size_t row0 = (size_t)n * arg.rows + first;
        __global const T *from = x + (size_t)n * arg.rows * x_ld + arg.x_c0;
        for (int t = 0; t < tiles; t++) {
            for (int part = 0; part < 2; part++)
                take_tile(pair + part * TILE_ROWS * 2 * cv, 2 * cv, from, x_ld, first + t * PAIR + part * TILE_ROWS,
                          first + rows, arg.rows, width, w0, b0);
            for (int j = 0, columns; j < c2_half; j += columns) {
                columns = strassen_columns(c2_half - j);
                float16 *to = o + (PRODUCTS * half_rows * j + t * TILE_ROWS * columns) / 16;
                for (int r = 0; r < TILE_ROWS; r++) {
                    const float16 *upper = pair + r * 2 * cv, *lower = upper + TILE_ROWS * 2 * cv;
                    for (int i = j / 16; i < (j + columns) / 16; i++) {
                        const float16 left = vload16(i, b2), right = vload16(i + cv, b2);
                        strassen_start(to++, half_rows * columns / 16, upper[i] + left, upper[cv + i] + right,
                                       lower[i] + left, lower[cv + i] + right);
                    }
                }
            }
            for (int part = 0; part < 2; part++) norm_tile(pair + part * TILE_ROWS * 2 * cv, 2 * cv, norm, arg.eps);
            for (int r = 0; r < TILE_ROWS; r++) {
                const float16 *upper = pair + r * 2 * cv, *lower = upper + TILE_ROWS * 2 * cv;
                for (int i = 0; i < cv; i++)
                    strassen_factors(u + (t * cv + i) * TILE_ROWS + r, half_rows * cv, upper[i], upper[cv + i],
                                     lower[i], lower[cv + i]);
            }
        }
        for (int k = 0; k < hidden; k += block) {
            __global const float *b = w1 + PRODUCTS * c_half * k / 2;
            for (int j = 0, columns; j < block_half; j += columns) {
                columns = strassen_columns(block_half - j);
                const int nv = columns / 16;
                for (int i = 0; i < nv; i++) {
                    const float16 left = vload16(i, b1 + k + j), right = vload16(i, b1 + k + block_half + j);
                    strassen_start(bias + i, NV, left, right, left, right);
                }
                __global const float *own = b;
                b += PRODUCTS * c_half * columns;
                __global const float *next = c2 && j + columns == block_half ? w2 + PRODUCTS * c2_half * k / 2 : b;
                __global T *to = y + row0 * y_ld + arg.y_c0 + j;
                if (c2) {
                    __global const T *soon = x + (row0 + away) * x_ld + arg.x_c0 + k / block * 64 % c;
                    strassen_products(sums, bias, u, tiles, own, c_half, columns, next, soon, 0, j ? 0 : x_ld);
                    hidden_factors(h + j / 16 * TILE_ROWS, bv, half_rows * bv, sums, half_rows, nv, act);
                } else {
                    strassen_products(sums, bias, u, tiles, own, c_half, columns, next, to, block_half, y_ld);
                    store_sums(to, y_ld, block_half, sums, half_rows, nv, rows, act);
                }
            }
            b = w2 + PRODUCTS * c2_half * k / 2;
            for (int j = 0, columns; j < c2_half; j += columns) {
                columns = strassen_columns(c2_half - j);
                __global const float *own = b;
                b += PRODUCTS * block_half * columns;
                __global const float *next = j + columns == c2_half ? w1 + PRODUCTS * c_half * (k + block) / 2 : b;
                strassen_products(o + PRODUCTS * half_rows * j / 16, 0, h, tiles, own, block_half, columns, next,
                                  y + row0 * y_ld + arg.y_c0 + j, c2_half, y_ld);
            }
        }
        for (int j = 0, columns; j < c2_half; j += columns) {
            columns = strassen_columns(c2_half - j);
            store_sums(y + row0 * y_ld + arg.y_c0 + j, y_ld, c2_half, o + PRODUCTS * half_rows * j / 16, half_rows,
                       columns / 16, rows, ACT_NONE);
        }
    }
    work_end(&shares, queue);
}
#else
/* Group: takes pieces of tiles of six rows, `queue` (see prelude) saying which, at most CHUNK rows each. w1 [hidden /
 * PANEL][c][PANEL], w2 [c2 / PANEL][hidden][PANEL], the last panel of what is stored may be half; norm {gamma, beta}
 * [2][c]; spread as above, with biases. */
NOINLINE void norm_mlp_group(__global T *restrict y, __global const T *restrict x, __global const float *restrict norm,
                             __global const float *restrict w0, __global const float *restrict b0,
                             __global const float *restrict w1, __global const float *restrict b1,
                             __global const float *restrict w2, __global const float *restrict b2,
                             __global const int *restrict limit, const cpu_norm_mlp_args arg,
                             __global int *queue, const int4 group) {
    const int c = arg.c, hidden = arg.hidden, block = arg.block_c, c2 = arg.c2, act = arg.act, width = arg.width;
    const int x_ld = arg.x_ld, y_ld = arg.y_ld, pieces = arg.pieces;
    const int cv = c / 16, bv = block / 16, all = (arg.rows + TILE_ROWS - 1) / TILE_ROWS;
    float16 u[CHUNK * C_MAX / 16], h[CHUNK * C_MAX / 16], o[CHUNK * C_MAX / 16], acc[SUMS], bias[NV];
    work_t shares = work_begin(group.w, min(arg.items, *limit) * pieces, arg.backwards);
    for (int item; (item = work_next(&shares, queue)) >= 0;) {
        const int n = item / pieces, piece = item - n * pieces, begin = piece * all / pieces;
        const int first = begin * TILE_ROWS, tiles = (piece + 1) * all / pieces - begin;
        const int rows = min(tiles * TILE_ROWS, arg.rows - first);
        const int away = arg.backwards ? -rows - width : rows + width; /* what the next piece reads first */
        const size_t row0 = (size_t)n * arg.rows + first;
        for (int t = 0; t < tiles; t++)
            take_tile(u + t * TILE_ROWS * cv, cv, x + (size_t)n * arg.rows * x_ld + arg.x_c0, x_ld,
                      first + t * TILE_ROWS, first + rows, arg.rows, width, w0, b0);
        for (int r = 0; r < tiles * TILE_ROWS; r++)
            for (int i = 0; i < c2 / 16; i++) o[r * (c2 / 16) + i] = vload16(i, b2) + u[r * cv + i];
        for (int t = 0; t < tiles; t++) norm_tile(u + t * TILE_ROWS * cv, cv, norm, arg.eps);
        for (int k = 0; k < hidden; k += block) {
            for (int j = k; j < k + block; j += PANEL) {
                const int columns = min(PANEL, hidden - j), nv = columns / 16;
                __global const float *next = !c2 || j + PANEL < k + block ? w1 + (j + PANEL) * c : w2 + k * PANEL;
                for (int i = 0; i < nv; i++) bias[i] = vload16(i, b1 + j);
                for (int t = 0; t < tiles; t++) {
                    const size_t row = row0 + t * TILE_ROWS;
                    __global const T *near =
                        c2 ? x + (row + away) * x_ld + arg.x_c0 + (j - k) % c : y + row * y_ld + arg.y_c0 + j;
                    float16 *to = c2 ? h + t * TILE_ROWS * bv + (j - k) / 16 : acc;
                    part_product(to, c2 ? bv : nv, bias, 0, (const float *)(u + t * TILE_ROWS * cv), c, w1 + j * c, c,
                                 columns, next + t * c * 8, near, c2 ? x_ld : y_ld);
                    if (c2) {
                        activate_rows(to, TILE_ROWS, NV, bv, act);
                        continue;
                    }
                    activate_all(acc, TILE_ROWS * nv, act);
                    for (int r = 0, i = 0; r < min(TILE_ROWS, rows - t * TILE_ROWS); r++)
                        for (int v = 0; v < nv; v++, i++) STORE16(acc[i], y, (row + r) * y_ld + arg.y_c0 + j + v * 16);
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
                                 y + (row0 + t * TILE_ROWS) * y_ld + arg.y_c0 + j, y_ld);
                }
            }
        }
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < c2; i += 16)
                STORE16(o[(r * c2 + i) / 16], y, (row0 + r) * y_ld + arg.y_c0 + i);
    }
    work_end(&shares, queue);
}

#endif

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
norm_mlp(__global T *restrict y, __global const T *restrict x, __global const float *restrict norm,
         __global const float *restrict w0, __global const float *restrict b0, __global const float *restrict w1,
         __global const float *restrict b1, __global const float *restrict w2, __global const float *restrict b2,
         __global const int *restrict limit, cpu_norm_mlp_args arg, __global int *queue) {
    norm_mlp_group(y, x, norm, w0, b0, w1, b1, w2, b2, limit, arg, queue, THIS_GROUP);
}
