/* 3x3 convolution with stride 1 by Winograd's F(2x2, 3x3), for CPUs: 16 instead of 36 multiplications for 2x2 results
 * (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015, section 4.1).
 *
 * The map is cut in tiles of 2x2 results; an item of work is `block` neighbouring tiles. Their 4x4 inputs become 16
 * matrices V[i] of tiles by input channels (d -> B^T d B), each is multiplied with the filters' transforms U[i] = G g
 * G^T, which the host makes, and 2x2 results are A^T m A of the 16 products. V and the products stay in the group's
 * part of `scratch`, that is, in a cache of the core; products of the last column tile where V was. Arithmetic is fp32;
 * sums of four neighbours cost a bit of accuracy.
 *
 * -D COLS: 16 or 32 channels of a register tile, whose rows are 24 or 12 tiles; ROOM: floats of scratch for each group,
 * at least 16 * block * (cin + COLS). Needs portable/vector with VL = 16. Inputs are a multiple of 16 channels, results of
 * COLS, block of ROWS. V: [16][row tile][cin / 16][ROWS tiles][16 channels], products of COLS channels at a time: [16][tile][COLS].
 * U: [column tile][16][cin][COLS], bias [cout].
 * in = {h, w, ld, c0, cin, top, left, 0}, out = {n, h, w, ld, c0, cout, 0, 0}, tiles = {block, down, across, turn}.
 * Grid: x = compute units, which share out the blocks by `queue` (see prelude). */
#define ROWS (384 / COLS)
#define AHEAD 6 /* tiles between a tile and the one whose inputs are asked for */

typedef __global float *scratch_t;

/* The columns' transform, then the lines', of 4x4 inputs AT(line, column); i of the matrices lie `far` apart. */
#define COLUMN(j)                                                                                                      \
    float16 t0##j, t1##j, t2##j, t3##j;                                                                                \
    {                                                                                                                  \
        float16 d1 = AT(1, j), d2 = AT(2, j);                                                                          \
        t0##j = AT(0, j) - d2;                                                                                         \
        t1##j = d1 + d2;                                                                                               \
        t2##j = d2 - d1;                                                                                               \
        t3##j = d1 - AT(3, j);                                                                                         \
    }
