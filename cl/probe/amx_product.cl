/* cpu/amx's interface for its test: splits a [32][32 steps] and multiplies it by columns. out {sums [32][32], parts of
 * a [PARTS][32][32 steps] as floats, in the order of pairs}; b [step][part][column / 16][pair][column % 16] of pairs.
 * Needs cpu/amx. */
__kernel void product(__global float *out, __global const float *a, __global const ushort *b, __global ushort *planes,
                      int steps, int add) {
    const int depth = steps * AMX_DEPTH, plane = AMX_BLOCK * depth;
    for (int i = 0; i < plane; i += AMX_DEPTH)
        amx_split(vload16(0, a + i), vload16(1, a + i), (size_t)(planes + i), plane);
    for (int i = 0; i < PARTS * plane; i++)
        out[AMX_BLOCK * AMX_BLOCK + i] = as_float((uint)planes[i] << 16);
    amx_begin();
    if (add)
        amx_start((size_t)out, AMX_BLOCK, (size_t)out, AMX_BLOCK);
    else
        amx_zero((size_t)out, AMX_BLOCK);
    for (int i = 0; i < steps; i++) {
        AMX_STEP((size_t)out, AMX_BLOCK, (size_t)(planes + i * AMX_DEPTH), (size_t)depth, (size_t)plane,
                 (size_t)(b + i * PARTS * AMX_PANEL), )
    }
    amx_finish((size_t)out, AMX_BLOCK);
    amx_end();
}
