/* Dense convolution as an implicit matrix product, for CPUs: one work-item per group owns tiles of MR output pixels by
 * NV vectors of VL output channels in named vector registers.
 *
 * Rows of the product are output pixels in storage order (all items of the batch in one sequence), columns are output
 * channels, the summation runs over kernel taps, then input channels. Where the rows of a tile are neighbours in one
 * line of the map and a tap lies inside it, their input pixels are one address and one step apart, and the products
 * read them in place. Otherwise (line ends, padding, half storage) the tap's pixels are first gathered into rows of
 * CHUNK floats with zeros for the padding. Either way there are no bounds tests inside the summation and no halo in
 * memory. Weights come in panels [column tile][tap][cin][NR], padded with zeros to whole tiles; the bias likewise.
 *
 * -D MR, NV and portable/vector's: the tile; CHUNK: floats per row of `scratch`, which has MR rows for every group.
 * Grid: x = compute units, which share out items of work by `queue` (see prelude): some row tiles by some column
 * tiles. Within an item the row tiles run faster: its pixels stay in the second-level cache for all its columns, a
 * panel of weights stays there for all its rows. */
#define NR     (NV * VL)
#define UNROLL 2

/* Wide tiles ask for the panel of weights that follows, a line with every turn until they have all of it, and, those
 * of an item's first panel, for the next tile's pixels: who needs them first would wait for the third-level cache. */
#if NR >= 32
#define EXPECT                                                                                                         \
    PREFETCH_L2(next);                                                                                                 \
    PREFETCH_L2(soon);                                                                                                 \
    next += stride;                                                                                                    \
    soon += pace;
#else
#define EXPECT
#endif

/* Whether the products can read the input where it is. */
#if defined(IST_HALF) && !defined(X32)
#define IN_PLACE 0
#define ADDRESS(p) scratch
#else
#define IN_PLACE 1
#define ADDRESS(p) (p)
#endif

/* F(row, base, offset) for every row: row r is reached through base pointer r / 4 and r % 4 steps, so that four rows need
 * one address register. And F(column vector, row). */
#define ROWS4(F)  F(0, 0, 0) F(1, 0, 1) F(2, 0, 2) F(3, 0, 3)
#define ROWS6(F)  ROWS4(F) F(4, 1, 0) F(5, 1, 1)
#define ROWS8(F)  ROWS6(F) F(6, 1, 2) F(7, 1, 3)
#define ROWS12(F) ROWS8(F) F(8, 2, 0) F(9, 2, 1) F(10, 2, 2) F(11, 2, 3)
#define ROWS14(F) ROWS12(F) F(12, 3, 0) F(13, 3, 1)
#define BASES4(F)  F(0)
#define BASES6(F)  F(0) F(1)
#define BASES8(F)  BASES6(F)
#define BASES12(F) BASES8(F) F(2)
#define BASES14(F) BASES12(F) F(3)
#define COLS1(F, r) F(r, 0)
#define COLS2(F, r) COLS1(F, r) F(r, 1)
#define COLS3(F, r) COLS2(F, r) F(r, 2)
#define COLS4(F, r) COLS3(F, r) F(r, 3)
#define EACH_ROW(F)    CAT(ROWS, MR)(F)
#define EACH_BASE(F)   CAT(BASES, MR)(F)
#define EACH_COL(F, r) CAT(COLS, NV)(F, r)

#define OPEN1(r, j)       V c##r##_##j = from[r * ld + j];
#define OPEN(r, g, i)     EACH_COL(OPEN1, r)
#define ADD1(r, j)        acc[r * NV + j] += LOAD_TV(bp, j * VL);
#define ADD(r, g, i)      EACH_COL(ADD1, r) bp += epi.before_ld;
#define ASK(r, g, i)      PREFETCH(yp + r * shape.y_ld); /* what ends the tile, where that is few lines */
#define ASK_ADD(r, g, i)  PREFETCH(bp + r * epi.before_ld);
#if VL == 8 && MR == 6 /* one pointer: integer distances of so few rows stay in registers */
#define BASE(g)
#define ADVANCE(g)        if (g == 0) a += UNROLL;
#define PIXEL(g, i, u)    a[(g * 4 + i) * (int)step + u]
#else
#define BASE(g)           __global const float *a##g = a + g * 4 * step;
#define ADVANCE(g)        a##g += UNROLL;
#define PIXEL(g, i, u)    a##g[i * step + u]
#endif
#define B_LOAD(u, j)      V b##j = VLOAD(wp + (u * NV + j) * VL);
#define MAC1(r, j)        c##r##_##j = fma(av, b##j, c##r##_##j);
#define MAC(r, g, i, u)   { V av = (V)(PIXEL(g, i, u)); EACH_COL(MAC1, r) }
#define MAC_0(r, g, i)    MAC(r, g, i, 0)
#define MAC_1(r, g, i)    MAC(r, g, i, 1)
#define STEP(u)           { EACH_COL(B_LOAD, u) EACH_ROW(MAC_##u) }
#define SPILL1(r, j)      acc[r * NV + j] = c##r##_##j;
#define SPILL(r, g, i)    EACH_COL(SPILL1, r)
#define WRITE1(r, j)      STORE_YV(fma(max(acc[r * NV + j], low), scale, shift), yp, j * VL);
#define WRITE(r, g, i)    EACH_COL(WRITE1, r) yp += shape.y_ld;

