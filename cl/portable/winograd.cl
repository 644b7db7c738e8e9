/* 3x3 convolution with stride 1 by Winograd's F(4x4, 3x3): 36 instead of 144 multiplications for 4x4 results (Lavin and
 * Gray, Fast Algorithms for Convolutional Neural Networks, 2015, section 4). The map is cut in tiles of 4x4 results.
 * Their 6x6 inputs become 36 matrices of tiles by input channels (transform_input: B^T d B), portable/conv_tile multiplies
 * each with its filter (G g G^T, made by the host), and 4x4 results are A^T m A of the 36 products (transform_output).
 *
 * The polynomials meet at 0, +-P, +-Q and infinity. With 3/4 and 3/2 for the usual 1 and 2 the error is half as large,
 * about twice that of the plain sum; both and all that is made of them here are exact in a float. Needs
 * portable/vector; -D ACT: the activation. */
#define P  0.75f
#define Q  1.5f
#define PP (P * P)
#define QQ (Q * Q)

/* B^T d: six of six. */
#define INPUT(d0, d1, d2, d3, d4, d5, PUT)                                                                             \
    {                                                                                                                  \
        const float even_p = fma(-QQ, d2, d4), odd_p = P * fma(-QQ, d1, d3);                                           \
        const float even_q = fma(-PP, d2, d4), odd_q = Q * fma(-PP, d1, d3);                                           \
        PUT(0, fma(PP * QQ, d0, fma(-(PP + QQ), d2, d4)));                                                             \
        PUT(1, even_p + odd_p);                                                                                        \
        PUT(2, even_p - odd_p);                                                                                        \
        PUT(3, even_q + odd_q);                                                                                        \
        PUT(4, even_q - odd_q);                                                                                        \
        PUT(5, fma(PP * QQ, d1, fma(-(PP + QQ), d3, d5)));                                                             \
    }

/* x -> v [36][tile][channel]. Grid: x = channels, y = tiles. */
__kernel void transform_input(__global const TX *restrict x, __global float *restrict v,
                              __global const int *restrict limit, const winograd_map_args arg) {
    const conv_shape shape = arg.shape;
    const int c = get_global_id(0), t = get_global_id(1), each = arg.down * arg.across;
    if (c >= shape.x_c || t >= min(shape.items, *limit) * each) return;
    const int n = t / each, ty = (t - n * each) / arg.across, tx = t - n * each - ty * arg.across;
    const int iy = 4 * ty - shape.top, ix = 4 * tx - shape.left;
    const int line = shape.x_w * shape.x_ld, map = n * shape.x_h * line + shape.x_c0 + c;
    const size_t far = (size_t)shape.items * each * shape.x_c;
    float all[36], d[6][6];
    /* No load behind a condition, so that all of them are under way at once: what is read in place of what lies outside
     * becomes zero. */
    _Pragma("unroll") for (int i = 0; i < 36; i++) {
        const int row = iy + i / 6, column = ix + i % 6;
        all[i] = LOAD_X(x, map + clamp(row, 0, shape.x_h - 1) * line + clamp(column, 0, shape.x_w - 1) * shape.x_ld);
    }
    _Pragma("unroll") for (int i = 0; i < 36; i++) {
        const int row = iy + i / 6, column = ix + i % 6;
        all[i] = row >= 0 && row < shape.x_h && column >= 0 && column < shape.x_w ? all[i] : 0.0f;
    }
    _Pragma("unroll") for (int j = 0; j < 6; j++) {
#define PUT(i, value) d[i][j] = value
        INPUT(all[j], all[6 + j], all[12 + j], all[18 + j], all[24 + j], all[30 + j], PUT)
#undef PUT
    }
    v += (size_t)t * shape.x_c + c;
    _Pragma("unroll") for (int i = 0; i < 6; i++) {
#define PUT(j, value) *v = value, v += far
        INPUT(d[i][0], d[i][1], d[i][2], d[i][3], d[i][4], d[i][5], PUT)
#undef PUT
    }
}

/* A^T m: four of six. */
#define OUTPUT(m0, m1, m2, m3, m4, m5, PUT)                                                                            \
    {                                                                                                                  \
        const float sum_p = m1 + m2, sum_q = m3 + m4, less_p = m1 - m2, less_q = m3 - m4;                              \
        PUT(0, m0 + sum_p + sum_q);                                                                                    \
        PUT(1, fma(P, less_p, Q * less_q));                                                                            \
        PUT(2, fma(PP, sum_p, QQ * sum_q));                                                                            \
        PUT(3, fma(P * PP, less_p, fma(Q * QQ, less_q, m5)));                                                          \
    }

/* The epilogue of one value, bias included. */
static inline void finish_one(float v, int n, int row, int column, int c, __global TY *y, __global const T *before,
                              __global const T *after, const conv_shape shape, const epilogue_args epi) {
    const size_t to = ((size_t)n * shape.y_h + row) * shape.y_w + column;
    if (epi.flags & EPI_BEFORE)
        v += LOAD(before, (size_t)before_pixel(n, row, column, shape.y_h, shape.y_w, epi.flags) * epi.before_ld +
                              epi.before_c0 + c);
    v = activate_float(v, ACT);
    if (epi.flags & EPI_LAB) v = fma(v, epi.lab_scale, epi.lab_bias);
    if (epi.flags & EPI_AFTER)
        v += LOAD(after, (size_t)after_pixel(n, row, column, shape.y_h, shape.y_w, epi.flags) * epi.after_ld +
                             epi.after_c0 + c);
    STORE_Y(v, y, to * shape.y_ld + shape.y_c0 + c);
}

/* m [36][tile][width] -> y. Grid: x = channels, y = tiles. */
__kernel void transform_output(__global TY *restrict y, __global const float *restrict m,
                               __global const float *restrict bias, __global const T *restrict before,
                               __global const T *restrict after, __global const int *restrict limit,
                               const winograd_map_args arg) {
    const conv_shape shape = arg.shape;
    const int c = get_global_id(0), t = get_global_id(1), each = arg.down * arg.across;
    if (c >= shape.y_c || t >= min(shape.items, *limit) * each) return;
    const int n = t / each, ty = (t - n * each) / arg.across, tx = t - n * each - ty * arg.across;
    const size_t far = (size_t)shape.items * each * arg.width;
    m += (size_t)t * arg.width + c;
    float all[36], s[4][6];
    _Pragma("unroll") for (int i = 0; i < 36; i++, m += far) all[i] = *m;
    _Pragma("unroll") for (int j = 0; j < 6; j++) {
#define PUT(i, value) s[i][j] = value
        OUTPUT(all[j], all[6 + j], all[12 + j], all[18 + j], all[24 + j], all[30 + j], PUT)
#undef PUT
    }
    const float b = bias[c];
    _Pragma("unroll") for (int i = 0; i < 4; i++) {
        const int row = 4 * ty + i, column = 4 * tx;
#define PUT(j, value)                                                                                                  \
    if (row < shape.y_h && column + j < shape.y_w)                                                                     \
    finish_one(value + b, n, row, column + j, c, y, before, after, shape, arg.epi)
        OUTPUT(s[i][0], s[i][1], s[i][2], s[i][3], s[i][4], s[i][5], PUT)
#undef PUT
    }
}
