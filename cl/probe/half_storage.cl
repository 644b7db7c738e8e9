/* vstore_half rounds to nearest even, overflows to infinity and keeps denormals; vload_half gives the values back.
 * One work-item. out[0..8) the half bit patterns, out[8..16) their float bits. */
__kernel void probe(__global uint *out, __global const uint *in) {
    /* 1; halfway below 1's successor (to even: 1); halfway above it (to even: up); -5; 65504; 65536; 2^-24; 1/3 */
    const uint bits[8] = {0x3f800000u, 0x3f801000u, 0x3f803000u, 0xc0a00000u,
                          0x477fe000u, 0x47800000u, 0x33800000u, 0x3eaaaaabu};
    ushort s[8];
    for (int i = 0; i < 8; i++) {
        vstore_half(as_float(bits[i]), i, (half *)s);
        out[i] = s[i];
        out[8 + i] = as_uint(vload_half(i, (const half *)s));
    }
}
