/* Makes the rows of a map that were left out: copies of those that they repeat. Goes with portable/left_out. Grid: x =
 * channels of the pixels of a row, y = rows, z = items. */
__kernel void repeat_rows(__global T *x, __global const int *content, __global const int *limit,
                          const repeat_rows_args arg) {
    const int i = get_global_id(0), row = get_global_id(1), n = get_global_id(2), column = i / arg.c;
    if (column >= arg.w || n >= *limit) return;
    const left_out_rows out = rows_left_out(content, arg.reuse, n);
    const int from = row_of(row, out);
    if (from == row) return;
    const int at = column * arg.ld + arg.c0 + i - column * arg.c;
    const float v = LOAD(x + (size_t)(n * arg.h + from) * arg.w * arg.ld, at);
    STORE(v, x + (size_t)(n * arg.h + row) * arg.w * arg.ld, at);
}