#define LINE(i)                                                                                                        \
    vstore16(t##i##0 - t##i##2, 0, v + (4 * i) * far);                                                                 \
    vstore16(t##i##1 + t##i##2, 0, v + (4 * i + 1) * far);                                                             \
    vstore16(t##i##2 - t##i##1, 0, v + (4 * i + 2) * far);                                                             \
    vstore16(t##i##1 - t##i##3, 0, v + (4 * i + 3) * far);
#define TRANSFORM                                                                                                      \
    COLUMN(0) COLUMN(1) COLUMN(2) COLUMN(3)                                                                            \
    LINE(0) LINE(1) LINE(2) LINE(3)

/* Inputs from line iy and column ix on, of all channels, into v and the matrices behind it. */
NOINLINE void transform_input(__global const TX *x, int n, int iy, int ix, int8 in, scratch_t v, int far) {
    long first = ((long)(n * in.s0 + iy) * in.s1 + ix) * in.s2 + in.s3;
    int line = in.s1 * in.s2;
    if (iy >= 0 && ix >= 0 && iy + 4 <= in.s0 && ix + 4 <= in.s1) {
        x += first;
        for (int c = 0; c < in.s4; c += 16, x += 16, v += ROWS * 16) {
            for (int i = 0; i < 4; i++) { /* what is new in a tile further on */
                PREFETCH(x + i * line + (2 * AHEAD + 2) * in.s2);
                PREFETCH(x + i * line + (2 * AHEAD + 3) * in.s2);
            }
#define AT(i, j) LOAD_XV(x, i * line + j * in.s2)
            TRANSFORM
#undef AT
        }
        return;
    }
    int inside = 0;
    for (int i = 0; i < 16; i++) {
        int y = iy + i / 4, z = ix + i % 4;
        inside |= (y >= 0 && y < in.s0 && z >= 0 && z < in.s1) << i;
    }
    for (int c = 0; c < in.s4; c += 16, first += 16, v += ROWS * 16) {
#define AT(i, j) (inside >> (4 * i + j) & 1 ? LOAD_XV(x, first + i * line + j * in.s2) : (float16)(0.0f))
        TRANSFORM
#undef AT
    }
}

#define EACH12(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)
#define EACH24(F) EACH12(F) F(12) F(13) F(14) F(15) F(16) F(17) F(18) F(19) F(20) F(21) F(22) F(23)
#if COLS == 32
#define EACH_ROW(F) EACH12(F)
#define SECOND(...) __VA_ARGS__
#else
#define EACH_ROW(F) EACH24(F)
#define SECOND(...)
#endif
#define START(r) float16 c##r = 0.0f SECOND(, d##r = 0.0f);
#define MAC(r)                                                                                                         \
    {                                                                                                                  \
        float16 a = (float16)(v[r * 16 + k]);                                                                          \
        c##r = fma(a, b0, c##r);                                                                                       \
        SECOND(d##r = fma(a, b1, d##r);)                                                                               \
    }
#define KEEP(r)                                                                                                        \
    vstore16(c##r, 0, m + r * COLS);                                                                                   \
    SECOND(vstore16(d##r, 1, m + r * COLS);)

/* ROWS tiles by COLS channels of one of the products. */
#ifdef SIMD16
#define IN_PLACE 1
static inline void multiply(const scratch_t a, __global const float *u, scratch_t m, int cin) {
    scratch_t v = a;
    EACH_ROW(START)
    for (int c = 0; c < cin; c += 16, v += ROWS * 16)
        for (int k = 0; k < 16; k++, u += COLS) {
            float16 b0 = vload16(0, u) SECOND(, b1 = vload16(1, u));
            EACH_ROW(MAC)
        }
    EACH_ROW(KEEP)
}
#else /* six tiles by a vector of channels: 12 registers of 8 floats */
#define IN_PLACE 0
#define EACH6(F)  F(0) F(1) F(2) F(3) F(4) F(5)
#define START6(r) float16 c##r = 0.0f;
#define MAC6(r)   c##r = fma((float16)(v[r * 16 + k]), b, c##r);
#define KEEP6(r)  vstore16(c##r, 0, m + r * COLS);
NOINLINE void multiply_six(const scratch_t a, __global const float *u, scratch_t m, int cin) {
    scratch_t v = a;
    EACH6(START6)
    for (int c = 0; c < cin; c += 16, v += ROWS * 16)
        for (int k = 0; k < 16; k++, u += COLS) {
            const float16 b = vload16(0, u);
            EACH6(MAC6)
        }
    EACH6(KEEP6)
}
static inline void multiply(const scratch_t a, __global const float *u, scratch_t m, int cin) {
    for (int j = 0; j < COLS; j += 16)
        for (int r = 0; r < ROWS; r += 6) multiply_six(a + r * 16, u + j, m + r * COLS + j, cin);
}
#endif

/* Two lines of 2x2 results of 16 channels. */
#define SUM(i, j) vload16(0, m + (4 * (i) + (j)) * far)
#define DOWN(j)                                                                                                        \
    float16 u##j, l##j;                                                                                                \
    {                                                                                                                  \
        float16 m1 = SUM(1, j), m2 = SUM(2, j);                                                                        \
        u##j = SUM(0, j) + m1 + m2;                                                                                    \
        l##j = m1 - m2 - SUM(3, j);                                                                                    \
    }
static inline void transform_output(const scratch_t m, int far, float16 bias, float16 *result) {
    DOWN(0) DOWN(1) DOWN(2) DOWN(3)
    result[0] = u0 + u1 + u2 + bias;
    result[1] = u1 - u2 - u3 + bias;
    result[2] = l0 + l1 + l2 + bias;
    result[3] = l1 - l2 - l3 + bias;
}

/* Stores the results of 16 channels from c on of tile (ty, tx), whose 2x2 pixels are all in the map, where nothing is
 * added: low {0 or -INFINITY}. */
static inline void store_plain(float16 *result, int n, int ty, int tx, int c, __global TY *y, int8 out, int act,
                               float low, float4 lab) {
    for (int i = 0; act == ACT_SILU && i < 4; i++) result[i] = activate_float16(result[i], ACT_SILU);
    const int line = out.s2 * out.s3;
    __global TY *p = y + ((size_t)(n * out.s1 + 2 * ty) * out.s2 + 2 * tx) * out.s3 + out.s4 + c;
    for (int i = 0; i < 4; i++)
        STORE_YV(fma(max(result[i], (float16)(low)), (float16)(lab.s0), (float16)(lab.s1)), p,
                 (i >> 1) * line + (i & 1) * out.s3);
}

/* Stores the results of 16 channels from c on of tile (ty, tx). */
NOINLINE void store_tile(const float16 *result, int n, int ty, int tx, int c, __global TY *y,
                         __global const T *before, __global const T *after, int8 out, int8 epi, float4 lab) {
    for (int i = 0; i < 4; i++) {
        int oy = 2 * ty + (i >> 1), ox = 2 * tx + (i & 1);
        if (oy >= out.s1 || ox >= out.s2) continue;
        long p = ((long)n * out.s1 + oy) * out.s2 + ox;
        long b = before_pixel(n, oy, ox, out.s1, out.s2, epi.s1), a = after_pixel(n, oy, ox, out.s1, out.s2, epi.s1);
        finish(result[i], 16, y + p * out.s3 + out.s4 + c, before + b * epi.s2 + epi.s3 + c,
               after + a * epi.s4 + epi.s5 + c, epi, lab);
    }
}

NOINLINE void winograd_group(__global const TX *restrict x, __global const float *restrict u,
                             __global const float *restrict bias, __global float *restrict scratch,
                             __global TY *restrict y, __global const T *restrict before,
                             __global const T *restrict after, __global const int *restrict limit, int8 in, int8 out,
                             int8 epi, float4 lab, int4 tiles, __global int *queue, const int4 group) {
    scratch_t room = scratch + group.x * ROOM;
    int cin = in.s4, block = tiles.x, each = tiles.y * tiles.z, all = min(out.s0, *limit) * each;
    const int far = block * cin;
    const bool simple = epi.s0 <= ACT_SILU && (epi.s1 & ~EPI_LAB) == 0;
    const float low = epi.s0 == ACT_RELU ? 0.0f : -INFINITY;
    const float4 scaled = epi.s1 & EPI_LAB ? lab : (float4)(1.0f, 0.0f, 0.0f, 0.0f);
    work_t work = work_begin(group.w, (all + block - 1) / block, tiles.w);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        int first = item * block, count = min(block, all - first);
        for (int t = 0; t < count; t++) {
            int n = (first + t) / each, in_item = first + t - n * each, ty = in_item / tiles.z;
            int tx = in_item - ty * tiles.z;
            transform_input(x, n, 2 * ty - in.s5, 2 * tx - in.s6, in,
                            room + (t - t % ROWS) * cin + t % ROWS * 16, far);
        }
        __global const float *panel = u;
        for (int col = 0; col < out.s5; col += COLS) {
            const bool over = IN_PLACE && cin >= COLS && col + COLS >= out.s5; /* products in place of the last V */
            const int step = over ? cin : COLS, far_sums = block * step;
            const scratch_t sums = over ? room : room + 16 * far;
            for (int i = 0; i < 16; i++, panel += cin * COLS)
                for (int t = 0; t < count; t += ROWS)
                    multiply(room + i * far + t * cin, panel, sums + i * far_sums + t * step, cin);
            for (int t = 0; t < count; t++) {
                int n = (first + t) / each, in_item = first + t - n * each, ty = in_item / tiles.z;
                int tx = in_item - ty * tiles.z;
                bool plain = simple && 2 * ty + 1 < out.s1 && 2 * tx + 1 < out.s2;
                for (int c = 0; c < COLS; c += 16) {
                    float16 result[4];
                    transform_output(sums + t / ROWS * ROWS * step + t % ROWS * COLS + c, far_sums,
                                     vload16(0, bias + col + c), result);
                    if (plain) store_plain(result, n, ty, tx, col + c, y, out, epi.s0, low, scaled);
                    else store_tile(result, n, ty, tx, col + c, y, before, after, out, epi, lab);
                }
            }
        }
    }
    work_end(&work, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
winograd(__global const TX *restrict x, __global const float *restrict u, __global const float *restrict bias,
         __global float *restrict scratch, __global TY *restrict y, __global const T *restrict before,
         __global const T *restrict after, __global const int *restrict limit, int8 in, int8 out, int8 epi, float4 lab,
         int4 tiles, __global int *queue) {
    winograd_group(x, u, bias, scratch, y, before, after, limit, in, out, epi, lab, tiles, queue, THIS_GROUP);
}
