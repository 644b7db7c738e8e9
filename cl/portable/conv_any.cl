/* Dense convolution as an implicit matrix product, for any device with local memory: a work-group of (MR / 4) x (NV)
 * work-items computes MR output pixels by NV * VL channels, VL = 4; a work-item owns 4 x 4 of them.
 *
 * Buffers and the packing of weights are those of cpu/conv (with NR = NV * VL). Per step of TK input channels of one
 * tap the group copies a tile of pixels and one of weights to local memory: every work-item fetches four channels of
 * one fixed pixel and four weights. Needs portable/vector with VL = 4. Grid: x = row tiles, y = column tiles, times the
 * group, which is {MR / 4 * NV, 1, 1}. */
#define NR    (NV * VL)
#define ITEMS (MR / 4 * NV)
#define TK    (4 * ITEMS / MR)
#define PAD   4 /* keeps the four channels a work-item writes apart in the banks */

__attribute__((reqd_work_group_size(ITEMS, 1, 1))) __kernel void
conv(__global const TX *restrict x, __global const float *restrict w, __global const float *restrict bias,
     __global const float *restrict unused, __global TY *restrict y, __global const T *restrict before,
     __global const T *restrict after, __global const int *restrict limit, conv_args arg) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    __local float pixels[TK][MR + PAD], weights[TK][NR];
    int id = get_local_id(0), cin = shape.x_c, col = get_group_id(1) * NR;
    int rows = min(shape.items, *limit) * shape.y_h * shape.y_w, p0 = get_group_id(0) * MR;
    if (p0 >= rows) return;
    int taps = shape.kh * shape.kw;
    size_t at = get_group_id(1) * taps * cin * NR + id * 4;

    int fetch = id / (TK / 4), channel = id % (TK / 4) * 4; /* the pixel and channels this work-item fetches */
    int fp = min(p0 + fetch, rows - 1), fline = fp / shape.y_w, fn = fline / shape.y_h;
    int iy = (fline - fn * shape.y_h) * shape.stride - shape.top;
    int ix0 = (fp - fline * shape.y_w) * shape.stride - shape.left, ix = ix0;
    int ty = id / NV * 4, tx = id % NV * 4;                  /* the results it owns */
    float4 c0 = vload4(0, bias + col + tx), c1 = c0, c2 = c0, c3 = c0;

    /* What it fetches is under way while it computes with what lies in local memory. Behind the last step there is
     * nothing to fetch. */
    int tap = 0, k = 0;
    float4 a, b;
#define FETCH()                                                                                                        \
    do {                                                                                                               \
        int mine = tap < taps && iy >= 0 && iy < shape.x_h && ix >= 0 && ix < shape.x_w ? cin - k - channel : 0;       \
        a = b = (float4)(0.0f);                                                                                        \
        size_t pixel = (size_t)((fn * shape.x_h + iy) * shape.x_w + ix);                                               \
        if (mine > 0) a = input_part(x + (pixel * shape.x_ld + shape.x_c0 + k + channel), mine);                       \
        if (tap < taps && k + id * 4 / NR < cin) b = vload4(0, w + at);                                                \
        at += min(TK, cin - k) * NR;                                                                                   \
        k += TK;                                                                                                       \
        bool next = k >= cin, down = next && (tap + 1) % shape.kw == 0;                                                \
        tap += next;                                                                                                   \
        iy += down;                                                                                                    \
        ix = down ? ix0 : ix + next;                                                                                   \
        k = next ? 0 : k;                                                                                              \
    } while (0)
    FETCH();
    for (int step = taps * ((cin + TK - 1) / TK); step > 0; step--) {
        barrier(CLK_LOCAL_MEM_FENCE);
        pixels[channel][fetch] = a.s0;
        pixels[channel + 1][fetch] = a.s1;
        pixels[channel + 2][fetch] = a.s2;
        pixels[channel + 3][fetch] = a.s3;
        vstore4(b, 0, &weights[id * 4 / NR][id * 4 % NR]);
        barrier(CLK_LOCAL_MEM_FENCE);
        FETCH();
        for (int kk = 0; kk < TK; kk++) {
            float4 av = vload4(0, &pixels[kk][ty]), bv = vload4(0, &weights[kk][tx]);
            c0 = fma((float4)(av.s0), bv, c0);
            c1 = fma((float4)(av.s1), bv, c1);
            c2 = fma((float4)(av.s2), bv, c2);
            c3 = fma((float4)(av.s3), bv, c3);
        }
    }

    int c = col + tx, left = shape.y_c - c;
    if (left <= 0) return; /* not in the loop's condition: some compilers then end the process */
    for (int r = 0, p = p0 + ty; r < 4 && p < rows; r++, p++) {
        int line = p / shape.y_w, n = line / shape.y_h, oy = line - n * shape.y_h, ox = p - line * shape.y_w;
        size_t b = before_pixel(n, oy, ox, shape.y_h, shape.y_w, epi.flags);
        size_t a = after_pixel(n, oy, ox, shape.y_h, shape.y_w, epi.flags);
        finish(r == 0 ? c0 : r == 1 ? c1 : r == 2 ? c2 : c3, left, y + (size_t)p * shape.y_ld + shape.y_c0 + c,
               before + b * epi.before_ld + epi.before_c0 + c, after + a * epi.after_ld + epi.after_c0 + c, epi);
    }
}
