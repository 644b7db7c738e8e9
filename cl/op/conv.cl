/* Dense convolution as an implicit matrix product, for CPUs: one work-item per group owns a tile of MR output pixels by
 * NV vectors of VL output channels in named vector registers.
 *
 * Rows of the product are output pixels in storage order (all items of the batch in one sequence), columns are output
 * channels, the summation runs over kernel taps, then input channels. Per tap every row has a pointer to its input
 * pixel, or to a row of zeros where the tap lies in the padding (the indirection of XNNPACK's igemm kernels), so there
 * are no bounds tests inside the summation and no halo in memory. Weights come in panels [column tile][tap][cin][NR],
 * padded with zeros to whole tiles; the bias likewise.
 *
 * -D MR, NV and isa/vector's: the tile.
 * Grid: x = chunks of tiles.x row tiles, y = chunks of tiles.y column tiles, z = phases (4 for a transposed 2x2
 * convolution, else 1). Within a chunk the row tiles run faster: the chunk's pixels stay in the second-level cache for all
 * its columns, a panel of weights stays there for all its rows. */
#define NR (NV * VL)

/* F(0) F(1) .. F(n - 1), and the same with the row as first argument. */
#define ROWS1(F)  F(0)
#define ROWS2(F)  ROWS1(F) F(1)
#define ROWS3(F)  ROWS2(F) F(2)
#define ROWS4(F)  ROWS3(F) F(3)
#define ROWS5(F)  ROWS4(F) F(4)
#define ROWS6(F)  ROWS5(F) F(5)
#define ROWS7(F)  ROWS6(F) F(6)
#define ROWS8(F)  ROWS7(F) F(7)
#define ROWS9(F)  ROWS8(F) F(8)
#define ROWS10(F) ROWS9(F) F(9)
#define ROWS11(F) ROWS10(F) F(10)
#define ROWS12(F) ROWS11(F) F(11)
#define ROWS13(F) ROWS12(F) F(12)
#define ROWS14(F) ROWS13(F) F(13)
#define ROWS16(F) ROWS14(F) F(14) F(15)
#define ROWS20(F) ROWS16(F) F(16) F(17) F(18) F(19)
#define ROWS24(F) ROWS20(F) F(20) F(21) F(22) F(23)
#define ROWS28(F) ROWS24(F) F(24) F(25) F(26) F(27)
#define COLS1(F, r) F(r, 0)
#define COLS2(F, r) COLS1(F, r) F(r, 1)
#define COLS3(F, r) COLS2(F, r) F(r, 2)
#define COLS4(F, r) COLS3(F, r) F(r, 3)
#define EACH_ROW(F)    CAT(ROWS, MR)(F)
#define EACH_COL(F, r) CAT(COLS, NV)(F, r)

#define START1(r, j) V c##r##_##j = VLOAD(bias + j * VL);
#define START(r)    EACH_COL(START1, r)
#define B_LOAD(r, j) V b##j = VLOAD(wp + j * VL);
#define MAC1(r, j)  c##r##_##j = fma(a, b##j, c##r##_##j);
#define MAC(r)      { V a = (V)(LOAD_X(a##r, k)); EACH_COL(MAC1, r) }
#define STEP        { EACH_COL(B_LOAD, 0) EACH_ROW(MAC) wp += NR; k++; }
#define POINT(r)    __global const TX *a##r = off[r] < 0 ? zero : x + off[r];
#define SPILL1(r, j) acc[r * NV + j] = c##r##_##j;
#define SPILL(r)    EACH_COL(SPILL1, r)
#define WRITE1(r, j) STORE_YV(fma(max(c##r##_##j, low), scale, shift), yp, j * VL);
#define WRITE(r)    EACH_COL(WRITE1, r) yp += out.s3;

/* Geometry: in = {h, w, ld, c0, cin, 0, 0, 0}, win = {kh, kw, stride, top, left, 0, 0, 0},
 * out = {n, h, w, ld, c0, cout, up, 0}: h, w are those of the product; with up = 2 the stored map is twice as large and
 * phase z = 2 a + b goes to its pixels (2y + a, 2x + b). */
typedef struct {
    int16 iy, ix, row;
} origin_t;

#define IOTA ((int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))

/* First input row and column of the windows of 16 output pixels from p on (clamped to `last`), and n * in.h. */
static inline origin_t window_origin(int p, int last, int8 in, int8 win, int8 out) {
    int oh = out.s1, ow = out.s2;
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
    origin_t o = {oy * win.s2 - win.s3, ox * win.s2 - win.s4, n * in.s0};
    return o;
}

/* Element offsets of the pixels that tap (ky, kx) reads, -1 in the padding. */
static inline int16 tap_offsets(origin_t o, int ky, int kx, int8 in) {
    int16 iy = o.iy + ky, ix = o.ix + kx;
    int16 inside = (as_uint16(iy) < (uint16)(uint)in.s0) & (as_uint16(ix) < (uint16)(uint)in.s1);
    return select((int16)(-1), ((o.row + iy) * in.s1 + ix) * in.s2 + in.s3, inside);
}

