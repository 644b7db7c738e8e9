/* Layer norm, linear layer, activation and a second linear layer with residual (src/ops/norm_mlp.h), for CPUs with AMX:
 * one work-item per group, needs isa/tile (norm, activation), isa/bf16, isa/amx, isa/amx_rest.
 *
 * A group normalises CHUNK rows and keeps them as planes of bfloat16, one for each part of a float; what lies between
 * the layers, in blocks of hidden channels, likewise. Each block adds its part to the second layer's sums. While a block
 * of 32 x 32 sums is made, the one before gets its bias and activation and is split, or stored; lines of the next panel
 * of weights and of the next group's rows are asked for.
 * -D C_MAX: channels of x and of a block of hidden channels at most. -D CHUNK: rows, a multiple of 32. */

#define PLANE (CHUNK * PITCH(C_MAX))

/* Group i: rows [i * CHUNK, ..) of x. w1 [hidden / 32][c / 32] and w2 [c / 32][hidden / 32] panels' steps (isa/amx); norm
 * {gamma, beta} [2][c]. sizes {rows per item, c, hidden, block of hidden, second layer?, act, 0, 0}; lds {x ld, c0, y ld,
 * c0}. */
__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
norm_mlp(__global float *restrict y, __global const float *restrict x, __global const float *restrict norm,
         __global const ushort *restrict w1, __global const float *restrict b1, __global const ushort *restrict w2,
         __global const float *restrict b2, __global const int *restrict limit, int8 sizes, int4 lds, float eps) {
    const int n = get_group_id(1), c = sizes.s1, hidden = sizes.s2, block = sizes.s3, act = sizes.s5, cv = c / 16;
    const bool second = sizes.s4;
    if (n >= *limit) return;
    const int first = get_group_id(0) * CHUNK, rows = min(CHUNK, sizes.s0 - first), pitch = PITCH(c);
    const int tiles = (rows + AMX_BLOCK - 1) / AMX_BLOCK, between = PITCH(block);
    const size_t row0 = (size_t)n * sizes.s0 + first;
    float16 o[CHUNK * C_MAX / 16], sums[2][AMX_BLOCK * 2];
    uint16 u[PARTS * PLANE / 32], h[PARTS * PLANE / 32]; /* whole cache lines */
    for (int r = 0; r < tiles * AMX_BLOCK; r++) {
        const size_t at = (row0 + min(r, rows - 1)) * lds.x + lds.y;
        float16 v[C_MAX / 16];
        for (int i = 0; i < cv; i++) {
            v[i] = vload16(i, x + at);
            if (second) o[r * cv + i] = v[i] + vload16(i, b2);
        }
        norm_row(v, cv, norm, norm + c, eps);
        for (int i = 0; i < cv; i++) amx_split(v[i], (size_t)((ushort *)u + r * pitch + i * 16), PLANE);
    }
    rest_t rest = {.pitch = between, .plane = PLANE, .ldy = lds.z};
    rest.lines = 16 * AMX_BLOCK / CHUNK; /* all of the next panel while this one is read for CHUNK rows */
    rest.near = (size_t)(x + (row0 + CHUNK) * lds.x);
    rest.near_end = rest.near + (size_t)CHUNK * lds.x * sizeof(float);
    amx_begin();
    for (int k = 0, turn = 0; k < hidden; k += block) {
        for (int j = k; j < k + block; j += AMX_BLOCK) {
            rest.weights = (size_t)(!second || j + AMX_BLOCK < k + block ? w1 + (j + AMX_BLOCK) * c * PARTS
                                                                         : w2 + k * AMX_BLOCK * PARTS);
            for (int t = 0; t < tiles; t++, turn ^= 1) {
                rest_product(&rest, (float *)sums[turn], AMX_BLOCK, (const ushort *)u + t * AMX_BLOCK * pitch, pitch,
                             PLANE, w1 + j * c * PARTS, c / AMX_DEPTH, false);
                rest.sums = (const float *)sums[turn];
                rest.ld = AMX_BLOCK;
                rest.row = 0;
                rest.rows = second ? AMX_BLOCK : min(AMX_BLOCK, rows - t * AMX_BLOCK);
                rest.act = act;
                for (int i = 0; i < 2; i++) rest.bias[i] = vload16(i, b1 + j);
                rest.to = (size_t)((ushort *)h + t * AMX_BLOCK * between + j - k);
                rest.y = second ? 0 : y + (row0 + t * AMX_BLOCK) * lds.z + lds.w + j;
            }
        }
        if (tiles == 1) rest_all(&rest); /* else the last tile of h is not the next product's */
        for (int j = 0; j < c && second; j += AMX_BLOCK) {
            rest.weights = (size_t)(j + AMX_BLOCK < c ? w2 + ((j + AMX_BLOCK) * hidden + k * AMX_BLOCK) * PARTS
                                                      : w1 + (k + block) * c * PARTS);
            for (int t = 0; t < tiles; t++) {
                float *into = (float *)o + t * AMX_BLOCK * c + j;
                rest_product(&rest, into, c, (const ushort *)h + t * AMX_BLOCK * between, between, PLANE,
                             w2 + (j * hidden + k * AMX_BLOCK) * PARTS, block / AMX_DEPTH, true);
                if (k + block < hidden) continue;
                rest.sums = into;
                rest.ld = c;
                rest.row = 0;
                rest.rows = min(AMX_BLOCK, rows - t * AMX_BLOCK);
                rest.act = ACT_NONE;
                for (int i = 0; i < 2; i++) rest.bias[i] = (float16)(0.0f);
                rest.y = y + (row0 + t * AMX_BLOCK) * lds.z + lds.w + j;
            }
        }
    }
    rest_all(&rest);
    amx_end();
}
