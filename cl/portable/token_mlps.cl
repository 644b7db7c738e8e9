/* MLPs of single tokens (the hypernetworks and the IoU head of SAM's mask decoder), three layers in one launch: a group has
 * one MLP of one prompt. A layer's weights are read once, so what counts is how many are asked for at a time: a work-item
 * sums four outputs over a part of the inputs, BATCH rows of weights at once; the parts are added in their order.
 *
 * weights [MLP][layer][in][out], table [MLP] biases of all layers; outputs are filled up to fours with zeros.
 * -D WIDEST: a multiple of four, no layer has more inputs or outputs. Grid: x = MLPs times ITEMS, y = prompts. */
#define ITEMS 256
#define BATCH 16

/* Outputs of this layer in fours; inputs x, parts of the sums. */
static inline void layer_parts(__local float4 *part, __local const float *x, int inputs, int fours,
                               __global const float4 *w, int lane) {
    const int parts = min(ITEMS / fours, inputs), own = lane / fours, four = lane - own * fours;
    if (own >= parts) return;
    float4 sum = (float4)(0.0f);
    for (int k = own; k < inputs; k += parts * BATCH) {
        float4 f[BATCH];
#pragma unroll
        for (int u = 0; u < BATCH; u++) f[u] = w[min(k + u * parts, inputs - 1) * fours + four];
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            if (k + u * parts < inputs) sum = fma((float4)(x[k + u * parts]), f[u], sum);
    }
    part[lane] = sum;
}

static inline float layer_sum(__local const float *part, int inputs, int fours, float bias, int lane) {
    const int parts = min(ITEMS / fours, inputs);
    for (int i = 0; i < parts; i++) bias += part[i * fours * 4 + lane];
    return bias;
}

__attribute__((reqd_work_group_size(ITEMS, 1, 1))) __kernel void
token_mlps(__global T *vectors, __global float *scores, __global const T *x, __global const float4 *weights,
           __global const float *table, __global const int *limit, const token_mlps_args arg) {
    __local float4 part[ITEMS];
    __local float now[WIDEST];
    const int lane = get_local_id(0), which = get_group_id(0), n = get_group_id(1);
    if (n >= *limit) return;
    const int token = which ? arg.first + which - 1 : 0, outputs = which ? arg.vector_c : arg.score_c;
    const int from = (n * arg.tokens + token) * arg.x_ld + arg.x_c0;
    weights += (size_t)which * arg.mlp_fours;
    table += which * arg.mlp_biases;
    for (int c = lane; c < arg.inputs; c += ITEMS) now[c] = LOAD(x, from + c);
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 1
    for (int l = 0; l < 3; l++) {
        const int inputs = l == 0 ? arg.inputs : l == 1 ? arg.hidden0 : arg.hidden1;
        const int fours = (l == 0 ? arg.hidden0 : l == 1 ? arg.hidden1 : arg.outputs) / 4;
        const float bias = table[min(lane, fours * 4 - 1)];
        layer_parts(part, now, inputs, fours, weights, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < fours * 4) {
            const float v = layer_sum((__local const float *)part, inputs, fours, bias, lane);
            now[lane] = l < 2 ? fmax(v, 0.0f) : v;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        weights += inputs * fours;
        table += fours * 4;
    }
    if (lane < outputs && which)
        STORE(now[lane], vectors, (n * (get_num_groups(0) - 1) + which - 1) * arg.vector_ld + arg.vector_c0 + lane);
    else if (lane < outputs)
        scores[n * arg.score_ld + arg.score_c0 + lane] = now[lane];
    barrier(CLK_LOCAL_MEM_FENCE); /* else some compilers leave values unstored */
}
