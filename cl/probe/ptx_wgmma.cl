/* wgmma with both matrices in local memory: one warpgroup computes C = A B for a 64 x 64 A and a 64 x 8 B of small
 * integers as halves, at the end of a static local array of 224 KiB beside one of two. out[i] is C[i / 8][i % 8] + 3 C[32 + i / 8][i %
 * 8]. Goes with nvidia/ptx and nvidia/wgmma. */
__attribute__((reqd_work_group_size(128, 1, 1))) __kernel void probe(__global uint *out, __global const uint *in) {
#ifdef IST_PTX
    __local uint4 space[224 * 1024 / 16], *memory = space + 212 * 1024 / 16;
    __local float sums[64 * 8];
    const int id = get_local_id(0), lane = id % 32, warp = id / 32;
    const uint shared = (SHARED(memory) + 1023u) & ~1023u; /* A, and behind it B turned: 8 rows along the sum */
    __local uint *words = (__local uint *)memory + (shared - SHARED(memory)) / 4;
    for (int i = id; i < 72 * 32; i += 128) {
        const int row = i / 32, k = i % 32 * 2, part = k / 8 ^ row % 8;
        const int a = row * 64 + k, b = k * 8 + row - 64;
        words[row * 32 + part * 4 + k % 8 / 2] =
            row < 64 ? halves_of((float)(in[a % 256] % 16u), (float)(in[(a + 1) % 256] % 16u))
                     : halves_of((float)(in[b % 256] / 16u % 16u), (float)(in[(b + 8) % 256] / 16u % 16u));
    }
    GROUP_PUBLISH();
    barrier(CLK_LOCAL_MEM_FENCE);
    float c[1][4] = {{0.0f, 0.0f, 0.0f, 0.0f}};
    const matrix_at a = MATRIX_AT(shared), b = MATRIX_AT(shared + 64 * 128);
    GROUP_BEGIN();
    for (int s = 0; s < 4; s++) GROUP_MULTIPLY(8, c, a + 2 * s, b + 2 * s);
    GROUP_COMMIT();
    GROUP_WAIT(0);
    for (int i = 0; i < 4; i++) sums[(warp * 16 + lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = c[0][i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = id; i < 256; i += 128) out[i] = as_uint(sums[i] + 3.0f * sums[256 + i]);
#endif
}
