/* Depthwise convolution for GPUs: a work-item computes VL channels of COLS neighbouring output pixels, so that an input
 * pixel is loaded once for all the taps of a line that read it. Needs portable/vector; arguments are those of cpu/dwconv,
 * weights [block of VL][tap][VL].
 *
 * -D K (side of the filter), STRIDE, COLS; WHOLE: the channels fill their blocks. Grid: x = blocks of channels
 * (fastest), strips of COLS, lines of an item, rounded up to the group; y = items. win.s4: blocks. */
#define SPAN ((COLS - 1) * STRIDE + K)

__attribute__((reqd_work_group_size(128, 1, 1))) __kernel void
dwconv(__global const TX *restrict x, __global const V *restrict w, __global const V *restrict bias,
       __global TY *restrict y, __global const T *restrict before, __global const T *restrict after,
       __global const int *restrict limit, int8 in, int8 win, int8 out, int8 epi, float4 lab) {
    const int blocks = win.s4, strips = (out.s2 + COLS - 1) / COLS, n = get_global_id(1);
    const int unit = get_global_id(0) / blocks, block = get_global_id(0) - unit * blocks;
    const int oy = unit / strips, ox = (unit - oy * strips) * COLS, c = block * VL;
#ifdef WHOLE
    const int left = VL;
#else
    const int left = in.s4 - c;
#endif
    if (oy >= out.s1 || n >= *limit) return;
    const int iy0 = oy * STRIDE - win.s2, ix0 = ox * STRIDE - win.s3;
    V acc[COLS];
    for (int o = 0; o < COLS; o++) acc[o] = bias[block];
    x += in.s3 + c;
    w += block * K * K;
#pragma unroll
    for (int ky = 0; ky < K; ky++) {
        const int iy = iy0 + ky, row = (n * in.s0 + clamp(iy, 0, in.s0 - 1)) * in.s1;
        V v[SPAN];
#pragma unroll
        for (int i = 0; i < SPAN; i++) { /* loads what is outside too, so that no load waits for a branch */
            const int ix = ix0 + i, inside = iy >= 0 && iy < in.s0 && ix >= 0 && ix < in.s1;
            const V near = input_part(x + (long)(row + clamp(ix, 0, in.s1 - 1)) * in.s2, left);
            v[i] = inside ? near : (V)(0.0f);
        }
#pragma unroll
        for (int kx = 0; kx < K; kx++)
#pragma unroll
            for (int o = 0; o < COLS; o++) acc[o] = fma(v[o * STRIDE + kx], w[ky * K + kx], acc[o]);
    }
#pragma unroll
    for (int o = 0; o < COLS; o++) {
        if (ox + o >= out.s2) break;
        const size_t p = (n * out.s1 + oy) * out.s2 + ox + o, b = before_pixel(n, oy, ox + o, out.s1, out.s2, epi.s1);
        const size_t a = after_pixel(n, oy, ox + o, out.s1, out.s2, epi.s1);
        finish(acc[o], left, y + p * out.s3 + out.s4 + c, before + b * epi.s2 + epi.s3 + c,
               after + a * epi.s4 + epi.s5 + c, epi, lab);
    }
}
