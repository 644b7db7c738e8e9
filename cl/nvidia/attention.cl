/* portable/attention's `attention_rows` on matrix instructions (needs nvidia/ptx, nvidia/sums and half storage): a group makes 16
 * queries of a head after the other, its warps share the keys, which stay in registers, and nothing but their results
 * passes through local memory.
 *
 * A product does not care about the order of what it sums, nor softmax about the order of keys, so that a lane loads
 * D / 4 neighbouring channels of a row and uses them as the fragments of all steps: channel D / 4 t + 4 s + {0, 1} and
 * the two after it stand where step s wants 2 t + {0, 1} and the two 8 further. Values are turned within the warp.
 *
 * -D D (16, 32, 48 or 64: head dimension), TILES (even: eights of keys of a warp), WARPS. Group (x, y, z): queries from
 * 16 turns x on, turns times 16, head y, item z; arguments as in portable/attention. */
#ifndef D
#define D     32
#define TILES 2
#define WARPS 4
#endif
#define THREADS (32 * WARPS)
#define STEPS   (D / 16)
#define WORDS   (D / 8) /* of a row in a lane */
#define LOWEST  (-3.0e38f)
#define LOG2E   1.44269504f

static inline void fetch_row(uint *to, __global const half *p) {
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        const uint2 v = LOAD_ORDERED((__global const uint2 *)p + s);
        to[2 * s] = v.x;
        to[2 * s + 1] = v.y;
    }
}

__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
attention_mma(__global half *out, __global const half *q, __global const half *k, __global const half *v,
              __global const int *q_map, __global const int *kv_map, __global const int *limit,
              attention_mma_args arg) {
    MATRIX_SCRATCH
    const attention_args common = arg.common;
    __local float sums[WARPS][16], tops[WARPS][16], parts[WARPS][16][D];
    const int n = get_group_id(2), h = get_group_id(1), id = get_local_id(0), nq = common.queries, nk = common.keys;
    const int lane = id % 32, warp = id / 32, g = lane / 4, t = lane % 4, first = warp * TILES * 8;
    if (n >= *limit) return;
    const int q_first = (common.mapped_q ? q_map[n] : n) * nq, k_first = (common.mapped_kv ? kv_map[n] : n) * nk;
    const int from = get_group_id(0) * arg.turns * 16, to = min(from + arg.turns * 16, nq);
    q += common.q_c0 + h * D + t * (D / 4);
    k += common.k_c0 + h * D + t * (D / 4);
    v += common.v_c0 + h * D + t * (D / 4);
    uint a[2][WORDS], kw[TILES][WORDS], vw[TILES][WORDS];
#pragma unroll
    for (int r = 0; r < 2; r++) fetch_row(a[r], q + (q_first + min(from + g + 8 * r, nq - 1)) * common.q_ld);
#pragma unroll
    for (int j = 0; j < TILES; j++) fetch_row(kw[j], k + (k_first + min(first + j * 8 + g, nk - 1)) * common.k_ld);
#pragma unroll
    for (int j = 0; j < TILES; j++) fetch_row(vw[j], v + (k_first + min(first + j * 8 + g, nk - 1)) * common.v_ld);

#pragma unroll
    for (int j = 0; j < TILES; j++)
#pragma unroll
        for (int i = 0; i < WORDS; i++) MATRIX_TURN(vw[j][i], vw[j][i]);

#pragma unroll 1
    for (int row0 = from; row0 < to; row0 += 16) {
        float s[TILES][4], most[2] = {-1.0e38f, -1.0e38f}, sum[2] = {0.0f, 0.0f}, o[WORDS][4];
#pragma unroll
        for (int j = 0; j < TILES; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) s[j][e] = 0.0f;
#pragma unroll
            for (int i = 0; i < STEPS; i++) {
                const uint f[4] = {a[0][2 * i], a[1][2 * i], a[0][2 * i + 1], a[1][2 * i + 1]};
                MATRIX_MULTIPLY(s[j], f, kw[j][2 * i], kw[j][2 * i + 1]);
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
                s[j][e] = first + j * 8 + 2 * t + e % 2 < nk ? s[j][e] * (common.scale * LOG2E) : LOWEST;
                most[e / 2] = fmax(most[e / 2], s[j][e]);
            }
        }
        /* The next queries, if any. */
#pragma unroll
        for (int r = 0; r < 2; r++) fetch_row(a[r], q + (q_first + min(row0 + 16 + g + 8 * r, nq - 1)) * common.q_ld);
#pragma unroll
        for (int r = 0; r < 2; r++) QUAD_MOST(most[r]);
#pragma unroll
        for (int m = 0; m < WORDS; m++)
#pragma unroll
            for (int e = 0; e < 4; e++) o[m][e] = 0.0f;
#pragma unroll
        for (int b = 0; b < TILES / 2; b++) {
            uint p[4];
            SOFTMAX_WEIGHTS(p, s, 2 * b, most, sum, 1.0f)
#pragma unroll
            for (int i = 0; i < WORDS; i++) {
                MATRIX_MULTIPLY(o[i], p, vw[2 * b][i], vw[2 * b + 1][i]);
            }
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            QUAD_SUM(sum[r]);
            if (t == 0) {
                sums[warp][g + 8 * r] = sum[r];
                tops[warp][g + 8 * r] = most[r];
            }
#pragma unroll
            for (int m = 0; m < WORDS; m++) {
                parts[warp][g + 8 * r][t * (D / 4) + 2 * m] = o[m][2 * r];
                parts[warp][g + 8 * r][t * (D / 4) + 2 * m + 1] = o[m][2 * r + 1];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = id; i < 16 * (D / 2); i += THREADS) { /* two channels of a query */
            const int row = i / (D / 2), c = i % (D / 2) * 2;
            float top = LOWEST, total = 0.0f, x = 0.0f, y = 0.0f;
#pragma unroll
            for (int w = 0; w < WARPS; w++) top = fmax(top, tops[w][row]);
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                const float f = quick_exp2(tops[w][row] - top);
                total = fma(sums[w][row], f, total);
                x = fma(parts[w][row][c], f, x);
                y = fma(parts[w][row][c + 1], f, y);
            }
            if (row0 + row < nq)
                *(__global uint *)(out + (n * nq + row0 + row) * common.out_ld + common.out_c0 + h * D + c) =
                    halves_of(x / total, y / total);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
