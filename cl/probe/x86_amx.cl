/* AMX: the product of a tile of 16 rows of 32 bfloat16 and one of 16 rows of 16 pairs, sums in float. Run only where
 * the processor has it and the system lets this process use it. */
__kernel void probe(__global uint *out, __global const uint *in) {
    uint config[16] __attribute__((aligned(64))) = {1, 0, 0, 0};
    ushort rows[16 * 32], columns[16 * 32];
    for (int i = 4; i < 8; i++) config[i] = 64u << 16 | 64u;
    config[12] = config[13] = 0x10101010u;
    for (int i = 0; i < 16 * 32; i++) { /* small integers are exact: the upper half of their float */
        rows[i] = as_uint((float)(in[i % 256] % 128u)) >> 16;
        columns[i] = as_uint((float)(in[i % 256] / 128u % 128u)) >> 16;
    }
    __asm__ volatile("ldtilecfg (%0)\n\t"
                     "tilezero %%tmm0\n\t"
                     "tileloadd (%1,%4,1), %%tmm1\n\t"
                     "tileloadd (%2,%4,1), %%tmm2\n\t"
                     "tdpbf16ps %%tmm2, %%tmm1, %%tmm0\n\t"
                     "tilestored %%tmm0, (%3,%4,1)\n\t"
                     "tilerelease"
                     :
                     : "r"(config), "r"(rows), "r"(columns), "r"(out), "r"((size_t)64)
                     : "memory");
}