typedef struct {
    int16 iy, ix, row;
} origin_t;

#define IOTA ((int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))

/* First input row and column of the windows of 16 output pixels from p on (clamped to `last`), and n * x_h. */
static inline origin_t window_origin(int p, int last, const conv_shape shape) {
    int oh = shape.y_h, ow = shape.y_w;
    p = min(p, last);
    int line = p / ow, n0 = line / oh;
    int16 ox = (int16)(p - line * ow) + min(IOTA, (int16)(last - p));
    int16 oy = (int16)(line - n0 * oh), n = (int16)n0;
    for (int16 over = ox >= ow; any(over); over = ox >= ow) {
        ox += over & -ow;
        oy -= over;
    }
    for (int16 over = oy >= oh; any(over); over = oy >= oh) {
        oy += over & -oh;
        n -= over;
    }
    origin_t o = {oy * shape.stride - shape.top, ox * shape.stride - shape.left, n * shape.x_h};
    return o;
}

/* Element offsets of the pixels that tap (ky, kx) reads, -1 in the padding. */
static inline int16 tap_offsets(origin_t o, int ky, int kx, const conv_shape shape) {
    int16 iy = o.iy + ky, ix = o.ix + kx;
    int16 inside = (as_uint16(iy) < (uint16)(uint)shape.x_h) & (as_uint16(ix) < (uint16)(uint)shape.x_w);
    return select((int16)(-1), ((o.row + iy) * shape.x_w + ix) * shape.x_ld + shape.x_c0, inside);
}

/* Copies `len` channels of MR pixels to rows of CHUNK floats, zeros where the offset is negative; `left` channels exist. */
static inline void gather(__global float *dst, __global const TX *x, const int *off, int left, int len) {
    for (int r = 0; r < MR; r++, dst += CHUNK)
        for (int c = 0; c < len; c += VL)
            STORE_FV(off[r] < 0 ? (V)(0.0f) : input_part(x + off[r] + c, left - c), dst, c);
}

/* The activation of `count` vectors: a loop for each that costs, so that a core works on several at a time. */
NOINLINE void activate_all(V *v, int count, int act) {
    if (act == ACT_SILU)
        for (int i = 0; i < count; i++) v[i] = CAT(activate_float, VL)(v[i], ACT_SILU);
    else if (act == ACT_GELU)
        for (int i = 0; i < count; i++) v[i] = CAT(activate_float, VL)(v[i], ACT_GELU);
    else
        for (int i = 0; i < count; i++) v[i] = CAT(activate_float, VL)(v[i], act);
}

/* Adds what `before` has for `rows` rows of accumulators, pixels p.. of the product and channels col... */
NOINLINE void add_before(V *acc, int p, int rows, int col, __global const T *before, const conv_shape shape,
                         const epilogue_args epi) {
    int vectors = min(NV, (shape.y_c - col + VL - 1) / VL);
    int all = p / shape.y_w, x = p - all * shape.y_w, n = all / shape.y_h, line = all - n * shape.y_h;
    for (int r = 0; r < rows; r++, x++, acc += NV) {
        if (x == shape.y_w) x = 0, line++;
        if (line == shape.y_h) line = 0, n++;
        __global const T *bp = before +
                               (size_t)before_pixel(n, line, x, shape.y_h, shape.y_w, epi.flags) * epi.before_ld +
                               epi.before_c0 + col;
        for (int j = 0; j < vectors; j++) acc[j] += addend_part(bp + j * VL, shape.y_c - col - j * VL);
    }
}

