/* The k best of many values in one launch (needs nvidia/ptx): all groups make the values, the one that finishes last
 * selects.
 *
 *     value[n, t] = max over c of x[n, t, c]; FLAT: value[n, t * c + i] = sigmoid(x[n, t, i])
 *     index[n, 0..k): where the k largest values are, falling, equal values by rising index; NaN counts as -inf
 *
 * The last group keeps all values of an item in registers as keys, unsigned numbers of the same order. Radix selection
 * finds the rank of the k-th best digit by digit (three of the key, then two of the index among equal keys); the ranks
 * from it on are collected, and each counts those before it. Of halves (PAIRED) a key is the value's 16 bits and those
 * of the index, no two are equal, and three digits are enough.
 *
 * -D PER: fours of values that a work-item keeps; X_F32: x is float; ALIGNED: fours of channels of x lie at multiples
 * of their size. Group (i, n): values [i * ROWS * more.w, ..) of item n. */
#ifndef PER
#define PER 1
#endif
#define ITEMS   1024
#define THREADS ITEMS /* as nvidia/ptx calls it */
#define WARPS   (ITEMS / 32)
#define K_MAX   512
#define BINS    2048
#if defined(IST_HALF) && !defined(X_F32) && !defined(FLAT)
#define PAIRED
#define PASSES 3
#else
#define PASSES 5
#endif
#ifdef FLAT
#define ROWS ITEMS
#else
#define ROWS 64
#endif
#define SHARE (ITEMS / ROWS) /* work-items of a row */
#ifdef X_F32
#define XT       float
#define X1(p, i) ((p)[i])
#define X4(p, i) (*(__global const float4 *)((p) + (i)))
#else
#define XT       T
#define X1(p, i) LOAD(p, i)
#define X4(p, i) LOAD4_ALIGNED(p, i)
#endif

