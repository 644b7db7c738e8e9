/* 1x1 convolution of a few input channels, at most MOST, for GPUs: a work-group of NV work-items makes MR output pixels
 * by NV * VL channels, VL = 4; a work-item has the weights of its four channels in registers, and a pixel's inputs are
 * the same for all.
 *
 * Arguments, packing of weights and grid are those of portable/conv_any. Needs portable/vector with VL = 4. */
#define NR (NV * VL)

__attribute__((reqd_work_group_size(NV, 1, 1))) __kernel void
conv(__global const TX *restrict x, __global const float *restrict w, __global const float *restrict bias,
     __global const float *restrict unused, __global TY *restrict y, __global const T *restrict before,
     __global const T *restrict after, __global const int *restrict limit, conv_args arg) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    const int column = get_group_id(1) * NR + get_local_id(0) * 4, left = shape.y_c - column, p0 = get_group_id(0) * MR;
    const int rows = min(shape.items, *limit) * shape.y_h * shape.y_w;
    if (p0 >= rows || left <= 0) return;
    w += (size_t)get_group_id(1) * shape.x_c * NR + get_local_id(0) * 4;
    float4 weights[MOST];
#pragma unroll
    for (int k = 0; k < MOST; k++) weights[k] = k < shape.x_c ? vload4(0, w + k * NR) : (float4)(0.0f);
    const float4 start = vload4(0, bias + column);
#pragma unroll 4
    for (int r = 0; r < MR; r++) {
        const int p = p0 + r, q = min(p, rows - 1);
        __global const TX *from = x + ((size_t)q * shape.x_ld + shape.x_c0);
        float4 sum = start;
#pragma unroll
        for (int k = 0; k < MOST; k += 4) {
            const float4 v = input_part(from + k, shape.x_c - k);
            sum = fma((float4)(v.s0), weights[k], sum);
            sum = fma((float4)(v.s1), weights[k + 1], sum);
            sum = fma((float4)(v.s2), weights[k + 2], sum);
            sum = fma((float4)(v.s3), weights[k + 3], sum);
        }
        if (p < rows)
            finish(sum, left, y + ((size_t)p * shape.y_ld + shape.y_c0 + column),
                   before + ((size_t)p * epi.before_ld + epi.before_c0 + column),
                   after + ((size_t)p * epi.after_ld + epi.after_c0 + column), epi);
    }
}
