/* isa/amx's interface for its test: rounds a [32][32 steps] and multiplies it by columns. out {sums [32][32], a as
 * rounded [32][32 steps]}; b as amx_product takes it. Needs isa/bf16, isa/amx. */
__kernel void product(__global float *out, __global const float *a, __global const ushort *b, __global ushort *rows,
                      int steps, int add) {
    const int depth = steps * AMX_DEPTH, count = AMX_BLOCK * depth;
    for (int i = 0; i < count / 16; i++) vstore16(bf16_round(vload16(i, a)), i, rows);
    for (int i = 0; i < count; i++) out[AMX_BLOCK * AMX_BLOCK + i] = as_float((uint)rows[i] << 16);
    amx_begin();
    amx_product((size_t)out, AMX_BLOCK, (size_t)rows, depth, (size_t)b, steps, add);
    amx_end();
}
