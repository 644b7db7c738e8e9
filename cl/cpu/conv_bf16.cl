/* Dense convolution as an implicit matrix product of bfloat16 pairs with sums in float, for CPUs with AVX512_BF16: one
 * work-item per group owns tiles of MR pixels by NV vectors of 16 output channels in named vector registers.
 *
 * Work is cut and laid out as cpu/conv_lines says, inputs rounded on the way: pixels of in.s5 pairs.
 * Weights are panels [column tile][tap][pair of inputs][NR] of pairs, padded with zeros to whole tiles; bias likewise.
 *
 * -D MR, NV; ASM: 1: AVX512_BF16's instructions; 0: the same in plain OpenCL, for tests (the instructions also take
 * subnormal numbers for zeros). Needs portable/vector with VL = 16, cpu/bf16, cpu/conv_lines.
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

/* As in cpu/conv: row r is reached through base pointer r / 4 and r % 4 steps. */
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

static inline void lay_pixel(__global uint *scratch, int pixel, __global const TX *x, const part_t *m) {
    __global uint *to = scratch + pixel * m->step;
    for (int c = 0; !x && c < m->step; c++) to[c] = 0;
    for (int c = 0; x && c < m->cin; c += 16)
        *(__global ushort16_at4 *)(to + c / 2) = bf16_round(input_part(x + c, m->cin - c));
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
    const int chunks = maps * parts;
    part_t m = {in.s0, in.s1, win.s2, win.s0, win.s1, win.s3, win.s4, in.s4, in.s2, out.s6, step, 0, 0, 0, out.s2};
    __global const uint *weights = w;
    __global const float *biases = bias;
    scratch += (size_t)get_group_id(0) * tiles.w;
    int filled = -1, first_pixel = 0;
    work_t work = work_begin((int)get_num_groups(0), chunks * col_chunks, tiles.z & 2);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        const int col_chunk = tiles.z & 1 ? item / chunks : item % col_chunks;
        const int chunk = tiles.z & 1 ? item % chunks : item / col_chunks;
        if (chunk != filled) {
            filled = chunk;
            first_pixel = part_begin(&m, chunk, tiles.x, all_lines, linear, scratch, x, in, out);
        }
        const int end = (m.lines - 1) * m.pitch + m.width;
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
                        __global const uint *a = scratch + (p + tap_pixel(&m, ky, kx)) * step;
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
                    tile_t sums = {acc, min(MR, end - p), line, column, first_pixel, col};
                    store_rows(&sums, sums.rows, &m, y, before, after, out, epi, lab);
                }
            }
        }
    }
    work_end(&work, queue);
}