/* Stores `rows` rows of accumulators that belong to pixels p.. of the product and channels col... */
NOINLINE void store_tile(V *acc, int p, int rows, int col, __global TY *y, __global const T *before,
                         __global const T *after, const conv_shape shape, epilogue_args epi) {
    int vectors = min(NV, (shape.y_c - col + VL - 1) / VL), item = shape.y_h * shape.y_w;
    if (epi.flags & EPI_BEFORE) add_before(acc, p, rows, col, before, shape, epi);
    if (epi.act != ACT_NONE) activate_all(acc, rows * NV, epi.act);
    epi.act = ACT_NONE;
    epi.flags &= ~EPI_BEFORE;
    for (int r = 0; r < rows; r++, p++) {
        __global TY *yp = y + (size_t)p * shape.y_ld + shape.y_c0 + col;
        __global const T *ap =
            after + (size_t)(epi.flags & EPI_AFTER_ONE ? p % item : p) * epi.after_ld + epi.after_c0 + col;
        for (int j = 0, c = 0; j < vectors; j++, c += VL)
            finish(acc[r * NV + j], shape.y_c - col - c, yp + c, ap + c, ap + c, epi);
    }
}

/* acc[r * NV + j] = from[r * ld + j] + sum over i < k of a[r * step + i] * vector j of w[i * NR]. By itself, since beside
 * the kernel's own variables LLVM has too few registers for the rows' distances, and adds them up with every step. next,
 * stride, soon, pace: lines to ask for. No struct: what is stored in parts and loaded whole waits for all stores before. */
NOINLINE void products(V *acc, const V *from, int ld, __global const float *a, long step, __global const float *wp, int k,
                       __global const float *next, long stride, __global const float *soon, long pace) {
    EACH_ROW(OPEN)
    EACH_BASE(BASE)
    for (; k >= UNROLL; k -= UNROLL) {
        STEP(0) STEP(1)
        EXPECT
        wp += UNROLL * NR;
        EACH_BASE(ADVANCE)
    }
    if (k) { STEP(0) }
    EACH_ROW(SPILL)
}

