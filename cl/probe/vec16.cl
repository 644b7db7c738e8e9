/* float16 arithmetic, loads and stores at odd element addresses. One work-item. out[i] = x[i + 1] * 3 + x[i + 3]. */
__kernel void probe(__global uint *out, __global const uint *in) {
    float x[160];
    for (int i = 0; i < 160; i++) x[i] = (float)(in[i % 256] % 1024u);
    for (int i = 0; i < 128; i += 16) {
        float16 a = vload16(0, x + i + 1), b = vload16(0, x + i + 3);
        float y[17];
        vstore16(a * 3.0f + b, 0, y + 1);
        for (int k = 0; k < 16; k++) out[i + k] = as_uint(y[k + 1]);
    }
}
