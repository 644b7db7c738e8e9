/* Convolution of an image's few channels (2x2 to 3x3 of at most four inputs), for GPUs of any vendor: the first layer of a
 * network, where an implicit matrix product has nothing to sum over. A group makes ROWS rows of 4 * QUADS pixels, all
 * channels; lines of the image and all weights lie in local memory, and a work-item has four neighbouring pixels of eight
 * channels in registers: of a line it reads once what its pixels share.
 *
 * Weights are one panel of 8 * TILES channels (variants/panels.h). Needs portable/vector with VL = 4 and portable/left_out.
 * -D KH, KW, STRIDE, CIN, TILES: channels by eight, QUADS, ROWS, ITEMS: work-items, at least TILES * QUADS, ACT. Group
 * (x, y, z): pixels of a row, rows, item. */
#define SPAN     (((3 * STRIDE + KW) * CIN + 3) / 4)               /* quads of a line below a work-item's pixels */
#define LINE     (STRIDE * CIN * (QUADS - 1) + SPAN)               /* quads of a line below a group's */
#define LINES    ((ROWS - 1) * STRIDE + KH)
#define WEIGHTS  (KH * KW * CIN * TILES * 2)                       /* quads */

__attribute__((reqd_work_group_size(ITEMS, 1, 1))) __kernel void
conv(__global const TX *restrict x, __global const float *restrict w, __global const float *restrict bias,
     __global TY *restrict y, __global const T *restrict before, __global const T *restrict after,
     __global const int *restrict limit, __global const int *restrict content, const conv_image_args arg) {
    __local float4 lines[LINES * LINE], weights[WEIGHTS];
    __local float *line = (__local float *)lines;
    const conv_shape shape = arg.shape;
    const int id = get_local_id(0), n = get_group_id(2), y0 = get_group_id(1) * ROWS, x0 = get_group_id(0) * 4 * QUADS;
    if (n >= *limit) return;
#ifdef LEFT_OUT
    if (all_left_out(y0, min(y0 + ROWS, shape.y_h), rows_left_out(content, arg.out, n))) return;
#endif
    const left_out_rows there = rows_left_out(content, arg.in, n);
    for (int e = id; e < WEIGHTS; e += ITEMS) weights[e] = ((__global const float4 *)w)[e];
    const int first = x0 * STRIDE - shape.left;
    for (int r = 0; r < LINES; r++) {
        const int row = y0 * STRIDE - shape.top + r, in = row >= 0 && row < shape.x_h;
        const int start = in ? (n * shape.x_h + ROW_OF(row, there)) * shape.x_w : 0;
        for (int e = id; e < 4 * LINE; e += ITEMS) {
            const int column = first + e / CIN, at = (start + column) * shape.x_ld + shape.x_c0 + e % CIN;
            line[r * 4 * LINE + e] = in && column >= 0 && column < shape.x_w ? LOAD_X(x, at) : 0.0f;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const int tile = id % TILES, quad = id / TILES;
    if (quad >= QUADS) return;
    epilogue_args epi = arg.epi;
    epi.act = ACT;
#pragma unroll 1
    for (int row = y0; row < min(y0 + ROWS, shape.y_h); row++) {
        float4 sum[4][2];
#pragma unroll
        for (int p = 0; p < 4; p++) {
            sum[p][0] = vload4(tile, bias);
            sum[p][1] = vload4(tile + TILES, bias);
        }
#pragma unroll 1
        for (int ky = 0; ky < KH; ky++) {
            __local const float4 *from = lines + ((row - y0) * STRIDE + ky) * LINE + quad * STRIDE * CIN;
            float v[4 * SPAN];
#pragma unroll
            for (int i = 0; i < SPAN; i++) vstore4(from[i], i, v);
#pragma unroll
            for (int k = 0; k < KW * CIN; k++) {
                __local const float4 *of = weights + (ky * KW * CIN + k) * TILES * 2 + tile;
                const float4 lo = of[0], hi = of[TILES];
#pragma unroll
                for (int p = 0; p < 4; p++) {
                    sum[p][0] = fma((float4)(v[p * STRIDE * CIN + k]), lo, sum[p][0]);
                    sum[p][1] = fma((float4)(v[p * STRIDE * CIN + k]), hi, sum[p][1]);
                }
            }
        }
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const int column = x0 + quad * 4 + p;
            if (column >= shape.y_w) break;
            const int b = before_pixel(n, row, column, shape.y_h, shape.y_w, epi.flags);
            const int a = after_pixel(n, row, column, shape.y_h, shape.y_w, epi.flags);
            const size_t at = (size_t)((n * shape.y_h + row) * shape.y_w + column) * shape.y_ld + shape.y_c0;
#pragma unroll
            for (int g = 0; g < 2; g++) {
                const int c = (tile + g * TILES) * 4;
                if (c < shape.y_c)
                    finish(sum[p][g], shape.y_c - c, y + at + c, before + (size_t)b * epi.before_ld + epi.before_c0 + c,
                           after + (size_t)a * epi.after_ld + epi.after_c0 + c, epi);
            }
        }
    }
}