/* The taps of a kernel row that can be summed as one run of kw * cin channels: all where the pixels of a row are dense
 * and no window reaches into the padding at its sides, else 1. */
static inline int taps_in_run(origin_t o, int8 in, int8 win) {
    bool dense = in.s2 == in.s4 && win.s1 > 1;
    return dense && all((o.ix >= 0) & (o.ix <= in.s1 - win.s1)) ? win.s1 : 1;
}

/* Stores `rows` rows of accumulators that belong to pixels p.. of the product and channels col... */
static inline void store_tile(const V *acc, int p, int rows, int col, int phase, __global TY *y,
                              __global const T *before, __global const T *after, int8 out, int8 epi, float4 lab) {
    int up = out.s6, flags = epi.s1;
    bool mapped = up == 2 || (flags & (EPI_BEFORE_UP2 | EPI_BEFORE_ONE | EPI_AFTER_ONE)) != 0;
    for (int r = 0; r < rows; r++, p++, acc += NV) {
        int dst = p, b = p, a = p;
        if (mapped) {
            int line = p / out.s2, n = line / out.s1, h = out.s1 * up, w = out.s2 * up;
            int oy = (line - n * out.s1) * up + (phase >> 1), ox = (p - line * out.s2) * up + (phase & 1);
            dst = (n * h + oy) * w + ox;
            b = before_pixel(n, oy, ox, h, w, flags);
            a = after_pixel(n, oy, ox, h, w, flags);
        }
        __global TY *yp = y + (size_t)dst * out.s3 + out.s4;
        __global const T *bp = before + (size_t)b * epi.s2 + epi.s3;
        __global const T *ap = after + (size_t)a * epi.s4 + epi.s5;
        for (int j = 0, c = col; j < NV && c < out.s5; j++, c += VL)
            finish(acc[j], out.s5 - c, yp + c, bp + c, ap + c, epi, lab);
    }
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
conv(__global const TX *restrict x, __global const float *restrict w, __global const float *restrict bias,
     __global const TX *restrict zero, __global TY *restrict y, __global const T *restrict before,
     __global const T *restrict after, __global const int *restrict limit, int8 in, int8 win, int8 out, int8 epi,
     float4 lab, int4 tiles) {
    int cin = in.s4, kh = win.s0, kw = win.s1;
    int rows = min(out.s0, *limit) * out.s1 * out.s2, last = rows - 1;
    int phase = get_group_id(2), col_tiles = (out.s5 + NR - 1) / NR;
    int first = get_group_id(1) * tiles.y, past = min(first + tiles.y, col_tiles);
    int p0 = get_group_id(0) * tiles.x * MR, end = min(rows, p0 + tiles.x * MR);
    size_t panel = (size_t)kh * kw * cin * NR;
    w += (phase * col_tiles + first) * panel;
    bias += (phase * col_tiles + first) * NR;
    bool linear = kh * kw == 1 && (win.s2 - 1 | win.s3 | win.s4) == 0 && in.s0 == out.s1 && in.s1 == out.s2;
    bool simple = epi.s0 <= ACT_RELU && (epi.s1 & ~EPI_LAB) == 0 && out.s6 == 1;
    V low = (V)(epi.s0 == ACT_RELU ? 0.0f : -INFINITY);
    V scale = (V)(epi.s1 & EPI_LAB ? lab.s0 : 1.0f), shift = (V)(epi.s1 & EPI_LAB ? lab.s1 : 0.0f);
    for (int tile = first; tile < past; tile++, w += panel, bias += NR) {
        int col = tile * NR;
        for (int p = p0; p < end; p += MR) {
            int off[(MR + 15) / 16 * 16], run = kw;
            origin_t o0, o1;
            if (linear) {
                vstore16(min(p + IOTA, last) * in.s2 + in.s3, 0, off);
#if MR > 16
                vstore16(min(p + 16 + IOTA, last) * in.s2 + in.s3, 1, off);
#endif
            } else {
                o0 = window_origin(p, last, in, win, out);
                run = taps_in_run(o0, in, win);
#if MR > 16
                o1 = window_origin(p + 16, last, in, win, out);
                run = min(run, taps_in_run(o1, in, win));
#endif
            }
            __global const float *wp = w;
            EACH_ROW(START)
            for (int ky = 0; ky < kh; ky++)
                for (int kx = 0; kx < kw; kx += run) {
                    if (!linear) {
                        vstore16(tap_offsets(o0, ky, kx, in), 0, off);
#if MR > 16
                        vstore16(tap_offsets(o1, ky, kx, in), 1, off);
#endif
                    }
                    EACH_ROW(POINT)
                    int k = 0, count = run * cin;
                    while (k + 4 <= count) { STEP STEP STEP STEP }
                    while (k < count) STEP
                }
            if (simple && p + MR <= end && col + NR <= out.s5) {
                __global TY *yp = y + (size_t)p * out.s3 + out.s4 + col;
                EACH_ROW(WRITE)
            } else {
                V acc[MR * NV];
                EACH_ROW(SPILL)
                store_tile(acc, p, min(MR, end - p), col, phase, y, before, after, out, epi, lab);
            }
        }
    }
}
