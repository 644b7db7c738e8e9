/* Two groups of one launch hand each other words while both run: out[128 + i] from in[i], where 0xa5a5a5a5 says that it
 * has not come yet, and out[i] what the other group wrote. Gives up where the other one does not run. */
__attribute__((reqd_work_group_size(64, 1, 1))) __kernel void probe(__global uint *out, __global const uint *in) {
#ifdef IST_PTX
    const int i = get_global_id(0);
    uint v = 0xa5a5a5a5u;
    __asm__ volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(out + 128 + i), "r"(in[i]) : "memory");
    for (int turn = 0; turn < 1 << 16 && v == 0xa5a5a5a5u; turn++)
        __asm__ volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(out + 128 + (i ^ 64)) : "memory");
    out[i] = v;
#endif
}
