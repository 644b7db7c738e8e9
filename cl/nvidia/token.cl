/* Layers on a few tokens of several prompts (variants/nvidia/tokens.h) on matrix instructions with half storage: what the
 * launches of op/token_*_mma share (behind nvidia/ptx), LN(add + W hidden + b) of a tile, two prompts of eight rows each.
 *
 * A group has a tile and a share of what comes before W; the last of a tile's groups to arrive does the rest. The time
 * is that of reading the weights, so a work-item asks for all that it can at once, before anything else.
 *
 * -D HID: hidden channels of a slice, a multiple of 32. -D OUT: a multiple of 64. -D NARROW: weights come step by step,
 * for fewer registers where groups are many. weights of a slice: fragments [OUT / 8][HID / 32][lane][8 halves]; table
 * {b, gamma, beta} [OUT]. What goes by value begins with token_args. */
#define THREADS 256

#define LD_HID  (HID / 8 + 1)               /* uint4 from row to row */
#define LD_OUT  (OUT + 4)                   /* floats */
#define NT      (OUT / 64)                  /* blocks of eight outputs of a warp */
#define W2      (HID / 32 * (OUT / 8) * 32) /* uint4 of the layer's weights of a slice */
#ifdef NARROW
#define STEPS 1 /* of 32 hidden channels whose weights a work-item has at a time */
#else
#define STEPS (HID / 32)
#endif
/* Where in local memory, in uint4: whether the group is the last, then the layer's sums, its hidden channels as halves,
 * what a kernel has of its own. */
#define SUMS   1
#define HIDDEN (SUMS + 4 * LD_OUT)
#define OWN    (HIDDEN + 16 * LD_HID)

/* Where row r of a tile stands; rows that are not there repeat others. */
static inline int token_of(int tile, int r, const token_args arg) {
    return min(tile * 2 + r / 8, arg.prompts - 1) * arg.tokens + min(r % 8, arg.tokens - 1);
}

/* `pieces` of 16 bytes of each of the tile's rows to row `to` of local memory and those behind it. */
static inline void copy_tokens(__local uint4 *memory, int to, int ld_to, __global const half *from, int ld, int pieces,
                               int tile, const token_args arg) {
    const uint shared = SHARED(memory);
    for (int i = get_local_id(0); i < 16 * pieces; i += THREADS)
        COPY16(shared + (to + i / pieces * ld_to + i % pieces) * 16,
               from + (size_t)token_of(tile, i / pieces, arg) * ld + i % pieces * 8, 16);
}

/* Whether this group is the last of `count` that are at work for the tile; then it sees what the others have stored. */
static inline bool last_to_arrive(int count, int tile, __global int *arrived, __local uint4 *memory) {
    __local int *last = (__local int *)memory;
    DEVICE_FENCE();
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        const int before_me = atomic_inc((volatile __global int *)arrived + tile);
        *last = before_me == count - 1;
        if (before_me == count - 1) arrived[tile] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (!*last) return false;
    DEVICE_FENCE();
    return true;
}

/* The warp's fragments of the layer's steps from k0 on. */
static inline void fetch_layer(uint (*w)[STEPS][4], __global const uint4 *weights, int k0) {
    const int lane = get_local_id(0) & 31, warp = get_local_id(0) / 32;
    UNROLL for (int c = 0; c < NT; c++)
        UNROLL for (int k = 0; k < STEPS; k++)
            FETCH16(w[c][k], weights + ((warp * NT + c) * (HID / 32) + k0 + k) * 32 + lane);
}

