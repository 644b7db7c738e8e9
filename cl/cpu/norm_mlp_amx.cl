/* Norm, linear layer, activation and a second linear layer with residual (graph/nodes.h), for CPUs with AMX: one
 * work-item per group, needs cpu/tile (norm, activation), cpu/amx.
 *
 * A group takes pieces of rows, 32 of which are a tile. It normalises and splits a piece; what lies between the layers,
 * in blocks of hidden channels, it splits likewise. Both are in its part of `scratch`, [tile][step of 32 channels] of
 * squares, and stay in the second-level cache. A panel of weights, of at most STEPS_MAX steps, stays in the first-level
 * cache while all tiles pass by, so that it comes from further away once, and is asked for while the panel before is
 * there. While a tile is multiplied, the vector units finish the sums of the one before: the matrix unit itself never
 * adds to what lies in memory, which would wait for it. The second layer adds to the rows of the result, which begin as
 * residual and bias. -D C_MAX: channels of x. -D STEPS_MAX. */

/* 32 rows or columns of 32 channels, in bfloat16: [part][row / 16] tiles. */
#define SQUARE_BYTES (PARTS * AMX_PANEL * 2)
#define AMX_SUMS     (AMX_BLOCK * AMX_BLOCK)

/* A product's 32 x 32 sums and what is to be done with its rows: they get bias, addend and activation and are split or
 * stored. And lines to ask for: those of the next panel, and those that the next rows are stored to. */
typedef struct {
    const float *sums;
    __global const float *bias; /* or 0 */
    const float *add;           /* [..][ld_add], or 0 */
    __global float *y;          /* [..][ldy], or 0: they are split, to square `to` */
    int ld_add, ldy, rows, act;
    size_t to, weights;
    int lines, ahead; /* of weights in a pause; from y to the next y, or 0 */
} later_t;

NOINLINE void finish_row(const later_t *b, int r) {
    float16 v[2];
    for (int i = 0; i < 2; i++) {
        v[i] = vload16(i, b->sums + r * AMX_BLOCK);
        if (b->bias) v[i] += vload16(i, b->bias);
        if (b->add) v[i] += vload16(i, b->add + (size_t)r * b->ld_add);
    }
    if (b->act == ACT_GELU)
        for (int i = 0; i < 2; i++) v[i] = ist_gelu_float16(v[i]);
    else if (b->act != ACT_NONE)
        activate_all(v, 2, b->act);
    if (!b->y) {
        amx_split(v[0], v[1], b->to + r * AMX_DEPTH * sizeof(ushort), AMX_PANEL);
        return;
    }
    __global float *y = b->y + (size_t)r * b->ldy;
    for (int i = 0; i < 2; i++) vstore16(v[i], i, y);
    if (b->ahead)
        for (int i = 0; i < 2; i++) PREFETCH_WRITE(y + b->ahead + i * 16);
}
static inline void finish_rows(later_t *b) {
    for (int r = 0; r < b->rows; r++) finish_row(b, r);
    b->rows = 0;
}

/* to[32][32] = squares a x squares w, while b's rows are finished. */
NOINLINE void tile_product(later_t *b, float *to, size_t a, size_t w, int steps) {
    const int rows = b->rows, rate = rows * 256 / (steps * AMX_PAUSES) + 1;
    amx_zero((size_t)to, AMX_BLOCK);
    for (int i = 0, r = 0, due = 0; i < steps; i++, a += SQUARE_BYTES, w += SQUARE_BYTES) {
        AMX_STEP((size_t)to, AMX_BLOCK, a, (size_t)AMX_DEPTH, (size_t)AMX_PANEL, w,
                 for (int l = 0; l < b->lines; l++, b->weights += 64) PREFETCH_L2(b->weights);
                 for (due = min(due + rate, rows * 256); r * 256 < due; r++) finish_row(b, r);)
    }
    amx_finish((size_t)to, AMX_BLOCK);
    b->rows = 0;
}

