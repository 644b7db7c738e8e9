/* Loops of many rounds: 150000 in all, in two loops within each other whose ends are data. Some drivers leave loops
 * after 65535 rounds (llvmpipe of Mesa) and return what there is by then. out[i] is the last state of a generator that
 * begins with in[i]; the increment is not constant, so that no compiler finds a closed form. */
__kernel void probe(__global uint *out, __global const uint *in) {
    const int i = get_global_id(0), rounds = 300 + (int)(in[0] & 0u), inner = 500 + (int)(in[1] & 0u);
    uint state = in[i];
    for (int k = 0; k < rounds; k++)
        for (int j = 0; j < inner; j++) state = state * 1664525u + (state >> 16) + (uint)j;
    out[i] = state;
}
