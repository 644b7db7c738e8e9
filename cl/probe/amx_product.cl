/* isa/amx's interface for its test: rounds a [32][32 steps] and multiplies it by columns. out {sums [32][32], a as
 * rounded [32][32 steps]}; b [step][column / 16][pair][column % 16] of
 * pairs. Needs isa/bf16, isa/amx. */
__kernel void product(__global float *out, __global const float *a, __global const ushort *b, __global ushort *rows,
                      int steps, int add) {
    const int depth = steps * AMX_DEPTH, count = AMX_BLOCK * depth;
    for (int i = 0; i < count / 16; i++) vstore16(bf16_round(vload16(i, a)), i, rows);
    for (int i = 0; i < count; i++) out[AMX_BLOCK * AMX_BLOCK + i] = as_float((uint)rows[i] << 16);
    amx_begin();
    if (add)
        amx_start((size_t)out, AMX_BLOCK, (size_t)out, AMX_BLOCK);
    else
        amx_zero((size_t)out, AMX_BLOCK);
    for (int i = 0; i < steps; i++) {
        AMX_STEP((size_t)out, AMX_BLOCK, (size_t)(rows + i * AMX_DEPTH), (size_t)depth, (size_t)(b + i * AMX_PANEL), )
    }
    amx_finish((size_t)out, AMX_BLOCK);
    amx_end();
}
