/* A product of small integers as halves, ROWS x DEPTH times DEPTH x COLS, by the last of the group's subgroups: a from
 * local memory, b packed as weights are. out[i] is the float C[i / COLS][i % COLS]. Goes with matrix/matrix; EMULATED: a
 * test asks for it without the instruction. */
#define THREADS 64
#define PITCH   (DEPTH / 2 + 4)
MATRIX_KERNEL __kernel void probe(__global uint *out, __global const uint *in) {
#if defined(IST_MATRIX) || defined(EMULATED)
    MATRIX_SCRATCH
    __local uint4 memory[ROWS * PITCH / 4];
    __local uint *tile = (__local uint *)memory;
    int id = get_local_id(0), lane = id % LANES;
    for (int j = 0; j < ROWS * DEPTH / THREADS; j++) {
        int i = id + j * THREADS;
        vstore_half((float)(in[i % 256] % 16u), i / DEPTH * (PITCH * 2) + i % DEPTH, (__local half *)tile);
    }
    for (int j = 0; j < DEPTH * COLS / THREADS; j++) {
        int i = id + j * THREADS;
        vstore_half((float)(in[(PACKED_K(i) * COLS + PACKED_COL(i)) % 256] / 16u % 16u), i, (__global half *)out);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    matrix_t a = matrix_a(tile, PITCH, lane), b = matrix_b((__global const uint4 *)out, 0, lane);
    matrix_sums_t c = 0.0f;
    MATRIX_MULTIPLY(c, a, b);
    barrier(CLK_GLOBAL_MEM_FENCE);
    if (id / LANES < THREADS / LANES - 1) return;
    for (int i = 0; i < SUMS; i++) out[SUM_ROW(lane, i) * COLS + SUM_COL(lane)] = as_uint(((const float *)&c)[i]);
#endif
}
