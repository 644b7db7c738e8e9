/* x[item, rows[i], :] = value, in place. LANES work-items per row and item: 1 on CPUs, 64 elsewhere.
 * x: pixels of ld elements from channel c0, c channels; rows: pixel numbers within an item; sizes: ld, c0, c, pixels.
 */
#ifndef LANES
#define LANES 1
#endif
__kernel void fill_rows(__global T *x, __global const int *rows, __global const float *value,
                        __global const int *limit, const int4 sizes) {
    const int item = (int)get_global_id(1);
    if (item >= *limit) return;
    const size_t pixel = (size_t)item * sizes.s3 + rows[get_global_id(0) / LANES];
    __global T *row = x + pixel * sizes.s0 + sizes.s1;
    for (int i = get_global_id(0) % LANES; i < sizes.s2; i += LANES) STORE(value[i], row, i);
}
