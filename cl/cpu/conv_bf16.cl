/* Dense convolution as an implicit matrix product of bfloat16 pairs with sums in float, for CPUs with AVX512_BF16: one
 * work-item per group owns tiles of MR pixels by NV vectors of 16 output channels in named vector registers.
 *
 * Work is cut and laid out as cpu/conv_lines says, inputs rounded on the way: pixels of pixel_pairs pairs.
 * Weights are panels [column tile][tap][pair of inputs][NR] of pairs, padded with zeros to whole tiles; bias likewise.
 *
 * -D MR, NV; ASM: 1: AVX512_BF16's instructions; 0: the same in plain OpenCL, for tests (the instructions also take
 * subnormal numbers for zeros). Needs portable/vector with VL = 16, cpu/bf16, cpu/conv_lines.
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
#define WRITE(r, g, i)  EACH_COL(WRITE1, r) yp += shape.y_ld;

static inline void lay_pixel(__global uint *scratch, int pixel, __global const TX *x, const part_t *m) {
    __global uint *to = scratch + pixel * m->step;
    for (int c = 0; !x && c < m->step; c++) to[c] = 0;
    for (int c = 0; x && c < m->cin; c += 16)
        *(__global ushort16_at4 *)(to + c / 2) = bf16_round(input_part(x + c, m->cin - c));
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
conv(__global const TX *restrict x, __global const uint *restrict w, __global const float *restrict bias,
     __global uint *restrict scratch, __global TY *restrict y, __global const T *restrict before,
     __global const T *restrict after, __global const int *restrict limit, conv_lines_args arg, __global int *queue) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    const bool linear = arg.is_linear != 0;
    const int items = min(shape.items, *limit), maps = linear ? min(items, 1) : items;
    const int all_lines = linear ? items * shape.y_h * shape.y_w : shape.y_h;
    const int parts = (all_lines + arg.lines - 1) / arg.lines;
    const int col_tiles = (shape.y_c + NR - 1) / NR, col_chunks = (col_tiles + arg.col_tiles - 1) / arg.col_tiles;
    const int taps = shape.kh * shape.kw, pairs = (shape.x_c + 1) / 2, step = arg.pixel_pairs;
    const size_t panel = (size_t)taps * pairs * NR;
    const bool simple = epi.act <= ACT_RELU && (epi.flags & ~EPI_LAB) == 0;
    const float16 low = (float16)(epi.act == ACT_RELU ? 0.0f : -INFINITY);
    const float16 scale = (float16)(epi.flags & EPI_LAB ? epi.lab_scale : 1.0f);
    const float16 shift = (float16)(epi.flags & EPI_LAB ? epi.lab_bias : 0.0f);
    /* Taps of a line that are one run of pairs. */
    const int run = shape.stride == 1 && 2 * arg.pixel_pairs == shape.x_c ? shape.kw : 1;
    const int chunks = maps * parts;
    part_t m = {shape.x_h,  shape.x_w, shape.stride, shape.kh, shape.kw, shape.top, shape.left, shape.x_c,
                shape.x_ld, arg.pitch, step,         0,        0,        0,         shape.y_w};
    __global const uint *weights = w;
    __global const float *biases = bias;
    scratch += (size_t)get_group_id(0) * arg.scratch_pairs;
    int filled = -1, first_pixel = 0;
    work_t work = work_begin((int)get_num_groups(0), chunks * col_chunks, arg.backwards);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        const int col_chunk = arg.by_columns ? item / chunks : item % col_chunks;
        const int chunk = arg.by_columns ? item % chunks : item / col_chunks;
        if (chunk != filled) {
            filled = chunk;
            first_pixel = part_begin(&m, chunk, arg.lines, all_lines, linear, scratch, x, shape);
        }
        const int end = (m.lines - 1) * m.pitch + m.width;
        const int first = col_chunk * arg.col_tiles, past = min(first + arg.col_tiles, col_tiles);
        w = weights + first * panel;
        bias = biases + first * NR;
        for (int tile = first; tile < past; tile++, w += panel, bias += NR) {
            const int col = tile * NR;
            int line = 0, column = 0;
            for (int p = 0; p < end; p += MR, column += MR) {
                while (column >= m.pitch) column -= m.pitch, line++;
                __global const uint *wp = w;
                EACH_ROW(START)
                for (int ky = 0; ky < shape.kh; ky++)
                    for (int kx = 0; kx < shape.kw; kx += run) {
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
                if (simple && column + MR <= m.width && col + NR <= shape.y_c) {
                    __global TY *yp =
                        y + (size_t)(first_pixel + line * m.width + column) * shape.y_ld + shape.y_c0 + col;
                    EACH_ROW(WRITE)
                } else {
                    float16 acc[MR * NV];
                    EACH_ROW(SPILL)
                    tile_t sums = {acc, min(MR, end - p), line, column, first_pixel, col};
                    store_rows(&sums, sums.rows, &m, y, before, after, shape, epi);
                }
            }
        }
    }
    work_end(&work, queue);
}
