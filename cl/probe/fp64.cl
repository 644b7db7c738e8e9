/* double product (exact: fusing it makes no difference), quotient and sum, correctly rounded. Two words per work-item.
 */
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
__kernel void probe(__global uint *out, __global const uint *in) {
    int i = get_global_id(0);
    double d = (double)(in[i] & 0xfffffu) * (double)(in[i + 64] & 0xfffffu) + (double)as_float(0x3e800000u) / 3.0;
    ulong bits = as_ulong(d);
    out[2 * i] = (uint)bits;
    out[2 * i + 1] = (uint)(bits >> 32);
}
