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
NOINLINE void transform_input(__global const TX *x, int n, int iy, int ix, const conv_shape shape, scratch_t v,
                              int far) {
    long first = ((long)(n * shape.x_h + iy) * shape.x_w + ix) * shape.x_ld + shape.x_c0;
    int line = shape.x_w * shape.x_ld;
    if (iy >= 0 && ix >= 0 && iy + 4 <= shape.x_h && ix + 4 <= shape.x_w) {
        x += first;
        for (int c = 0; c < shape.x_c; c += 16, x += 16, v += ROWS * 16) {
            for (int i = 0; i < 4; i++) { /* what is new in a tile further on */
                PREFETCH(x + i * line + (2 * AHEAD + 2) * shape.x_ld);
                PREFETCH(x + i * line + (2 * AHEAD + 3) * shape.x_ld);
            }
#define AT(i, j) LOAD_XV(x, i * line + j * shape.x_ld)
            TRANSFORM
#undef AT
        }
        return;
    }
    int inside = 0;
    for (int i = 0; i < 16; i++) {
        int y = iy + i / 4, z = ix + i % 4;
        inside |= (y >= 0 && y < shape.x_h && z >= 0 && z < shape.x_w) << i;
    }
    for (int c = 0; c < shape.x_c; c += 16, first += 16, v += ROWS * 16) {
#define AT(i, j) (inside >> (4 * i + j) & 1 ? LOAD_XV(x, first + i * line + j * shape.x_ld) : (float16)(0.0f))
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
static inline void store_plain(float16 *result, int n, int ty, int tx, int c, __global TY *y, const conv_shape shape,
                               int act, float low, float scale, float shift) {
    for (int i = 0; act == ACT_SILU && i < 4; i++) result[i] = activate_float16(result[i], ACT_SILU);
    const int line = shape.y_w * shape.y_ld;
    __global TY *p = y + ((size_t)(n * shape.y_h + 2 * ty) * shape.y_w + 2 * tx) * shape.y_ld + shape.y_c0 + c;
    for (int i = 0; i < 4; i++)
        STORE_YV(fma(max(result[i], (float16)(low)), (float16)(scale), (float16)(shift)), p,
                 (i >> 1) * line + (i & 1) * shape.y_ld);
}

/* Stores the results of 16 channels from c on of tile (ty, tx). */
NOINLINE void store_tile(const float16 *result, int n, int ty, int tx, int c, __global TY *y,
                         __global const T *before, __global const T *after, const conv_shape shape,
                         const epilogue_args epi) {
    for (int i = 0; i < 4; i++) {
        int oy = 2 * ty + (i >> 1), ox = 2 * tx + (i & 1);
        if (oy >= shape.y_h || ox >= shape.y_w) continue;
        long p = ((long)n * shape.y_h + oy) * shape.y_w + ox;
        long b = before_pixel(n, oy, ox, shape.y_h, shape.y_w, epi.flags);
        long a = after_pixel(n, oy, ox, shape.y_h, shape.y_w, epi.flags);
        finish(result[i], 16, y + p * shape.y_ld + shape.y_c0 + c, before + b * epi.before_ld + epi.before_c0 + c,
               after + a * epi.after_ld + epi.after_c0 + c, epi);
    }
}

NOINLINE void winograd_group(__global const TX *restrict x, __global const float *restrict u,
                             __global const float *restrict bias, __global float *restrict scratch,
                             __global TY *restrict y, __global const T *restrict before,
                             __global const T *restrict after, __global const int *restrict limit,
                             const winograd_args arg, __global int *queue, const int4 group) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    scratch_t room = scratch + group.x * ROOM;
    int cin = shape.x_c, block = arg.item_tiles, each = arg.down * arg.across, all = min(shape.items, *limit) * each;
    const int far = block * cin;
    const bool simple = epi.act <= ACT_SILU && (epi.flags & ~EPI_LAB) == 0;
    const float low = epi.act == ACT_RELU ? 0.0f : -INFINITY;
    const float scale = epi.flags & EPI_LAB ? epi.lab_scale : 1.0f, shift = epi.flags & EPI_LAB ? epi.lab_bias : 0.0f;
    work_t work = work_begin(group.w, (all + block - 1) / block, arg.backwards);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        int first = item * block, count = min(block, all - first);
        for (int t = 0; t < count; t++) {
            int n = (first + t) / each, in_item = first + t - n * each, ty = in_item / arg.across;
            int tx = in_item - ty * arg.across;
            transform_input(x, n, 2 * ty - shape.top, 2 * tx - shape.left, shape,
                            room + (t - t % ROWS) * cin + t % ROWS * 16, far);
        }
        __global const float *panel = u;
        for (int col = 0; col < shape.y_c; col += COLS) {
            const bool over = IN_PLACE && cin >= COLS && col + COLS >= shape.y_c; /* products in place of the last V */
            const int step = over ? cin : COLS, far_sums = block * step;
            const scratch_t sums = over ? room : room + 16 * far;
            for (int i = 0; i < 16; i++, panel += cin * COLS)
                for (int t = 0; t < count; t += ROWS)
                    multiply(room + i * far + t * cin, panel, sums + i * far_sums + t * step, cin);
            for (int t = 0; t < count; t++) {
                int n = (first + t) / each, in_item = first + t - n * each, ty = in_item / arg.across;
                int tx = in_item - ty * arg.across;
                bool plain = simple && 2 * ty + 1 < shape.y_h && 2 * tx + 1 < shape.y_w;
                for (int c = 0; c < COLS; c += 16) {
                    float16 result[4];
                    transform_output(sums + t / ROWS * ROWS * step + t % ROWS * COLS + c, far_sums,
                                     vload16(0, bias + col + c), result);
                    if (plain) store_plain(result, n, ty, tx, col + c, y, shape, epi.act, low, scale, shift);
                    else store_tile(result, n, ty, tx, col + c, y, before, after, shape, epi);
                }
            }
        }
    }
    work_end(&work, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
winograd(__global const TX *restrict x, __global const float *restrict u, __global const float *restrict bias,
         __global float *restrict scratch, __global TY *restrict y, __global const T *restrict before,
         __global const T *restrict after, __global const int *restrict limit, winograd_args arg,
         __global int *queue) {
    winograd_group(x, u, bias, scratch, y, before, after, limit, arg, queue, THIS_GROUP);
}
