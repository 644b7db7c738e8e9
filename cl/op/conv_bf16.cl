/* Dense convolution as an implicit matrix product of bfloat16 pairs with sums in float, for CPUs with AVX512_BF16: one
 * work-item per group owns tiles of MR pixels by NV vectors of 16 output channels in named vector registers.
 *
 * Input and output are float. An item of work is some lines of one item's map (of a linear layer: some pixels) by some
 * column tiles. The lines that its windows see are rounded once into the group's part of `scratch`, with zeros for the
 * padding: pixels of in.s5 pairs, lines of out.s6 pixels. A window of stride s sees every s-th pixel, so the pixels are
 * sorted into planes, one for each remainder of line and column: then every tap of neighbouring results is at
 * neighbouring pixels, across the ends of lines too, and the summation has neither bounds nor gathering. The price is a
 * result or two per line that nobody wants.
 * Weights are panels [column tile][tap][pair of inputs][NR] of pairs, padded with zeros to whole tiles; bias likewise.
 *
 * -D MR, NV; ASM: 1: AVX512_BF16's instructions; 0: the same in plain OpenCL, for tests (the instructions also take
 * subnormal numbers for zeros). Needs isa/vector with VL = 16, isa/bf16.
 * in = {h, w, ld, c0, cin, pairs of a pixel in scratch, 0, 0}, win = {kh, kw, stride, top, left, linear?, 0, 0},
 * out = {n, h, w, ld, c0, cout, pixels of a line in scratch, 0}, tiles = {lines, column tiles, order, pairs of scratch}.
 * order: 1: items of the same columns follow each other, else those of the same lines; 2: they are taken backwards.
 * Grid: x = compute units, which share out the items by `queue` (see prelude). */
#define NR     (NV * VL)
#define UNROLL 2

/* A bfloat16 is the upper half of a float; a uint holds a pair, the first in its lower half. */
typedef ushort16 ushort16_at4 __attribute__((aligned(4)));

#if ASM
static inline float16 bf16_dot(float16 sum, uint16 a, uint16 b) {
    __asm__("vdpbf16ps %2,%1,%0" : "+v"(sum) : "v"(as_int16(a)), "v"(as_int16(b)));
    return sum;
}
#else
/* sum + a's pairs by b's. */
static inline float16 bf16_dot(float16 sum, uint16 a, uint16 b) {
    const uint16 upper = (uint16)(0xffff0000u), half_way = (uint16)(16);
    sum = fma(as_float16(a & upper), as_float16(b & upper), sum);
    return fma(as_float16(a << half_way), as_float16(b << half_way), sum);
}
#endif

/* As in op/conv: row r is reached through base pointer r / 4 and r % 4 steps. */
#define ROWS4(F)  F(0, 0, 0) F(1, 0, 1) F(2, 0, 2) F(3, 0, 3)
#define ROWS6(F)  ROWS4(F) F(4, 1, 0) F(5, 1, 1)
#define ROWS12(F) ROWS6(F) F(6, 1, 2) F(7, 1, 3) F(8, 2, 0) F(9, 2, 1) F(10, 2, 2) F(11, 2, 3)
#define ROWS14(F) ROWS12(F) F(12, 3, 0) F(13, 3, 1)
#define BASES6(F)  F(0) F(1)
#define BASES12(F) BASES6(F) F(2)
#define BASES14(F) BASES12(F) F(3)
#define COLS1(F, r) F(r, 0)
#define COLS2(F, r) COLS1(F, r) F(r, 1)
#define COLS4(F, r) COLS2(F, r) F(r, 2) F(r, 3)
#define EACH_ROW(F)    CAT(ROWS, MR)(F)
#define EACH_BASE(F)   CAT(BASES, MR)(F)
#define EACH_COL(F, r) CAT(COLS, NV)(F, r)

