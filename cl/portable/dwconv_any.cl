/* Depthwise convolution for any device: a work-item computes four channels of one output pixel; neighbouring work-items
 * are neighbouring channels. Needs portable/vector with VL = 4. Buffers are those of cpu/dwconv, weights [block of
 * 4][tap][4]. Grid: x = channels / 4, y = pixels of an item (both rounded up to the group), z = items. */
__kernel void dwconv(__global const TX *restrict x, __global const float *restrict w, __global const float *restrict bias,
                     __global TY *restrict y, __global const T *restrict before, __global const T *restrict after,
                     __global const int *restrict limit, conv_args arg) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    int block = get_global_id(0), n = get_global_id(2), k = shape.kh, c = block * VL, left = shape.x_c - c;
    int oy = get_global_id(1) / shape.y_w, ox = get_global_id(1) - oy * shape.y_w;
    if (left <= 0 || oy >= shape.y_h || n >= *limit) return;
    int iy0 = oy * shape.stride - shape.top, ix0 = ox * shape.stride - shape.left;
    V v = vload4(block, bias);
    for (int ky = max(0, -iy0); ky < min(k, shape.x_h - iy0); ky++)
        for (int kx = max(0, -ix0); kx < min(k, shape.x_w - ix0); kx++) {
            size_t p = (n * shape.x_h + iy0 + ky) * shape.x_w + ix0 + kx;
            v = fma(input_part(x + p * shape.x_ld + shape.x_c0 + c, left), vload4((block * k + ky) * k + kx, w), v);
        }
    size_t p = (n * shape.y_h + oy) * shape.y_w + ox, b = before_pixel(n, oy, ox, shape.y_h, shape.y_w, epi.flags);
    size_t a = after_pixel(n, oy, ox, shape.y_h, shape.y_w, epi.flags);
    finish(v, left, y + p * shape.y_ld + shape.y_c0 + c, before + b * epi.before_ld + epi.before_c0 + c,
           after + a * epi.after_ld + epi.after_c0 + c, epi);
}
