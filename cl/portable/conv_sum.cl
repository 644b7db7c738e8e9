/* The end of a convolution whose sums were split (portable/conv_tile with -DPARTS): parts [split][pixel][width] are added
 * in their order, bias, epilogue. Needs portable/vector with VL = 4, portable/left_out and
 * portable/conv_store. Grid: x = quads of channels,
 * y = pixels. */
__kernel void conv_sum(__global TY *restrict y, __global const float *restrict parts, __global const float *restrict bias,
                       __global const T *restrict before, __global const T *restrict after,
                       __global const int *restrict limit, __global const int *restrict content,
                       const conv_sum_args arg) {
    const int c = get_global_id(0) * 4, p = get_global_id(1), lines = arg.shape.y_h * arg.shape.y_w;
    if (c >= arg.shape.y_c || p >= arg.shape.items * lines) return;
    const int rows = min(arg.shape.items, *limit) * lines; /* used when the parts are there */
    if (pixels_left_out(p, p + 1, arg.shape.y_h, arg.shape.y_w, content, arg.out)) return;
    const size_t split = (size_t)arg.shape.items * lines * arg.width;
    __global const float *from = parts + (size_t)p * arg.width + c;
    float4 v = *(__global const float4 *)(bias + c);
    for (int s = 0; s < arg.splits; s++) v += *(__global const float4 *)(from + s * split);
    if (p >= rows) return;
    finish_quad(v, p, c, y, before, after, arg.shape, arg.epi, arg.epi.act);
}