/* sum: W times the tile's rows at HIDDEN. w are its fragments, or where they come to from `weights`. */
static inline void layer(float (*sum)[4], uint (*w)[STEPS][4], __global const uint4 *weights,
                         __local uint4 *memory MATRIX_SCRATCH_PARAMETER) {
    const int lane = get_local_id(0) & 31;
    const uint from = SHARED(memory) + (HIDDEN + lane % 16 * LD_HID + lane / 16) * 16;
    UNROLL for (int c = 0; c < NT; c++)
        UNROLL for (int e = 0; e < 4; e++) sum[c][e] = 0.0f;
    UNROLL for (int k = 0; k < HID / 32; k++) {
        uint a[2][4];
#ifdef NARROW
        fetch_layer(w, weights, k);
#endif
        UNROLL for (int i = 0; i < 2; i++) MATRIX_LOAD(a[i], from + (2 * k + i) * 32);
        UNROLL for (int c = 0; c < NT; c++) {
            MATRIX_MULTIPLY(sum[c], a[0], w[c][k % STEPS][0], w[c][k % STEPS][1]);
            MATRIX_MULTIPLY(sum[c], a[1], w[c][k % STEPS][2], w[c][k % STEPS][3]);
        }
    }
}

/* Sums to local memory, where row_of_sums finds them. */
static inline void keep_sums(float (*sum)[4], __local uint4 *memory) {
    __local float *sums = (__local float *)(memory + SUMS);
    const int lane = get_local_id(0) & 31, warp = get_local_id(0) / 32, g = lane / 4, t = lane % 4;
    UNROLL for (int c = 0; c < NT; c++)
        UNROLL for (int r = 0; r < 2; r++)
            *(__local float2 *)(sums + (g + 8 * r) * LD_OUT + (warp * NT + c) * 8 + 2 * t) =
                (float2)(sum[c][2 * r], sum[c][2 * r + 1]);
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* v: row r of the result, channels lane, lane + 32, ..; a warp makes it. `add`: that of the tile's first channel, ld 0
 * without. */
static inline void normalised_row(float *v, int r, __global const half *add, int ld, __global const float *table,
                                  float eps, __local const uint4 *memory MATRIX_SCRATCH_PARAMETER) {
    __local const float *sums = (__local const float *)(memory + SUMS);
    const int lane = get_local_id(0) & 31;
    float total = 0.0f, square = 0.0f, gamma[OUT / 32], beta[OUT / 32];
    for (int c = 0; c < OUT / 32; c++) { /* asked for before they are wanted */
        gamma[c] = table[OUT + c * 32 + lane];
        beta[c] = table[2 * OUT + c * 32 + lane];
    }
    for (int c = 0; c < OUT / 32; c++) {
        v[c] = sums[r * LD_OUT + c * 32 + lane] + table[c * 32 + lane];
        if (ld) v[c] += LOAD(add, c * 32 + lane);
        total += v[c];
    }
    WARP_SUM(total);
    for (int c = 0; c < OUT / 32; c++) {
        v[c] -= total / OUT;
        square = fma(v[c], v[c], square);
    }
    WARP_SUM(square);
    square = 1.0f / sqrt(square / OUT + eps);
    for (int c = 0; c < OUT / 32; c++) v[c] = fma(v[c] * square, gamma[c], beta[c]);
}

/* Row r of the tile to y, where it is there. */
static inline void store_row(__global half *y, const float *v, int r, int tile, int prompts, const token_args arg) {
    const int lane = get_local_id(0) & 31;
    if (tile * 2 + r / 8 < prompts && r % 8 < arg.tokens)
        for (int c = 0; c < OUT / 32; c++) STORE(v[c], y, (size_t)token_of(tile, r, arg) * OUT + c * 32 + lane);
}

/* What sums become: y = LN(add + sums + b), `prompts` of which are there. */
static inline void finish_rows(__global half *y, __global const half *add, __global const float *table, int tile,
                               int prompts, const token_args arg,
                               __local const uint4 *memory MATRIX_SCRATCH_PARAMETER) {
    const int warp = get_local_id(0) / 32;
    for (int r = warp * 2; r < warp * 2 + 2; r++) {
        float v[OUT / 32];
        normalised_row(v, r, add + (size_t)token_of(tile, r, arg) * arg.add_ld + arg.add_c0, arg.add_ld, table,
                       arg.eps, memory MATRIX_SCRATCH_ARGUMENT);
        store_row(y, v, r, tile, prompts, arg);
    }
}
