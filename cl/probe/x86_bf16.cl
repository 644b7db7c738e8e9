/* AVX512_BF16: rounding of 16 floats, and sums of products of 16 pairs. Run only where the processor has it. */
float x(__global const uint *in, int i) {
    return (float)(in[i] % 1024u);
}
__kernel void probe(__global uint *out, __global const uint *in) {
    float16 v, sums;
    short16 rounded;
    int16 a, b;
    for (int i = 0; i < 16; i++) {
        ((float *)&v)[i] = 1.0f + x(in, i) / 1024.0f;
        ((float *)&sums)[i] = (float)i;
        for (int k = 0; k < 2; k++) { /* small integers are exact: the upper half of their float */
            ((ushort *)&a)[2 * i + k] = as_uint((float)(in[2 * i + k] % 128u)) >> 16;
            ((ushort *)&b)[2 * i + k] = as_uint((float)(in[32 + 2 * i + k] % 128u)) >> 16;
        }
    }
    __asm__("vcvtneps2bf16 %1,%0" : "=v"(rounded) : "v"(v));
    __asm__("vdpbf16ps %2,%1,%0" : "+v"(sums) : "v"(a), "v"(b));
    for (int i = 0; i < 16; i++) {
        out[i] = ((ushort *)&rounded)[i];
        out[16 + i] = as_uint(((float *)&sums)[i]);
    }
}
