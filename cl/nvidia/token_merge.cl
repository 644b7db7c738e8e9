/* A layer behind what tokens have read of an image in parts (variants/nvidia/tokens.h, nvidia/two_way_mma) on
 * matrix instructions with half storage: hidden is w average + b of each head. Goes with nvidia/ptx and nvidia/token.
 *
 * Group (token * 8 + head, prompt) makes a head of a token from all parts; the last of a tile's does the layer. -D IN:
 * channels of the image, a multiple of 64. */
#define HEAD   (HID / 8)          /* channels */
#define EIGHTH (IN / 8)           /* of the image's channels */
#define SHARES (THREADS / EIGHTH) /* of the parts, of work-items that have eight channels each */
#define BATCH  8                  /* parts that a work-item asks for at once */
#define LOWEST (-3.0e38f)
/* Floats in local memory, before there are sums of the layer. */
#define FACTORS  (SUMS * 4)
#define TOPS     (FACTORS + THREADS)
#define AVERAGES (TOPS + THREADS)
#define AVERAGED ((AVERAGES + SHARES * IN) / 4) /* uint4 */
#define ROOM     (AVERAGED > OWN ? AVERAGED : OWN)

/* The work-item's share of w, channel i of a head by an eighth of the image's. */
static inline void fetch_head(uint (*w)[4], __global const half *weights, int h) {
    const int id = get_local_id(0);
    UNROLL for (int j = 0; j < IN / 64; j++)
        FETCH16(w[j], weights + ((h * 8 + id / 32) * HEAD + min(id % 32, HEAD - 1)) * EIGHTH + j * 8);
}

/* Eight channels of averages of the work-item's next parts from `first` on. */
static inline void fetch_parts(uint (*v)[4], __global const half *averages, int first, int parts, int apart) {
    UNROLL for (int j = 0; j < BATCH; j++)
        FETCH16(v[j],
                averages + 2 * (size_t)min(first + (int)get_local_id(0) / EIGHTH + j * SHARES, parts - 1) * apart);
}

/* The greatest score of all parts; `most`: that of the work-item's. */
static inline float top_of_all(float most, __local float *tops) {
    const int id = get_local_id(0);
    tops[id] = most;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (id < 32) {
        UNROLL for (int j = 1; j < 8; j++) most = fmax(most, tops[j * 32 + id]);
        tops[id] = most;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int j = 0; j < 32; j++) most = fmax(most, tops[j]);
    return most;
}

/* weights of the layer, table and b [HID] behind it. x: parts (nvidia/two_way_mma); `heads`: for each head [8 eighths of
 * IN][HID / 8][IN / 8] weights. What tokens have read goes to `read`. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
token_merge(__global half *restrict y, __global const half *restrict x, __global const half *restrict add,
            __global const uint4 *restrict weights, __global const float *restrict table,
            __global const int *restrict limit, token_merge_args arg, __global const half *restrict heads,
            __global half *restrict read, __global int *restrict arrived) {
    MATRIX_SCRATCH
    __local uint4 memory[ROOM];
    __local float *factor = (__local float *)memory + FACTORS, *tops = (__local float *)memory + TOPS;
    __local float *averages = (__local float *)memory + AVERAGES;
    /* The parts that were made last come first: they are still in a cache. */
    const int column = get_group_id(0), n = get_num_groups(1) - 1 - get_group_id(1), h = column % 8;
    const int left = *limit - n; /* asked for together with the parts */
    const int id = get_local_id(0), share_of = id / EIGHTH, piece = id % EIGHTH;
    const int groups = arg.parts, apart = arg.part_floats;
    __global const float *parts = (__global const float *)x + (size_t)n * groups * apart;
    __global const half *rows = (__global const half *)(parts + 128) + column * IN + piece * 8;
    uint v[BATCH][4], w[IN / 64][4];
#ifndef NARROW
    fetch_head(w, heads, h);
