/* 64-bit integers: shifts, comparison, product and quotient with sign. Two words per work-item. */
__kernel void probe(__global uint *out, __global const uint *in) {
    int i = get_global_id(0);
    long a = (long)(((ulong)in[i] << 29) ^ in[i + 64]), b = -(long)((ulong)in[i + 128] << 17);
    long r = (a < b ? a : b) + (a >> 7) * 5 - b / 3;
    out[2 * i] = (uint)r;
    out[2 * i + 1] = (uint)((ulong)r >> 32);
}
