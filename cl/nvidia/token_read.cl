/* A layer behind what tokens read of an image whose keys and values are there (variants/nvidia/tokens.h), on matrix instructions
 * with half storage: hidden are eight heads of 16 channels. Goes with nvidia/ptx, nvidia/sums and nvidia/token, -D HID=128.
 *
 * Group (i, tile, j) reads 128 of the image's rows, a part: j 0 for both prompts or, where their images differ, for the
 * first, j 1 for the second; the last joins the parts. A warp has a head. Work-item t of four has channels 4 t to 4 t +
 * 3 of it in keys and values as they come from memory, so that queries are made in that order and averages leave in it.
 */
#define D     16  /* channels of a head */
#define ROWS  128 /* image rows of a group */
#define TILES (ROWS / 8)
#define TURN  (TILES / 2) /* whose scores are in registers together */

/* o: softmax(query keys) values, not divided by sum, which is each work-item's share; the image ends at row `rows`. */
static inline void read_rows(float (*o)[4], float *most, float *sum, const uint *query, uint (*keys)[2],
                             uint (*values)[2], int first, int rows MATRIX_SCRATCH_PARAMETER) {
    const int t = get_local_id(0) % 4;
    UNROLL for (int r = 0; r < 2; r++) {
        most[r] = -3.0e38f;
        sum[r] = 0.0f;
    }
    UNROLL for (int i = 0; i < 2; i++)
        UNROLL for (int e = 0; e < 4; e++) o[i][e] = 0.0f;
    UNROLL for (int j0 = 0; j0 < TILES; j0 += TURN) {
        float s[TURN][4], top[2] = {-3.0e38f, -3.0e38f}, factor[2];
        UNROLL for (int j = 0; j < TURN; j++) {
            UNROLL for (int e = 0; e < 4; e++) s[j][e] = 0.0f;
            MATRIX_MULTIPLY(s[j], query, keys[j0 + j][0], keys[j0 + j][1]);
            UNROLL for (int e = 0; e < 4; e++) {
                if (first + (j0 + j) * 8 + 2 * t + e % 2 >= rows) s[j][e] = -3.0e38f;
                top[e / 2] = fmax(top[e / 2], s[j][e]);
            }
        }
        SOFTMAX_GOES_ON(top, most, sum, factor, 1.0f)
        UNROLL for (int i = 0; i < 2; i++)
            UNROLL for (int e = 0; e < 4; e++) o[i][e] *= factor[e / 2];
        UNROLL for (int b = 0; b < TURN; b += 2) {
            uint p[4];
            SOFTMAX_WEIGHTS(p, s, b, top, sum, 1.0f)
            UNROLL for (int i = 0; i < 2; i++) {
                uint b0, b1;
                MATRIX_TURN(b0, values[j0 + b][i]);
                MATRIX_TURN(b1, values[j0 + b + 1][i]);
                MATRIX_MULTIPLY(o[i], p, b0, b1);
            }
        }
    }
    UNROLL for (int r = 0; r < 2; r++) QUAD_SUM(sum[r]);
}

/* The averages of `splits` parts, `apart` floats from part to part, as eight halves: half a head of a token, in column
 * `at`; `piece` of 16 bytes of the averages. */
static inline uint4 join_parts(__global const float *parts, int splits, int apart, int at, int piece) {
    float most = -3.0e38f, total = 0.0f, o[8];
    UNROLL for (int e = 0; e < 8; e++) o[e] = 0.0f;
    for (int j0 = 0; j0 < splits; j0 += 32) {
        float top[32];
        UNROLL for (int j = 0; j < 32; j++) top[j] = parts[min(j0 + j, splits - 1) * apart + at];
        UNROLL for (int j = 0; j < 32; j++) most = fmax(most, top[j]);
    }
    for (int j0 = 0; j0 < splits; j0 += 16) {
        uint v[16][4];
        float share[16];
        UNROLL for (int j = 0; j < 16; j++) {
            __global const float *one = parts + min(j0 + j, splits - 1) * apart;
            FETCH16(v[j], one + 128 + piece * 4);
            share[j] = j0 + j < splits ? one[64 + at] * quick_exp2(fmax(one[at] - most, -126.0f)) : 0.0f;
        }
        UNROLL for (int j = 0; j < 16; j++) {
            total += share[j];
            UNROLL for (int e = 0; e < 4; e++) {
                const float2 f = floats_of(v[j][e]);
                o[2 * e] = fma(share[j], f.x, o[2 * e]);
                o[2 * e + 1] = fma(share[j], f.y, o[2 * e + 1]);
            }
        }
    }
    total = 1.0f / total;
    return (uint4)(halves_of(o[0] * total, o[1] * total), halves_of(o[2] * total, o[3] * total),
                   halves_of(o[4] * total, o[5] * total), halves_of(o[6] * total, o[7] * total));
}

