/* Assignment of rows to columns; the algorithm is lap.cl or lap_serial.cl, joined in front. */

/* match[i, r]: column of row r or -1, for r < rows; complete[i]: 1 when min(rows, columns) pairs were found. cost
 * [i, rows, columns] of which dims[2 i], dims[2 i + 1] are used. sizes: rows, columns, ints of work per item. One group
 * per item. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
assign(__global int *match, __global int *complete, __global int *work, __global const float *cost,
       __global const int *dims, __global const int *limit, int4 sizes, float scale) {
    LAP_ROOM
    int item = get_group_id(0);
    if (item >= *limit) return;
    int rows = clamp(dims[2 * item], 0, sizes.x), cols = clamp(dims[2 * item + 1], 0, sizes.y);
    bool tall = rows > cols;
    int n = min(rows, cols), m = max(rows, cols);
    lap l = LAP_AT(work + (size_t)item * sizes.z, n, m);
    int2 strides = tall ? (int2)(1, sizes.y) : (int2)(sizes.y, 1);
    int left = lap_solve(&l, cost + (size_t)item * sizes.x * sizes.y, strides, n, m, scale);
    match += item * sizes.x;
    for (int r = LANE; r < sizes.x; r += LANES) match[r] = r >= rows ? -1 : tall ? l.owner[r] : l.sink[r];
    if (LANE == 0) complete[item] = left == 0;
}
