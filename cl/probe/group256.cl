/* A group of 256 with 16 KiB of local memory: reversed, plus the sum of all. */
#define WORDS 4096
__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void probe(__global uint *out, __global const uint *in) {
    __local uint a[WORDS];
    int i = get_local_id(0);
    for (int k = i; k < WORDS; k += 256) a[k] = in[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    uint reversed = a[WORDS - 1 - i];
    for (int step = 128; step > 0; step /= 2) {
        if (i < step) a[i] += a[i + step];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    out[i] = reversed + a[0];
}
