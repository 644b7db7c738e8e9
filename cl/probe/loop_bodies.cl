/* Bodies of loops run once in a round: two rounds of a loop in which others follow each other, one that always has its
 * rounds and one whose end is data, and which changes what it reads. Some drivers run the end of such a body a second
 * time for the first work-item of a group, also where there is no barrier (PoCL 7.1, which puts some in itself). Of the
 * first n words out[i] is the sum over both rounds k of a count that in[i] >> k names and that grows each time. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void probe(__global uint *out, __global const uint *in) {
    const int n = in[0] & 1u ? min((int)(in[1] & 63u), 60) : 40;
    for (int i = 0; i < n; i++) out[i] = 0;
#ifdef __NV_CL_C_VERSION
#pragma unroll 1 /* it takes a second to compile otherwise */
#endif
    for (int k = 0; k < 2; k++) {
        uint count[256];
#ifdef __NV_CL_C_VERSION
#pragma unroll 1
#endif
        for (int d = 0; d < 256; d++) count[d] = in[d] & k;
        for (int i = 0; i < n; i++) out[i] += count[in[i] >> k & 255u]++;
    }
    for (int i = 0; i < n; i++) out[64 + i] = out[i];
}