/* weights and table: the layer's. image: keys and values, item map[n] or n; queries: a plain fold. Parts of a reading,
 * {most [64], sum [64]} in floats, column token * 8 + head, then averages [tokens][8][16] in halves, go to
 * `partial`. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
token_read(__global half *restrict y, __global const half *restrict x, __global const half *restrict add,
           __global const uint4 *restrict weights, __global const float *restrict table,
           __global const int *restrict limit, token_read_args arg, __global const half *restrict image,
           __global float *restrict partial, __global int *restrict arrived, __global const half *restrict queries,
           __global const int *restrict map) {
    MATRIX_SCRATCH
    __local uint4 memory[OWN];
    const int id = get_local_id(0), lane = id & 31, h = id / 32, g = lane / 4, t = lane % 4, tile = get_group_id(1);
    const int n0 = tile * 2, all = arg.common.prompts, prompts = min(all, *limit), tokens = arg.common.tokens;
    const int first = get_group_id(0) * ROWS;
    if (n0 >= *limit) return;
    const int beyond = min(n0 + 1, all - 1), second_one = get_group_id(2), splits = get_num_groups(0);
    const int item0 = arg.mapped ? map[n0] : n0, item1 = arg.mapped ? map[beyond] : beyond;
    /* The prompts of a tile have groups of their own where their images differ. */
    const int apart = n0 + 1 < prompts && item1 != item0;
    if (second_one > apart) return;
    uint query[4], keys[TILES][2], values[TILES][2];
    FETCH16(query, queries + (size_t)((tile * 8 + h) * 32 + lane) * 8);
    UNROLL for (int j = 0; j < TILES; j++) {
        const size_t row = (size_t)(second_one ? item1 : item0) * arg.length + min(first + j * 8 + g, arg.length - 1);
        __global const half *from = image + row * arg.image_ld + arg.image_c0 + h * D + 4 * t;
        FETCH8(keys[j], from);
        FETCH8(values[j], from + 8 * D);
    }
    float o[2][4], most[2], sum[2];
    read_rows(o, most, sum, query, keys, values, first, arg.length MATRIX_SCRATCH_ARGUMENT);
    UNROLL for (int r = 0; r < 2; r++) {
        const float scale = quick_reciprocal(sum[r]);
        __global float *to = partial + ((size_t)(n0 + r) * splits + get_group_id(0)) * arg.part_floats;
        if (n0 + r < prompts && g < tokens && (!apart || r == second_one)) {
            if (t == 0) {
                to[g * 8 + h] = most[r];
                to[64 + g * 8 + h] = sum[r];
            }
            ((__global uint2 *)(to + 128))[(g * 8 + h) * (D / 4) + t] =
                (uint2)(halves_of(o[0][2 * r] * scale, o[0][2 * r + 1] * scale),
                        halves_of(o[1][2 * r] * scale, o[1][2 * r + 1] * scale));
        }
    }
    if (!last_to_arrive(splits * (1 + apart), tile, arrived, memory)) return;

    const int r = id / 16, token = min(r % 8, tokens - 1); /* of which a work-item has eight channels */
    __global const float *parts = partial + (size_t)min(n0 + r / 8, all - 1) * splits * arg.part_floats;
    memory[HIDDEN + r * LD_HID + id % 16] =
        join_parts(parts, splits, arg.part_floats, token * 8 + id % 16 / 2, token * (HID / 8) + id % 16);
    uint w[NT][STEPS][4];
    fetch_layer(w, weights, 0);
    barrier(CLK_LOCAL_MEM_FENCE);
    float c[NT][4];
    layer(c, w, weights, memory MATRIX_SCRATCH_ARGUMENT);
    keep_sums(c, memory);
    finish_rows(y, add, table, tile, prompts, arg.common, memory MATRIX_SCRATCH_ARGUMENT);
}
