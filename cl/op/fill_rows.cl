/* x[item, rows[i], :] = value, in place. One work-item per row and item.
 * x: pixels of ld elements from channel c0, c channels; rows: pixel numbers within an item; sizes: ld, c0, c, pixels. */
__kernel void fill_rows(__global T *x, __global const int *rows, __global const float *value,
                        __global const int *limit, const int4 sizes) {
    const int item = (int)get_global_id(1);
    if (item >= *limit) return;
    const size_t pixel = (size_t)item * sizes.s3 + rows[get_global_id(0)];
    __global T *row = x + pixel * sizes.s0 + sizes.s1;
    for (int i = 0; i < sizes.s2; i++) STORE(value[i], row, i);
}
