/* Layer norm, linear layer, activation and a second linear layer with residual (src/ops/norm_mlp.h), for CPUs with
 * AMX: one work-item per group, needs isa/tile (norm, activation), isa/bf16, isa/amx, isa/amx_rest.
 *
 * A group normalises CHUNK rows and keeps them as planes of bfloat16, one for each part of a float; what lies between
 * the layers, in blocks of hidden channels, likewise. Each block adds its part to the second layer's sums. Rows are
 * multiplied 32 at a time, which stay in the first-level cache while a block's weights pass by, from the second. While
 * a block of 32 x 32 sums is made, the one before gets its bias and activation and is split; whole rows of results are
 * stored while the next are made. -D C_MAX: channels of x. -D BLOCK_MAX: of a block of hidden channels. -D CHUNK:
 * rows, a multiple of 32. */

#define PLANE_U (CHUNK * PITCH(C_MAX))
#define PLANE_H (CHUNK * PITCH(BLOCK_MAX))

/* Group i: rows [i * CHUNK, ..) of x. w1 [hidden / 32][c / 32] and w2 [c / 32][hidden / 32] panels' steps (isa/amx);
 * norm {gamma, beta} [2][c]. sizes {rows per item, c, hidden, block of hidden, second layer?, act, lines of weights to
 * ask for in a pause, 0}; lds {x ld, c0, y ld, c0}. */
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
    float16 o[CHUNK * C_MAX / 16], sums[2][AMX_BLOCK * BLOCK_MAX / 16];
    uint16 u[PARTS * PLANE_U / 32], h[PARTS * PLANE_H / 32]; /* whole cache lines */
    for (int r = 0; r < tiles * AMX_BLOCK; r++) {
        const size_t at = (row0 + min(r, rows - 1)) * lds.x + lds.y;
        float16 v[C_MAX / 16];
        for (int i = 0; i < cv; i++) {
            v[i] = vload16(i, x + at);
            if (second) o[r * cv + i] = v[i] + vload16(i, b2);
        }
        norm_row(v, cv, norm, norm + c, eps);
        for (int i = 0; i < cv; i++) amx_split(v[i], (size_t)((ushort *)u + r * pitch + i * 16), PLANE_U);
    }
    rest_t rest = {.pitch = between, .plane = PLANE_H, .ldy = lds.z, .lines = sizes.s6};
    rest.near = (size_t)(x + (row0 + CHUNK) * lds.x);
    rest.near_end = rest.near + (size_t)CHUNK * lds.x * sizeof(float);
    amx_begin();
    for (int k = 0, turn = 0; k < hidden; k += block) {
        rest.weights = (size_t)(second ? w2 + k * AMX_BLOCK * PARTS : w1 + (k + block) * c * PARTS);
        for (int t = 0; t < tiles; t++) {
            const ushort *from = (const ushort *)u + t * AMX_BLOCK * pitch;
            const int left = rest.pieces; /* without a second layer: of the rows before */
            for (int j = 0; j < block; j += AMX_BLOCK) {
                float *to = (float *)sums[turn] + (second ? 0 : j);
                if (!second) rest.pieces = left * (j + AMX_BLOCK) / block;
                rest_product(&rest, to, second ? AMX_BLOCK : block, from, pitch, PLANE_U, w1 + (k + j) * c * PARTS,
                             c / AMX_DEPTH, false);
                if (!second) continue;
                rest.sums = to;
                rest.ld = AMX_BLOCK;
                rest.across = 1;
                rest.piece = 0;
                rest.pieces = AMX_BLOCK;
                rest.act = act;
                rest.bias = b1 + k + j;
                rest.y = 0;
                rest.to = (size_t)((ushort *)h + t * AMX_BLOCK * between + j);
                turn ^= 1;
            }
            if (second) continue;
            rest.sums = (const float *)sums[turn];
            rest.ld = block;
            rest.across = block / AMX_BLOCK;
            rest.piece = 0;
            rest.pieces = min(AMX_BLOCK, rows - t * AMX_BLOCK) * rest.across;
            rest.act = act;
            rest.bias = b1 + k;
            rest.y = y + (row0 + t * AMX_BLOCK) * lds.z + lds.w + k;
            turn ^= 1;
        }
        if (!second) continue;
        if (tiles == 1) rest_all(&rest); /* else the last tile of h is not the next product's */
        rest.weights = (size_t)(w1 + (k + block) * c * PARTS);
        for (int t = 0; t < tiles; t++) {
            float *into = (float *)o + t * AMX_BLOCK * c;
            const ushort *from = (const ushort *)h + t * AMX_BLOCK * between;
            const bool last = k + block == hidden;
            const int left = rest.pieces;
            for (int j = 0; j < c; j += AMX_BLOCK) {
                if (t && last) rest.pieces = left * (j + AMX_BLOCK) / c;
                rest_product(&rest, into + j, c, from, between, PLANE_H, w2 + (j * hidden + k * AMX_BLOCK) * PARTS,
                             block / AMX_DEPTH, true);
            }
            if (!last) continue;
            rest.sums = into;
            rest.ld = c;
            rest.across = c / AMX_BLOCK;
            rest.piece = 0;
            rest.pieces = min(AMX_BLOCK, rows - t * AMX_BLOCK) * rest.across;
            rest.act = ACT_NONE;
            rest.bias = 0;
            rest.y = y + (row0 + t * AMX_BLOCK) * lds.z + lds.w;
        }
    }
    rest_all(&rest);
    amx_end();
}
