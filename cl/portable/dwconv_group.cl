/* Depthwise convolution for GPUs: a work-item computes VL channels of COLS neighbouring output pixels, so that an input
 * pixel is loaded once for all the taps of a line that read it. Needs portable/vector; buffers are those of cpu/dwconv,
 * weights [block of VL][tap][VL].
 *
 * -D K (side of the filter), STRIDE, COLS; WHOLE: the channels fill their blocks; LEFT_OUT: rows of a letterboxed map are
 * left out, of the input, the output or both (goes with portable/left_out). Grid: x = blocks of channels
 * (fastest), strips of COLS, lines of an item, rounded up to the group; y = items. */
#define SPAN ((COLS - 1) * STRIDE + K)

__attribute__((reqd_work_group_size(128, 1, 1))) __kernel void
dwconv(__global const TX *restrict x, __global const V *restrict w, __global const V *restrict bias,
       __global TY *restrict y, __global const T *restrict before, __global const T *restrict after,
       __global const int *restrict limit, dwconv_args arg, __global const int *restrict content) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    const int blocks = arg.blocks, strips = (shape.y_w + COLS - 1) / COLS, n = get_global_id(1);
    const int unit = get_global_id(0) / blocks, block = get_global_id(0) - unit * blocks;
    const int oy = unit / strips, ox = (unit - oy * strips) * COLS, c = block * VL;
#ifdef WHOLE
    const int left = VL;
#else
    const int left = shape.x_c - c;
#endif
    if (oy >= shape.y_h || n >= *limit) return;
#ifdef LEFT_OUT
    if (all_left_out(oy, oy + 1, rows_left_out(content, arg.out, n))) return;
    const left_out_rows there = rows_left_out(content, arg.in, n);
#endif
    const int iy0 = oy * STRIDE - shape.top, ix0 = ox * STRIDE - shape.left;
    V acc[COLS];
    for (int o = 0; o < COLS; o++) acc[o] = bias[block];
    x += shape.x_c0 + c;
    w += block * K * K;
#pragma unroll
    for (int ky = 0; ky < K; ky++) {
        const int iy = iy0 + ky, row = (n * shape.x_h + ROW_OF(clamp(iy, 0, shape.x_h - 1), there)) * shape.x_w;
        V v[SPAN];
#pragma unroll
        for (int i = 0; i < SPAN; i++) { /* loads what is outside too, so that no load waits for a branch */
            const int ix = ix0 + i, inside = iy >= 0 && iy < shape.x_h && ix >= 0 && ix < shape.x_w;
            const V near = input_part(x + (long)(row + clamp(ix, 0, shape.x_w - 1)) * shape.x_ld, left);
            v[i] = inside ? near : (V)(0.0f);
        }
#pragma unroll
        for (int kx = 0; kx < K; kx++)
#pragma unroll
            for (int o = 0; o < COLS; o++) acc[o] = fma(v[o * STRIDE + kx], w[ky * K + kx], acc[o]);
    }
#pragma unroll
    for (int o = 0; o < COLS; o++) {
        if (ox + o >= shape.y_w) break;
        const size_t p = (n * shape.y_h + oy) * shape.y_w + ox + o;
        const size_t b = before_pixel(n, oy, ox + o, shape.y_h, shape.y_w, epi.flags);
        const size_t a = after_pixel(n, oy, ox + o, shape.y_h, shape.y_w, epi.flags);
        finish(acc[o], left, y + p * shape.y_ld + shape.y_c0 + c, before + b * epi.before_ld + epi.before_c0 + c,
               after + a * epi.after_ld + epi.after_c0 + c, epi);
    }
}