#endif
    const float bias = table[3 * OUT + h * HEAD + min(id % 32, HEAD - 1)];
    const float first_top = id < groups ? parts[(size_t)id * apart + column] : LOWEST;
    const float first_sum = id < groups ? parts[(size_t)id * apart + 64 + column] : 0.0f;
    fetch_parts(v, rows, 0, groups, apart);
    if (left <= 0) return;
    float most = first_top, o[8], total = 0.0f, average = 0.0f, s = 0.0f;
    for (int j = id + THREADS; j < groups; j += THREADS) most = fmax(most, parts[(size_t)j * apart + column]);
    most = top_of_all(most, tops);
    for (int e = 0; e < 8; e++) o[e] = 0.0f;
    for (int g0 = 0; g0 < groups; g0 += THREADS) { /* as often for every work-item */
        float top = first_top, f = first_sum;
        if (g0) {
            top = g0 + id < groups ? parts[(size_t)(g0 + id) * apart + column] : LOWEST;
            f = g0 + id < groups ? parts[(size_t)(g0 + id) * apart + 64 + column] : 0.0f;
        }
        f *= quick_exp2(fmax(top - most, -126.0f));
        barrier(CLK_LOCAL_MEM_FENCE);
        factor[id] = f;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int g1 = 0; g1 < min(THREADS, groups - g0); g1 += BATCH * SHARES) {
            if (g0 + g1) fetch_parts(v, rows, g0 + g1, groups, apart);
            UNROLL for (int j = 0; j < BATCH; j++) {
                const int at = g1 + share_of + j * SHARES;
                const float share = at < THREADS ? factor[at] : 0.0f;
                total += share;
                UNROLL for (int e = 0; e < 4; e++) {
                    const float2 f2 = floats_of(v[j][e]);
                    o[2 * e] = fma(share, f2.x, o[2 * e]);
                    o[2 * e + 1] = fma(share, f2.y, o[2 * e + 1]);
                }
            }
        }
    }
    UNROLL for (int e = 0; e < 8; e++) averages[share_of * IN + piece * 8 + e] = o[e];
#ifdef NARROW
    fetch_head(w, heads, h);
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    factor[id] = total; /* of the share, in each of its work-items */
    if (id < IN)
        for (int j = 0; j < SHARES; j++) average += averages[j * IN + id];
    barrier(CLK_LOCAL_MEM_FENCE);
    total = 0.0f;
    for (int j = 0; j < SHARES; j++) total += factor[j * EIGHTH];
    if (id < IN) averages[id] = average / total;
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int j = 0; j < IN / 64; j++)
        UNROLL for (int e = 0; e < 4; e++) {
            const float2 f2 = floats_of(w[j][e]);
            s = fma(averages[id / 32 * EIGHTH + j * 8 + 2 * e], f2.x, s);
            s = fma(averages[id / 32 * EIGHTH + j * 8 + 2 * e + 1], f2.y, s);
        }
    tops[id] = s;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (id < HEAD) {
        float all = bias;
        UNROLL for (int j = 0; j < 8; j++) all += tops[j * 32 + id];
        STORE(all, read, ((size_t)n * arg.common.tokens + column / 8) * HID + h * HEAD + id);
    }
    const int tile = n / 2, prompts = min(arg.common.prompts, *limit);
    if (!last_to_arrive(min(2, prompts - tile * 2) * (int)get_num_groups(0), tile, arrived, memory)) return;
    uint second[NT][STEPS][4];
#ifndef NARROW
    fetch_layer(second, weights, 0);
#endif
    copy_tokens(memory, HIDDEN, LD_HID, read, HID, HID / 8, tile, arg.common);
    COPY_COMMIT();
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum[NT][4];
    layer(sum, second, weights, memory MATRIX_SCRATCH_ARGUMENT);
    keep_sums(sum, memory);
    finish_rows(y, add, table, tile, prompts, arg.common, memory MATRIX_SCRATCH_ARGUMENT);
}