#define START1(r, j)    float16 c##r##_##j = vload16(j, bias);
#define START(r, g, i)  EACH_COL(START1, r)
#define BASE(g)         __global const uint *a##g = a + g * 4 * step;
#define ADVANCE(g)      a##g += UNROLL;
#define ADVANCE1(g)     a##g++;
#define B_LOAD(u, j)    const uint16 b##j = vload16(u * NV + j, wp);
#define MAC1(r, j)      c##r##_##j = bf16_dot(c##r##_##j, av, b##j);
#define MAC(r, g, i, u) { const uint16 av = (uint16)(a##g[i * step + u]); EACH_COL(MAC1, r) }
#define MAC_0(r, g, i)  MAC(r, g, i, 0)
#define MAC_1(r, g, i)  MAC(r, g, i, 1)
#define STEP(u)         { EACH_COL(B_LOAD, u) EACH_ROW(MAC_##u) }
#define SPILL1(r, j)    acc[r * NV + j] = c##r##_##j;
#define SPILL(r, g, i)  EACH_COL(SPILL1, r)
#define WRITE1(r, j)    STORE_YV(fma(max(c##r##_##j, low), scale, shift), yp, j * VL);
#define WRITE(r, g, i)  EACH_COL(WRITE1, r) yp += out.s3;

/* The map and the part of it that an item of work makes. */
typedef struct {
    int h, w, stride, kh, kw, top, left, cin, ld; /* of the input and the windows */
    int pairs, pitch;                             /* of a pixel and a line in scratch */
    int line, lines, width;                       /* results: first line, lines, pixels of a line */
} part_t;

/* Lines of a plane, and pixels of it: the last line's windows end up to kw - 1 pixels behind it, in padding. */
static inline int plane_lines(const part_t *m) {
    return m->lines + (m->kh - 1) / m->stride;
}
static inline int plane_pixels(const part_t *m) {
    return plane_lines(m) * m->pitch + m->kw - 1;
}

/* Rounds what the windows see; x is the first pixel of the item's map. */
static inline void fill(__global uint *dst, __global const TX *x, const part_t *m) {
    const int planes_y = min(m->stride, m->kh), planes_x = min(m->stride, m->kw);
    for (int py = 0; py < planes_y; py++)
        for (int px = 0; px < planes_x; px++) {
            const int pixels = plane_pixels(m);
            int iy = m->line * m->stride + py - m->top, ix = px - m->left;
            for (int i = 0, column = 0; i < pixels; i++, column++, ix += m->stride, dst += m->pairs) {
                if (column == m->pitch) column = 0, ix = px - m->left, iy += m->stride;
                if (iy < 0 || iy >= m->h || ix < 0 || ix >= m->w) {
                    for (int c = 0; c < m->pairs; c++) dst[c] = 0;
                    continue;
                }
                __global const TX *from = x + ((long)iy * m->w + ix) * m->ld;
                for (int c = 0; c < m->cin; c += 16)
                    *(__global ushort16_at4 *)(dst + c / 2) = bf16_round(input_part(from + c, m->cin - c));
            }
        }
}

/* Stores `rows` rows of accumulators: results from `column` of line `line` of the part on, of which those beyond its
 * width do not exist; `first` is the number of the part's first pixel. */
