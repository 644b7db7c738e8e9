/* Barriers and 8 KiB of local memory in groups of 64: each group reversed, plus its sum. The copies are spread over the
 * whole allocation so that a device that grants less shows it. */
#define WORDS 2048
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void probe(__global uint *out, __global const uint *in) {
    __local uint a[WORDS];
    int i = get_local_id(0), g = get_group_id(0);
    for (int k = i; k < WORDS; k += 64) a[k] = in[g * 64 + i];
    barrier(CLK_LOCAL_MEM_FENCE);
    uint reversed = a[WORDS - 1 - i];
    for (int step = 32; step > 0; step /= 2) {
        if (i < step) a[i] += a[i + step];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    out[g * 64 + i] = reversed + a[0];
}