static inline uint key_of(float v) {
    uint b = as_uint(v);
    if (v != v) return as_uint(-INFINITY) ^ 0xffffffffu;
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

#ifdef PAIRED
/* Of v, which is a half: its bits as an unsigned number of the same order, above those of the index, turned round. */
static inline uint paired_key(float v, int index) {
    const uint b = halves_of(v != v ? -INFINITY : v, 0.0f) & 0xffffu;
    return (b & 0x8000u ? ~b & 0xffffu : b | 0x8000u) << 16 | (0xffffu - (uint)index);
}
#define KEY_OF(v, index) paired_key(v, index)
#else
#define KEY_OF(v, index) key_of(v)
#endif

/* Adds up what the warps before this one have. */
#ifdef IST_PTX
#define ADD_TOTALS(to)                                                                                                 \
    do {                                                                                                               \
        int total_before;                                                                                              \
        __asm__ volatile("redux.sync.add.s32 %0, %1, 0xffffffff;"                                                      \
                         : "=r"(total_before)                                                                          \
                         : "r"(lane < warp ? totals[lane] : 0));                                                       \
        (to) += total_before;                                                                                          \
    } while (0)
#else
#define ADD_TOTALS(to)                                                                                                 \
    for (int w = 0; w < warp; w++) (to) += totals[w]
#endif

/* Low bit of the digit that a pass settles, in the key (passes 0 to 2) or in the index. */
static inline int shift_of(int pass) {
    return pass == 0 ? 21 : pass == 1 ? 10 : pass == 3 ? 11 : 0;
}

/* sizes: tokens, c, ld, c0; more: k, values per item, the same rounded up to four, ROWS that
 * a group makes one after the other. arrived: a counter per item, zero
 * between launches. */
__attribute__((reqd_work_group_size(ITEMS, 1, 1))) __kernel void
top_rows(__global int *index, __global float *values, __global const XT *x, volatile __global int *arrived,
         __global const int *limit, int4 sizes, int4 more) {
    WARP_SCRATCH
    __local ulong best[K_MAX];
    __local uint bins[BINS];
    __local int totals[WARPS], ranks[K_MAX];
    __local uint floor_key, floor_index;
    __local int need, last, latest;
    const int n = get_group_id(1), id = get_local_id(0), lane = id % 32, warp = id / 32, k = more.x, total = more.y;
    if (n >= *limit) return;
    values += (size_t)n * more.z;
    const int c = sizes.y;
#pragma unroll 1
    for (int run = 0; run < more.w; run++) {
        const int row = ((int)get_group_id(0) * more.w + run) * ROWS + id / SHARE;
#ifdef FLAT
        if (row < total) {
            const float v = X1(x, (size_t)(n * sizes.x + row / c) * sizes.z + sizes.w + row % c);
            values[row] = v != v ? v : 1.0f / (1.0f + ist_exp_float(-v));
        }
#else
        const size_t at = (size_t)(n * sizes.x + min(row, sizes.x - 1)) * sizes.z + sizes.w;
        float most = -INFINITY;
#ifdef ALIGNED
        for (int i = id % SHARE * 4; i < c; i += SHARE * 8) {
            const float4 a = X4(x, at + i), b = X4(x, at + min(i + SHARE * 4, c - 4)), m = fmax(a, b);
            most = fmax(most, fmax(fmax(m.x, m.y), fmax(m.z, m.w)));
        }
#else
        for (int i = id % SHARE; i < c; i += SHARE) most = fmax(most, X1(x, at + i));
#endif
#pragma unroll
        for (int mask = 1; mask < SHARE; mask *= 2) {
            float other;
            LANE_XOR(other, most, mask);
            most = fmax(most, other);
        }
        if (id % SHARE == 0 && row < total) values[row] = most;
#endif
    }
    DEVICE_FENCE();
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (id == 0) {
        latest = atomic_inc(arrived + n) == (int)get_num_groups(0) - 1;
        if (latest) arrived[n] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (!latest) return;
    DEVICE_FENCE();

    uint keys[4 * PER];
#pragma unroll
    for (int i = 0; i < PER; i++) {
        const int e = (i * ITEMS + id) * 4;
        const float4 v = load_shared_result((__global const float4 *)values + min(e, more.z - 4) / 4);
        keys[4 * i] = e < total ? KEY_OF(v.x, e) : 0u; /* worse than any */
        keys[4 * i + 1] = e + 1 < total ? KEY_OF(v.y, e + 1) : 0u;
        keys[4 * i + 2] = e + 2 < total ? KEY_OF(v.z, e + 2) : 0u;
        keys[4 * i + 3] = e + 3 < total ? KEY_OF(v.w, e + 3) : 0u;
    }
#define INDEX(i)      (((i) / 4 * ITEMS + id) * 4 + (i) % 4)
#define INDEX_KEY(i)  (0x3fffffu - (uint)INDEX(i)) /* larger is better; 22 bits */
    bins[2 * id] = bins[2 * id + 1] = 0;
    if (id < K_MAX) ranks[id] = 0;
    if (id == 0) {
        floor_key = floor_index = 0;
        need = k;
        last = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int pass = 0; pass < PASSES && !last; pass++) {
        const int shift = shift_of(pass);
        const uint settled = pass == 0 ? 0u : pass < 3 ? ~0u << shift_of(pass - 1) : ~0u;
        const uint floor0 = floor_key, floor1 = floor_index;
#pragma unroll
        for (int i = 0; i < 4 * PER; i++) {
            const bool among = ((keys[i] ^ floor0) & settled) == 0 && (pass < 4 || (INDEX_KEY(i) ^ floor1) >> 11 == 0);
            const uint digit = (pass < 3 ? keys[i] : INDEX_KEY(i)) >> shift & (pass == 2 ? 1023u : BINS - 1u);
            if (among) atomic_inc(bins + digit);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        /* from the highest digit down: two to a work-item */
        const int high = bins[BINS - 1 - 2 * id], low = bins[BINS - 2 - 2 * id], left = need;
        int before;
        WARP_PREFIX(before, high + low);
        if (lane == 31) totals[warp] = before;
        barrier(CLK_LOCAL_MEM_FENCE);
        bins[2 * id] = bins[2 * id + 1] = 0;
        before -= high + low;
        ADD_TOTALS(before);
        if (before < left && left <= before + high + low) {
            const bool first = left <= before + high;
            const uint digit = (uint)(first ? BINS - 1 - 2 * id : BINS - 2 - 2 * id) << shift;
            if (pass < 3) floor_key |= digit;
            else floor_index |= digit;
            need = left - (first ? before : before + high);
            last = need == (first ? high : low); /* a digit that is wanted whole ends the search */
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const uint least_key = floor_key, least_index = floor_index;
    int mine = 0, place;
#pragma unroll
    for (int i = 0; i < 4 * PER; i++)
        mine += keys[i] > least_key || (keys[i] == least_key && INDEX_KEY(i) >= least_index);
    WARP_PREFIX(place, mine);
    if (lane == 31) totals[warp] = place;
    barrier(CLK_LOCAL_MEM_FENCE);
    place -= mine;
    ADD_TOTALS(place);
#pragma unroll
    for (int i = 0; i < 4 * PER; i++)
        if (keys[i] > least_key || (keys[i] == least_key && INDEX_KEY(i) >= least_index))
            best[place++] = (ulong)keys[i] << 32 | INDEX_KEY(i);
    barrier(CLK_LOCAL_MEM_FENCE);
    const int parts = ITEMS / ((k + 31) / 32 * 32), each = (k + 31) / 32 * 32, i = id % each, part0 = id / each;
    if (i < k && part0 < parts) {
        const ulong me = best[i];
        int better = 0;
#pragma unroll 8
        for (int j = part0; j < k; j += parts) better += best[j] > me;
        atomic_add(ranks + i, better);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (id < k) index[(size_t)n * k + ranks[id]] = (int)(0x3fffffu - (uint)best[id]);
}