static inline void store_tile(const float16 *acc, int line, int column, int rows, int first, const part_t *m, int col,
                              __global TY *y, __global const T *before, __global const T *after, int8 out, int8 epi,
                              float4 lab) {
    const bool mapped = (epi.s1 & (EPI_BEFORE_UP2 | EPI_BEFORE_ONE | EPI_AFTER_ONE)) != 0;
    for (int r = 0; r < rows; r++, column++, acc += NV) {
        if (column == m->pitch) column = 0, line++;
        if (column >= m->width) continue;
        const int p = first + line * m->width + column;
        int b = p, a = p;
        if (mapped) {
            const int all = p / out.s2, ox = p - all * out.s2, n = all / out.s1, oy = all - n * out.s1;
            b = before_pixel(n, oy, ox, out.s1, out.s2, epi.s1);
            a = after_pixel(n, oy, ox, out.s1, out.s2, epi.s1);
        }
        __global TY *yp = y + (size_t)p * out.s3 + out.s4;
        __global const T *bp = before + (size_t)b * epi.s2 + epi.s3;
        __global const T *ap = after + (size_t)a * epi.s4 + epi.s5;
        for (int j = 0, c = col; j < NV && c < out.s5; j++, c += VL)
            finish(acc[j], out.s5 - c, yp + c, bp + c, ap + c, epi, lab);
    }
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
conv(__global const TX *restrict x, __global const uint *restrict w, __global const float *restrict bias,
     __global uint *restrict scratch, __global TY *restrict y, __global const T *restrict before,
     __global const T *restrict after, __global const int *restrict limit, int8 in, int8 win, int8 out, int8 epi,
     float4 lab, int4 tiles, __global int *queue) {
    const bool linear = win.s5 != 0;
    const int items = min(out.s0, *limit), maps = linear ? min(items, 1) : items;
    const int all_lines = linear ? items * out.s1 * out.s2 : out.s1, parts = (all_lines + tiles.x - 1) / tiles.x;
    const int col_tiles = (out.s5 + NR - 1) / NR, col_chunks = (col_tiles + tiles.y - 1) / tiles.y;
    const int taps = win.s0 * win.s1, pairs = (in.s4 + 1) / 2, step = in.s5;
    const size_t panel = (size_t)taps * pairs * NR;
    const bool simple = epi.s0 <= ACT_RELU && (epi.s1 & ~EPI_LAB) == 0;
    const float16 low = (float16)(epi.s0 == ACT_RELU ? 0.0f : -INFINITY);
    const float16 scale = (float16)(epi.s1 & EPI_LAB ? lab.s0 : 1.0f);
    const float16 shift = (float16)(epi.s1 & EPI_LAB ? lab.s1 : 0.0f);
    const int run = win.s2 == 1 && 2 * in.s5 == in.s4 ? win.s1 : 1; /* taps of a line that are one run of pairs */
    const int planes_x = min(win.s2, win.s1), chunks = maps * parts;
    part_t m = {in.s0, in.s1, win.s2, win.s0, win.s1, win.s3, win.s4, in.s4, in.s2, in.s5, out.s6, 0, 0, out.s2};
    __global const uint *weights = w;
    __global const float *biases = bias;
    scratch += (size_t)get_group_id(0) * tiles.w;
    int filled = -1, first_pixel = 0;
    work_t work = work_begin(chunks * col_chunks, tiles.z & 2);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        const int col_chunk = tiles.z & 1 ? item / chunks : item % col_chunks;
        const int chunk = tiles.z & 1 ? item % chunks : item / col_chunks;
        if (chunk != filled) {
            const int n = chunk / parts, line = (chunk - n * parts) * tiles.x, count = min(tiles.x, all_lines - line);
            filled = chunk;
            if (linear) { /* one line of pixels */
                m.h = m.lines = 1;
                m.w = m.pitch = m.width = count;
                first_pixel = line;
            } else {
                m.line = line;
                m.lines = count;
                first_pixel = (n * out.s1 + line) * out.s2;
            }
            fill(scratch, x + (linear ? (long)line : (long)n * in.s0 * in.s1) * in.s2 + in.s3, &m);
        }
        const int plane = plane_pixels(&m) * step, end = (m.lines - 1) * m.pitch + m.width;
        const int first = col_chunk * tiles.y, past = min(first + tiles.y, col_tiles);
        w = weights + first * panel;
        bias = biases + first * NR;
        for (int tile = first; tile < past; tile++, w += panel, bias += NR) {
            const int col = tile * NR;
            int line = 0, column = 0;
            for (int p = 0; p < end; p += MR, column += MR) {
                while (column >= m.pitch) column -= m.pitch, line++;
                __global const uint *wp = w;
                EACH_ROW(START)
                for (int ky = 0; ky < win.s0; ky++)
                    for (int kx = 0; kx < win.s1; kx += run) {
                        const int py = ky % m.stride, px = kx % m.stride;
                        __global const uint *a = scratch + (py * planes_x + px) * plane +
                                                 (p + ky / m.stride * m.pitch + kx / m.stride) * step;
                        EACH_BASE(BASE)
                        int k = run * pairs;
                        for (; k >= UNROLL; k -= UNROLL) {
                            STEP(0) STEP(1)
                            wp += UNROLL * NR;
                            EACH_BASE(ADVANCE)
                        }
                        for (; k > 0; k--) {
                            STEP(0)
                            wp += NR;
                            EACH_BASE(ADVANCE1)
                        }
                    }
                if (simple && column + MR <= m.width && col + NR <= out.s5) {
                    __global TY *yp = y + (size_t)(first_pixel + line * m.width + column) * out.s3 + out.s4 + col;
                    EACH_ROW(WRITE)
                } else {
                    float16 acc[MR * NV];
                    EACH_ROW(SPILL)
                    store_tile(acc, line, column, min(MR, end - p), first_pixel, &m, col, y, before, after, out, epi,
                               lab);
                }
            }
        }
    }
    work_end(&work, queue);
}
