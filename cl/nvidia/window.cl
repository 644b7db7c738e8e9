/* Window attention of TinyViT on matrix instructions with half storage (goes with nvidia/ptx and nvidia/sums): portable/attention's
 * `window`, with groups of WARPS warps per window and head, whose keys and values lie in local memory.
 *
 * A warp takes 16 queries. Their scores with up to CHUNK times 16 keys stay in registers (fragments of 16 x 8),
 * softmax in fp32, then the weights as halves multiply the values; with more keys the sums so far are scaled to the
 * new largest score. The fragments begin as the biases, which the host has put in their order: no index arithmetic for
 * each score, and keys that do not exist have a bias of -1e30. Rows of 32 halves lie 40 apart, so that the eight rows
 * of a matrix are in different banks.
 *
 * -D WS: tokens along a window. -D WARPS. -D CHUNK, CHUNKS: blocks of keys at a time, and how often. Group (x, y, z):
 * window x / PARTS and a part of its queries, head y, item z. */
#define TOKENS  (WS * WS)
#define BLOCKS  ((TOKENS + 15) / 16) /* of 16 queries, or of 16 keys */
#define PARTS   ((BLOCKS + WARPS - 1) / WARPS)
#define TILES   (2 * CHUNK * CHUNKS) /* of 8 keys */
#define ROWS    (8 * TILES)
#define THREADS (32 * WARPS)
#define LD      5 /* uint4 from row to row */
#define VALUES  (ROWS * LD)
#ifdef IST_PTX
#define IF_TILE(c) if ((c)*8 < TOKENS) /* tile c of keys exists: known at compile time */
#else
#define IF_TILE(c) /* emulated instructions have barriers, which no branch may hold */
#endif

/* `pad` as qkv, one token. bias [head][block of queries][tile of keys][lane][4], in units of `scale`. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
window(__global half *out, __global const half *qkv, __global const half *pad, __global const float *bias,
       __global const int *limit, window_args arg) {
    MATRIX_SCRATCH
    __local uint4 memory[2 * VALUES];
    const int n = get_group_id(2), h = get_group_id(1), w = get_group_id(0) / PARTS, id = get_local_id(0);
    if (n >= *limit) return;
    const int x0 = w % arg.across * WS, y0 = w / arg.across * WS, lane = id % 32, g = lane / 4, t = lane % 4;
    const int block = get_group_id(0) % PARTS * WARPS + id / 32, known = min(block, BLOCKS - 1);
    const uint shared = SHARED(memory);
    const float unit = arg.scale * 1.44269504f;
    qkv += arg.qkv_c0 + h * 96;
    for (int i = id; i < ROWS * 8; i += THREADS) { /* eight pieces of 16 bytes per token: keys, then values */
        const int j = i / 8, part = i % 8, y = y0 + j / WS, x = x0 + j % WS, in = y < arg.h && x < arg.w;
        __global const half *from = in ? qkv + ((n * arg.h + y) * arg.w + x) * arg.qkv_ld : pad + h * 96;
        COPY16(shared + (part / 4 * VALUES + j * LD + part % 4) * 16, from + 32 + part * 8, j < TOKENS ? 16 : 0);
    }
    COPY_COMMIT();
    int place[2]; /* of the two queries of this work-item's fragments; < 0: not in the map */
    uint q[2][4];
    for (int r = 0; r < 2; r++) {
        const int i = block * 16 + g + 8 * r, y = y0 + i / WS, x = x0 + i % WS;
        const int in = i < TOKENS && y < arg.h && x < arg.w;
        place[r] = in ? (n * arg.h + y) * arg.w + x : -1;
        __global const uint *from = (__global const uint *)(qkv + max(place[r], 0) * arg.qkv_ld);
        for (int k = 0; k < 2; k++) {
            q[k][r] = from[8 * k + t];
            q[k][2 + r] = from[8 * k + 4 + t];
        }
    }
    bias += ((size_t)(h * BLOCKS + known) * (TILES * 32) + lane) * 4;
    float most[2] = {-3.0e38f, -3.0e38f}, sum[2] = {0.0f, 0.0f}, o[4][4];
    UNROLL for (int c = 0; c < 4; c++)
        UNROLL for (int e = 0; e < 4; e++) o[c][e] = 0.0f;

    UNROLL for (int b0 = 0; b0 < CHUNK * CHUNKS; b0 += CHUNK) {
        float s[2 * CHUNK][4];
        UNROLL for (int c = 0; c < 2 * CHUNK; c++) {
            uint u[4];
            FETCH16(u, bias + (2 * b0 + c) * 128);
            UNROLL for (int e = 0; e < 4; e++) s[c][e] = as_float(u[e]);
        }
        COPY_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        float top[2] = {-3.0e38f, -3.0e38f}, factor[2];
        UNROLL for (int c = 0; c < 2 * CHUNK; c++)
            IF_TILE(2 * b0 + c) {
                uint k[4];
                MATRIX_LOAD(k, shared + (((2 * b0 + c) * 8 + lane % 8) * LD + lane / 8) * 16);
                MATRIX_MULTIPLY(s[c], q[0], k[0], k[1]);
                MATRIX_MULTIPLY(s[c], q[1], k[2], k[3]);
                UNROLL for (int e = 0; e < 4; e++) top[e / 2] = fmax(top[e / 2], s[c][e]);
            }
        SOFTMAX_GOES_ON(top, most, sum, factor, unit)
        if (b0) {
            UNROLL for (int c = 0; c < 4; c++)
                UNROLL for (int e = 0; e < 4; e++) o[c][e] *= factor[e / 2];
        }
        UNROLL for (int b = 0; b < CHUNK; b++)
            IF_TILE(2 * (b0 + b)) {
                uint p[4], v[4];
                SOFTMAX_WEIGHTS(p, s, 2 * b, top, sum, unit)
                UNROLL for (int c = 0; c < 2; c++) {
                    MATRIX_LOAD_TURNED(v, shared + (VALUES + ((b0 + b) * 16 + lane % 16) * LD) * 16 + c * 32 +
                                              lane / 16 * 16);
                    MATRIX_MULTIPLY(o[2 * c], p, v[0], v[1]);
                    MATRIX_MULTIPLY(o[2 * c + 1], p, v[2], v[3]);
                }
            }
    }
    for (int r = 0; r < 2; r++) {
        QUAD_SUM(sum[r]);
        const float f = quick_reciprocal(sum[r]);
        __global uint *to = (__global uint *)(out + max(place[r], 0) * arg.out_ld + arg.out_c0 + h * 32);
        for (int c = 0; c < 4; c++)
            if (place[r] >= 0) to[4 * c + t] = halves_of(o[c][2 * r] * f, o[c][2 * r + 1] * f);
    }
}
