/* Two places of one buffer, and a buffer beside it (device/ptx.h). */
__attribute__((reqd_work_group_size(64, 1, 1))) __kernel void probe(__global uint *out, __global const uint *in,
                                                                    __global const uint *later) {
#ifdef IST_PTX
    const int i = get_global_id(0);
    out[i] = in[i] + 3 * later[i];
#endif
}
