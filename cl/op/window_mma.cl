/* Window attention of TinyViT on matrix instructions (needs isa/ptx and half storage): op/attention's `window`, with a
 * group per window and head, whose keys and values lie in local memory.
 *
 * A warp takes 16 queries: their scores with all keys stay in registers (fragments of 16 x 8), softmax in fp32, then
 * the weights as halves multiply the values. Rows of 32 halves lie 40 apart, so that the eight rows of a matrix are in
 * different banks.
 *
 * -D WS: tokens along a window. Group (x, y, z): window x, head y, item z. */
#define TOKENS (WS * WS)
#define BLOCKS ((TOKENS + 15) / 16) /* of 16 queries, or of 16 keys */
#define TILES  ((TOKENS + 7) / 8)   /* of 8 keys */
#define WARPS  (BLOCKS > 7 ? 7 : BLOCKS)
#define ITEMS  (32 * WARPS)
#define LD     5 /* uint4 from row to row */
#define LOG2E  1.44269504f

/* The value of the work-item whose number in the warp differs in the bits of `mask`. */
static inline float of_lane(float v, int mask) {
    float r;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(r) : "f"(v), "r"(mask));
    return r;
}

/* size {height, width, windows per row}; places {ld and c0 of qkv, ld and c0 of out}; `pad` as qkv, one token. */
__attribute__((reqd_work_group_size(ITEMS, 1, 1))) __kernel void
window(__global half *out, __global const half *qkv, __global const half *pad, __global const float *bias,
       __global const int *limit, int4 size, int4 places, int4 heads, float scale) {
    __local uint4 keys[BLOCKS * 16 * LD], values[BLOCKS * 16 * LD];
    __local float table[TOKENS];
    const int n = get_group_id(2), h = get_group_id(1), w = get_group_id(0), item = get_local_id(0);
    if (n >= *limit) return;
    const int x0 = w % size.z * WS, y0 = w / size.z * WS, lane = item % 32, g = lane / 4, t = lane % 4;
    qkv += places.y + h * 96;
    for (int i = item; i < BLOCKS * 16 * 8; i += ITEMS) { /* eight pieces of 16 bytes per token: keys, then values */
        const int j = i / 8, part = i % 8, y = y0 + j / WS, x = x0 + j % WS, in = y < size.x && x < size.y;
        __global const half *from = in ? qkv + ((n * size.x + y) * size.y + x) * places.x : pad + h * 96;
        const uint4 v = j < TOKENS ? ((__global const uint4 *)from)[4 + part] : (uint4)(0u);
        (part < 4 ? keys : values)[j * LD + part % 4] = v;
    }
    for (int i = item; i < TOKENS; i += ITEMS) table[i] = bias[h * TOKENS + i] * LOG2E;
    barrier(CLK_LOCAL_MEM_FENCE);

    for (int block = item / 32; block < BLOCKS; block += WARPS) {
        int place[2], row_y[2], row_x[2]; /* of the two queries of this work-item's fragments; < 0: not in the map */
        uint q[2][4];
        for (int r = 0; r < 2; r++) {
            const int i = block * 16 + g + 8 * r;
            row_y[r] = min(i, TOKENS - 1) / WS;
            row_x[r] = min(i, TOKENS - 1) % WS;
            const int y = y0 + row_y[r], x = x0 + row_x[r], in = i < TOKENS && y < size.x && x < size.y;
            place[r] = in ? (n * size.x + y) * size.y + x : -1;
            __global const uint *from = (__global const uint *)(qkv + max(place[r], 0) * places.x);
            for (int k = 0; k < 2; k++) {
                q[k][r] = in ? from[8 * k + t] : 0u;
                q[k][2 + r] = in ? from[8 * k + 4 + t] : 0u;
            }
        }
        float s[2 * BLOCKS][4];
        float most[2] = {-3.0e38f, -3.0e38f}, sum[2] = {0.0f, 0.0f};
#pragma unroll
        for (int c = 0; c < 2 * BLOCKS; c++) {
#pragma unroll
            for (int e = 0; e < 4; e++) s[c][e] = 0.0f;
            if (c >= TILES) continue;
            uint k[4];
            MATRIX_LOAD(k, SHARED(keys + (c * 8 + lane % 8) * LD + lane / 8));
            MATRIX_MULTIPLY(s[c], q[0], k[0], k[1]);
            MATRIX_MULTIPLY(s[c], q[1], k[2], k[3]);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int j = c * 8 + 2 * t + e % 2, ky = j / WS, kx = j - ky * WS;
                const int at = abs(ky - row_y[e / 2]) * WS + abs(kx - row_x[e / 2]);
                const float v = fma(s[c][e], scale * LOG2E, table[c * 8 + 8 > TOKENS ? min(at, TOKENS - 1) : at]);
                s[c][e] = c * 8 + 8 > TOKENS && j >= TOKENS ? -3.0e38f : v;
                most[e / 2] = fmax(most[e / 2], s[c][e]);
            }
        }
        for (int r = 0; r < 2; r++) {
            most[r] = fmax(most[r], of_lane(most[r], 1));
            most[r] = fmax(most[r], of_lane(most[r], 2));
        }
        float o[4][4];
#pragma unroll
        for (int c = 0; c < 4; c++)
#pragma unroll
            for (int e = 0; e < 4; e++) o[c][e] = 0.0f;
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            uint p[4], v[4];
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float f[4];
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    f[e] = 2 * b + c < TILES ? quick_exp2(s[2 * b + c][e] - most[e / 2]) : 0.0f;
                    sum[e / 2] += f[e];
                }
                p[2 * c] = halves_of(f[0], f[1]);
                p[2 * c + 1] = halves_of(f[2], f[3]);
            }
#pragma unroll
            for (int c = 0; c < 2; c++) {
                MATRIX_LOAD_TURNED(v, SHARED(values + (b * 16 + lane % 16) * LD + 2 * c + lane / 16));
                MATRIX_MULTIPLY(o[2 * c], p, v[0], v[1]);
                MATRIX_MULTIPLY(o[2 * c + 1], p, v[2], v[3]);
            }
        }
        for (int r = 0; r < 2; r++) {
            sum[r] += of_lane(sum[r], 1);
            sum[r] += of_lane(sum[r], 2);
            if (place[r] < 0) continue;
            const float f = 1.0f / sum[r];
            __global uint *to = (__global uint *)(out + place[r] * places.z + places.w + h * 32);
#pragma unroll
            for (int c = 0; c < 4; c++) to[4 * c + t] = halves_of(o[c][2 * r] * f, o[c][2 * r + 1] * f);
        }
    }
}
