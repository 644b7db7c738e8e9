/* cp.async (whole, and cut short with zeros behind), ldmatrix and mma.sync, from a static local array of 98 KiB: one
 * warp computes C = A B for a 16 x 16 A and a 16 x 8 B of small integers as halves. A is copied into the last KiB of
 * the array, its last column zeroed by the copy. out[i] is the float C[i / 8][i % 8]. Goes with nvidia/ptx. */
__attribute__((reqd_work_group_size(32, 1, 1))) __kernel void probe(__global uint *out, __global const uint *in) {
#ifdef IST_PTX
    __local uint4 memory[98 * 1024 / 16];
    int lane = get_local_id(0), g = lane / 4, t = lane % 4;
    __local uint4 *tile = memory + 98 * 1024 / 16 - 64;
    /* halves of A by ordinary stores into global scratch: out[128..256) holds 16 x 16 halves */
    __global half *a = (__global half *)(out + 128);
    for (int i = lane; i < 256; i += 32) vstore_half((float)(in[i] % 16u), i, a);
    barrier(CLK_GLOBAL_MEM_FENCE);
    int row = lane / 2, part = lane % 2;
    COPY16(SHARED(tile + row * 2 + part), a + row * 16 + part * 8, part ? 14 : 16);
    COPY_COMMIT();
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    uint fragment[4], b[2];
    MATRIX_LOAD(fragment, SHARED(tile + lane % 16 * 2 + lane / 16));
    for (int i = 0; i < 2; i++) {
        int k = 2 * t + 8 * i;
        b[i] = halves_of((float)(in[k * 8 + g] / 16u % 16u), (float)(in[(k + 1) * 8 + g] / 16u % 16u));
    }
    float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    MATRIX_MULTIPLY(c, fragment, b[0], b[1]);
    for (int i = 0; i < 4; i++) out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = as_uint(c[i]);
#endif
}
