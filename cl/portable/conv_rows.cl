/* Linear layers of few rows (tokens), for GPUs of any vendor: what they cost is to wait for their weights. So a group has
 * ROWS rows and few outputs; its work-items load a part of the inputs' weights each, all at once, and add up their sums
 * through local memory, always in the same order.
 *
 * Buffers are those of portable/conv_any with weights in panels of 4 QUADS channels. Needs portable/vector with VL = 4
 * and portable/conv_store. -D ROWS, QUADS: of outputs, ITEMS: work-items, ROWS * QUADS times a power of two; ACT: the
 * activation. Inputs are a multiple of four. Grid: x = panels times ITEMS, y = blocks of rows. */
#define BN     (4 * QUADS)
#define PARTS  (ITEMS / QUADS)          /* of the inputs */
#define ADDERS (ITEMS / (ROWS * QUADS)) /* work-items that share the adding for a row's quad */

__attribute__((reqd_work_group_size(ITEMS, 1, 1))) __kernel void
conv(__global const TX *restrict x, __global const float *restrict w, __global const float *restrict bias,
     __global TY *restrict y, __global const T *restrict before, __global const T *restrict after,
     __global const int *restrict limit, const conv_rows_args arg) {
    __local float4 part[ROWS * ITEMS]; /* 32 KiB with 8 x 256: all that some GPUs have */
    const int lane = get_local_id(0), quad = lane % QUADS, own = lane / QUADS, cin = arg.shape.x_c;
    const int p0 = get_group_id(1) * ROWS, rows = min(arg.shape.items, *limit) * arg.shape.y_h * arg.shape.y_w;
    if (p0 >= rows) return;
    w += (size_t)get_group_id(0) * cin * BN + quad * 4;
    x += arg.shape.x_c0;
    float4 sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) sum[r] = (float4)(0.0f);
#pragma unroll 1
    for (int k = own * 4; k < cin; k += PARTS * 4) {
        float4 a[ROWS], b[4];
#pragma unroll
        for (int i = 0; i < 4; i++) b[i] = *(__global const float4 *)(w + (k + i) * BN);
#pragma unroll
        for (int r = 0; r < ROWS; r++) a[r] = LOAD_XV(x + min(p0 + r, rows - 1) * arg.shape.x_ld, k);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            sum[r] = fma((float4)(a[r].x), b[0], sum[r]);
            sum[r] = fma((float4)(a[r].y), b[1], sum[r]);
            sum[r] = fma((float4)(a[r].z), b[2], sum[r]);
            sum[r] = fma((float4)(a[r].w), b[3], sum[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) part[r * ITEMS + lane] = sum[r];
    barrier(CLK_LOCAL_MEM_FENCE);
    /* part [row][of inputs][quad]: row lane / (ADDERS * QUADS), every ADDERS-th part of the inputs. What a work-item
     * adds up takes the place of the first that it read, which no other reads. */
    __local float4 *from = part + lane / (ADDERS * QUADS) * ITEMS + lane % (ADDERS * QUADS);
    float4 own_sum = from[0];
#pragma unroll
    for (int i = 1; i < PARTS / ADDERS; i++) own_sum += from[i * ADDERS * QUADS];
    from[0] = own_sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < ROWS * QUADS) {
        const int p = p0 + lane / QUADS, c = get_group_id(0) * BN + quad * 4;
        float4 v = *(__global const float4 *)(bias + c);
#pragma unroll
        for (int i = 0; i < ADDERS; i++) v += part[lane / QUADS * ITEMS + i * QUADS + quad];
        if (p < rows && c < arg.shape.y_c) finish_quad(v, p, c, y, before, after, arg.shape, arg.epi, ACT);
    }
    barrier(CLK_LOCAL_MEM_FENCE); /* else some compilers leave values unstored */
}