NOINLINE void conv_group(__global const TX *restrict x, __global const float *restrict w,
                         __global const float *restrict bias, __global float *scratch, __global TY *restrict y,
                         __global const T *restrict before, __global const T *restrict after,
                         __global const int *restrict limit, const conv_panels_args arg, __global int *queue,
                         const int4 group) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    int cin = shape.x_c, kh = shape.kh, kw = shape.kw;
    int rows = min(shape.items, *limit) * shape.y_h * shape.y_w, last = rows - 1;
    int col_tiles = (shape.y_c + NR - 1) / NR, col_chunks = (col_tiles + arg.col_tiles - 1) / arg.col_tiles;
    size_t panel = (size_t)kh * kw * cin * NR;
    bool linear = kh * kw == 1 && (shape.stride - 1 | shape.top | shape.left) == 0 && shape.x_h == shape.y_h &&
                  shape.x_w == shape.y_w;
    bool simple = (epi.flags & (EPI_AFTER | EPI_AFTER_ONE)) == 0;
    bool mapped = epi.flags & (EPI_BEFORE_UP2 | EPI_BEFORE_ONE);
    V low = (V)(epi.act == ACT_RELU ? 0.0f : -INFINITY);
    V scale = (V)(epi.flags & EPI_LAB ? epi.lab_scale : 1.0f), shift = (V)(epi.flags & EPI_LAB ? epi.lab_bias : 0.0f);
    scratch += group.x * MR * CHUNK;
    __global const float *weights = w, *biases = bias;
    int chunks = (rows + arg.row_tiles * MR - 1) / (arg.row_tiles * MR);
    work_t work = work_begin(group.w, chunks * col_chunks, arg.backwards);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        int col_chunk = arg.by_columns ? item / chunks : item % col_chunks;
        int p0 = (arg.by_columns ? item % chunks : item / col_chunks) * arg.row_tiles * MR;
        int end = min(rows, p0 + arg.row_tiles * MR), first = col_chunk * arg.col_tiles;
        int past = min(first + arg.col_tiles, col_tiles);
        w = weights + first * panel;
        bias = biases + first * NR;
        for (int tile = first; tile < past; tile++, w += panel, bias += NR) {
            int col = tile * NR;
            V start[NV];
            for (int j = 0; j < NV; j++) start[j] = VLOAD(bias + j * VL);
            __global const float *next = past - first == 1 && arg.backwards ? w - panel : w + panel;
            for (int p = p0; p < end; p += MR) {
                int line = linear ? 0 : p / shape.y_w, ox = p - line * shape.y_w, n = line / shape.y_h;
                int oy = line - n * shape.y_h;
                int iy0 = oy * shape.stride - shape.top, ix0 = ox * shape.stride - shape.left;
                int span = (MR - 1) * shape.stride;
                bool straight = IN_PLACE && p + MR <= rows && (linear || ox + MR <= shape.y_w), located = false;
                long corner = (linear ? p : (long)(n * shape.x_h + iy0) * shape.x_w + ix0) * shape.x_ld + shape.x_c0;
                origin_t origin;
                const long stride = p - p0 < NR / 16 * UNROLL * MR ? 16 : 0, pace = linear && tile == first ? 16 : 0;
                __global const float *wp = w, *ahead = next, *soon = linear ? ADDRESS(x + corner + MR * shape.x_ld) : w;
                const bool whole = simple && p + MR <= end && col + NR <= shape.y_c;
                __global TY *yp = y + (size_t)p * shape.y_ld + shape.y_c0 + col;
                __global const T *bp = before + (size_t)p * epi.before_ld + epi.before_c0 + col;
                if (NR < 32) {
                    EACH_ROW(ASK)
                    if (whole && !mapped && epi.flags & EPI_BEFORE) { EACH_ROW(ASK_ADD) }
                }
                const V *from = start;
                V acc[MR * NV];
                for (int ky = 0; ky < kh; ky++) {
                    /* a line of zeros for all rows */
                    if (straight && !linear && (iy0 + ky < 0 || iy0 + ky >= shape.x_h)) {
                        wp += kw * cin * NR;
                        continue;
                    }
                    /* Where pixels are dense, the taps of a line are one run of channels. */
                    int run = straight && shape.x_ld == cin && ix0 >= 0 && ix0 + span + kw <= shape.x_w ? kw : 1;
                    for (int kx = 0; kx < kw; kx += run) {
                        bool direct = straight && (linear || (ix0 + kx >= 0 && ix0 + kx + span + run <= shape.x_w));
                        __global const float *a =
                            direct ? ADDRESS(x + corner + (ky * shape.x_w + kx) * shape.x_ld) : scratch;
                        long step = direct ? shape.stride * shape.x_ld : CHUNK;
                        int count = run * cin, off[16];
                        if (!direct && linear) {
                            vstore16(min(p + IOTA, (int16)(last)) * shape.x_ld + shape.x_c0, 0, off);
                        } else if (!direct) {
                            if (!located) origin = window_origin(p, last, shape);
                            located = true;
                            vstore16(tap_offsets(origin, ky, kx, shape), 0, off);
                        }
                        for (int c = 0, len = count; c < count; c += len) {
                            if (!direct) {
                                len = min(CHUNK, count - c);
                                gather(scratch, x + c, off, cin - c, len);
                            }
                            products(acc, from, from == acc ? NV : 0, a, step, wp, len, ahead, stride, soon, pace);
                            from = acc;
                            wp += len * NR;
                            ahead += len / UNROLL * stride;
                            soon += len / UNROLL * pace;
                        }
                    }
                }
                if (from != acc) products(acc, from, 0, scratch, 0, wp, 0, w, 0, w, 0); /* nothing but lines of zeros */
                if (whole) {
                    if (mapped) add_before(acc, p, MR, col, before, shape, epi);
                    else if (epi.flags & EPI_BEFORE) { EACH_ROW(ADD) }
                    if (epi.act > ACT_RELU) activate_all(acc, MR * NV, epi.act);
                    EACH_ROW(WRITE)
                } else {
                    store_tile(acc, p, min(MR, end - p), col, y, before, after, shape, epi);
                }
            }
        }
    }
    work_end(&work, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
conv(__global const TX *restrict x, __global const float *restrict w, __global const float *restrict bias,
     __global float *scratch, __global TY *restrict y, __global const T *restrict before,
     __global const T *restrict after, __global const int *restrict limit, conv_panels_args arg, __global int *queue) {
    conv_group(x, w, bias, scratch, y, before, after, limit, arg, queue, THIS_GROUP);
}