/* w1 [hidden / 32][c / 32] and w2 [c / 32][hidden / 32] squares (cpu/amx); norm {gamma, beta} [2][c]. */
NOINLINE void norm_mlp_group(__global float *restrict y, __global const float *restrict x,
                             __global float *restrict scratch, __global const float *restrict norm,
                             __global const ushort *restrict w1, __global const float *restrict b1,
                             __global const ushort *restrict w2, __global const float *restrict b2,
                             __global const int *restrict limit, const norm_mlp_amx_args arg,
                             __global int *queue, const int4 group) {
    const int c = arg.c, hidden = arg.hidden, block = arg.block_c, cv = c / 16, most = arg.piece_tiles;
    const int y_ld = arg.y_ld, pieces = arg.pieces;
    const int all = (arg.rows + AMX_BLOCK - 1) / AMX_BLOCK, cs = c / AMX_DEPTH, bs = block / AMX_DEPTH;
    const int parts = (cs + STEPS_MAX - 1) / STEPS_MAX;
    const bool second = arg.second;
    /* {rows of u, rows between the layers, sums of all but the last part of the channels, two tiles of sums} */
    const size_t u = (size_t)scratch + (size_t)group.x * arg.scratch_bytes;
    const size_t h = u + (size_t)most * cs * SQUARE_BYTES;
    float *const partial = (float *)(h + (second ? (size_t)most * bs * SQUARE_BYTES : 0));
    float *const sums = partial + (parts > 1 ? most * AMX_SUMS : 0);
    int turn = 0;
    later_t later = {.ldy = y_ld};
    work_t shares = work_begin(group.w, min(arg.items, *limit) * pieces, arg.backwards);
    amx_begin();
    for (int item; (item = work_next(&shares, queue)) >= 0;) {
        const int n = item / pieces, piece = item - n * pieces, begin = piece * all / pieces;
        const int first = begin * AMX_BLOCK, tiles = (piece + 1) * all / pieces - begin;
        const int rows = min(tiles * AMX_BLOCK, arg.rows - first);
        const size_t row0 = (size_t)n * arg.rows + first;
        __global float *const result = y + row0 * y_ld + arg.y_c0;
        later.lines = (SQUARE_BYTES / 64 / AMX_PAUSES + tiles - 1) / tiles;
        for (int r = 0; r < tiles * AMX_BLOCK; r++) {
            const size_t at = (row0 + min(r, rows - 1)) * arg.x_ld + arg.x_c0;
            size_t to = u + (size_t)(r / AMX_BLOCK * cs) * SQUARE_BYTES + r % AMX_BLOCK * AMX_DEPTH * sizeof(ushort);
            float16 v[C_MAX / 16];
            for (int i = 0; i < cv; i++) {
                v[i] = vload16(i, x + at);
                if (second && r < rows) vstore16(v[i] + vload16(i, b2), i, result + (size_t)r * y_ld);
            }
            norm_row(v, cv, norm, norm + c, arg.eps);
            for (int i = 0; i < cv; i += 2, to += SQUARE_BYTES) amx_split(v[i], v[i + 1], to, AMX_PANEL);
        }
        for (int k = 0; k < hidden; k += block) {
            for (int j = k; j < k + block; j += AMX_BLOCK)
                for (int part = 0; part < parts; part++) {
                    const int from = part * cs / parts, steps = (part + 1) * cs / parts - from;
                    const bool last = part + 1 == parts;
                    const size_t panel = (size_t)w1 + (size_t)(j / AMX_BLOCK * cs + from) * SQUARE_BYTES;
                    later.weights = panel + steps * SQUARE_BYTES;
                    if (second && last && j + AMX_BLOCK == k + block)
                        later.weights = (size_t)w2 + (size_t)(k / AMX_DEPTH) * SQUARE_BYTES;
                    for (int t = 0; t < tiles; t++) {
                        float *const before = partial + t * AMX_SUMS, *const to = last ? sums + turn : before;
                        tile_product(&later, to, u + (size_t)(t * cs + from) * SQUARE_BYTES, panel, steps);
                        if (!last) continue;
                        later.sums = to;
                        later.bias = b1 + j;
                        later.add = parts > 1 ? before : 0;
                        later.ld_add = AMX_BLOCK;
                        later.rows = min(AMX_BLOCK, rows - t * AMX_BLOCK);
                        later.act = arg.act;
                        later.to = h + (size_t)(t * bs + (j - k) / AMX_DEPTH) * SQUARE_BYTES;
                        later.y = second ? 0 : result + (size_t)t * AMX_BLOCK * y_ld + j;
                        later.ahead = t + 1 < tiles ? AMX_BLOCK * y_ld : AMX_BLOCK - t * AMX_BLOCK * y_ld;
                        turn ^= AMX_SUMS;
                        if (tiles == 1) finish_rows(&later); /* else the next product touches none of it */
                    }
                }
            for (int j = 0; second && j < c; j += AMX_BLOCK) {
                const size_t ld = (size_t)(hidden / AMX_DEPTH) * SQUARE_BYTES;
                const size_t panel = (size_t)w2 + j / AMX_BLOCK * ld + (size_t)(k / AMX_DEPTH) * SQUARE_BYTES;
                later.weights = panel + ld;
                if (j + AMX_BLOCK == c)
                    later.weights = (size_t)w1 + (size_t)((k + block) / AMX_BLOCK * cs) * SQUARE_BYTES;
                for (int t = 0; t < tiles; t++) {
                    float *const to = sums + turn;
                    tile_product(&later, to, h + (size_t)(t * bs) * SQUARE_BYTES, panel, bs);
                    later.sums = to;
                    later.bias = 0;
                    later.y = result + (size_t)t * AMX_BLOCK * y_ld + j;
                    later.add = (const float *)(size_t)later.y;
                    later.ld_add = y_ld;
                    later.rows = min(AMX_BLOCK, rows - t * AMX_BLOCK);
                    later.act = ACT_NONE;
                    later.ahead = 0;
                    turn ^= AMX_SUMS;
                    if (tiles == 1) finish_rows(&later);
                }
            }
        }
        finish_rows(&later);
    }
    amx_end();
    work_end(&shares, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
norm_mlp(__global float *restrict y, __global const float *restrict x, __global float *restrict scratch,
         __global const float *restrict norm, __global const ushort *restrict w1, __global const float *restrict b1,
         __global const ushort *restrict w2, __global const float *restrict b2, __global const int *restrict limit,
         norm_mlp_amx_args arg, __global int *queue) {
    norm_mlp_group(y, x, scratch, norm, w1, b1, w2, b2, limit, arg, queue, THIS_GROUP);
}
