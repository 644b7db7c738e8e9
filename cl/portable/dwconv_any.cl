/* Depthwise convolution for any device: a work-item computes four channels of one output pixel; neighbouring work-items
 * are neighbouring channels. Needs portable/vector with VL = 4. Arguments are those of cpu/dwconv, weights [block of
 * 4][tap][4]. Grid: x = channels / 4, y = pixels of an item (both rounded up to the group), z = items. */
__kernel void dwconv(__global const TX *restrict x, __global const float *restrict w, __global const float *restrict bias,
                     __global TY *restrict y, __global const T *restrict before, __global const T *restrict after,
                     __global const int *restrict limit, int8 in, int8 win, int8 out, int8 epi, float4 lab) {
    int block = get_global_id(0), n = get_global_id(2), k = win.s0, c = block * VL, left = in.s4 - c;
    int oy = get_global_id(1) / out.s2, ox = get_global_id(1) - oy * out.s2;
    if (left <= 0 || oy >= out.s1 || n >= *limit) return;
    int iy0 = oy * win.s1 - win.s2, ix0 = ox * win.s1 - win.s3;
    V v = vload4(block, bias);
    for (int ky = max(0, -iy0); ky < min(k, in.s0 - iy0); ky++)
        for (int kx = max(0, -ix0); kx < min(k, in.s1 - ix0); kx++) {
            size_t p = (n * in.s0 + iy0 + ky) * in.s1 + ix0 + kx;
            v = fma(input_part(x + p * in.s2 + in.s3 + c, left), vload4((block * k + ky) * k + kx, w), v);
        }
    size_t p = (n * out.s1 + oy) * out.s2 + ox, b = before_pixel(n, oy, ox, out.s1, out.s2, epi.s1);
    size_t a = after_pixel(n, oy, ox, out.s1, out.s2, epi.s1);
    finish(v, left, y + p * out.s3 + out.s4 + c, before + b * epi.s2 + epi.s3 + c, after + a * epi.s4 + epi.s5 + c, epi,
           lab);
}
