/* Row maxima, exact top-k and gather.
 *
 * Order of values: falling, equal values by rising index; NaN counts as -inf. key() turns a float into an unsigned number
 * of that order. LANES work-items share one problem: 1 on CPUs, 64 elsewhere. */
#ifndef LANES
#define LANES 1
#endif
#ifndef K_MAX
#define K_MAX 512
#endif
#ifdef X_F32
#define XT          float
#define X(p, i)     ((p)[i])
#define X16(p, i)   vload16(0, (p) + (i))
#define PUT(v, p, i) ((p)[i] = (v))
#else
#define XT          T
#define X(p, i)     LOAD(p, i)
#define X16(p, i)   LOAD16(p, i)
#define PUT(v, p, i) STORE(v, p, i)
#endif
#define BINS  2048
#define DIGIT 11

/* y[n, t] = max over c of x[n, t, c]; sizes: tokens, c, ld, c0. One work-item per RUN tokens. */
#ifndef RUN
#define RUN 1
#endif
__kernel void row_max(__global float *y, __global const XT *x, __global const int *limit, int4 sizes) {
    int n = get_global_id(1), c = sizes.y;
    if (n >= *limit) return;
    for (int t = get_global_id(0) * RUN; t < min(sizes.x, (int)(get_global_id(0) + 1) * RUN); t++) {
        size_t at = ((size_t)n * sizes.x + t) * sizes.z + sizes.w;
        float best = -INFINITY;
        if (c >= 16) {
            float16 m = X16(x, at);
            for (int i = 16; i < c; i += 16) m = fmax(m, X16(x, at + min(i, c - 16)));
            float8 a = fmax(m.lo, m.hi);
            float4 b = fmax(a.lo, a.hi);
            best = fmax(fmax(b.x, b.y), fmax(b.z, b.w));
        } else {
            for (int i = 0; i < c; i++) best = fmax(best, X(x, at + i));
        }
        y[(size_t)n * sizes.x + t] = best;
    }
}

static uint key(float v) {
    uint b = as_uint(v);
    if (v != v) return as_uint(-INFINITY) ^ 0xffffffffu;
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

/* Larger is better: value first, then the lower index. */
static ulong rank_of(float v, int i) {
    return (ulong)key(v) << 32 | (uint)~i;
}

/* Where the digits of a rank are: three of the key, then two of the index (indices below 2^22 differ only there). */
static int shift_of(int pass) {
    return pass == 0 ? 53 : pass == 1 ? 42 : pass == 2 ? 32 : pass == 3 ? 11 : 0;
}

#if LANES == 1
#define SYNC()
#define COUNT(p) ((*(p))++)
#define LANE     0
#else
#define SYNC()   barrier(CLK_LOCAL_MEM_FENCE)
#define COUNT(p) atomic_inc(p)
#define LANE     ((int)get_local_id(0))
#endif

/* index[n, 0..k) of the k best of x[n, 0..total); sizes: total, k, ld, c0. Radix selection finds the rank of the k-th
 * best digit by digit, then the k ranks at or above it are collected and sorted. One group per n; total < 2^22. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void topk(__global int *index, __global const float *x,
                                                                       __global const int *limit, int4 sizes) {
    __local uint bins[BINS];
    __local ulong best[K_MAX];
    __local ulong floor_rank;
    __local int need, found, last;
    int n = get_group_id(0), total = sizes.x, k = sizes.y;
    if (n >= *limit) return;
    __global const float *v = x + (size_t)n * total * sizes.z + sizes.w;
    if (LANE == 0) {
        floor_rank = 0;
        need = k;
        found = last = 0;
    }
    SYNC();
    ulong mask = 0; /* digits settled so far */
    for (int pass = 0; pass < 5 && !last; pass++) {
        int shift = shift_of(pass), width = pass == 2 ? 10 : DIGIT;
        for (int i = LANE; i < BINS; i += LANES) bins[i] = 0;
        SYNC();
        ulong prefix = floor_rank;
        for (int i = LANE; i < total; i += LANES) {
            ulong r = rank_of(v[i * sizes.z], i);
            if ((r & mask) == prefix) COUNT(&bins[(uint)(r >> shift) & ((1u << width) - 1)]);
        }
        SYNC();
        if (LANE == 0) {
            int b = (1 << width) - 1, left = need;
            while (b > 0 && (int)bins[b] < left) left -= (int)bins[b--];
            /* the index bits from 22 on are ones in every rank; a digit that is wanted whole ends the search */
            floor_rank = prefix | (ulong)b << shift | (pass == 2 ? 0xffc00000ul : 0ul);
            last = (int)bins[b] == left;
            need = left;
        }
        mask |= (ulong)((1u << width) - 1) << shift | (pass == 2 ? 0xffc00000ul : 0ul);
        SYNC();
    }
    ulong least = floor_rank;
    for (int i = LANE; i < total; i += LANES) {
        ulong r = rank_of(v[i * sizes.z], i);
        if (r >= least) best[COUNT(&found)] = r;
    }
    int size = 1;
    while (size < k) size <<= 1;
    for (int i = k + LANE; i < size; i += LANES) best[i] = 0;
    SYNC();
    for (int span = 2; span <= size; span <<= 1)
        for (int step = span >> 1; step > 0; step >>= 1) {
            for (int p = LANE; p < size / 2; p += LANES) {
                int i = 2 * p - (p & (step - 1)), j = i + step; /* bitonic network, falling */
                ulong a = best[i], b = best[j];
                if ((a < b) == ((i & span) == 0)) {
                    best[i] = b;
                    best[j] = a;
                }
            }
            SYNC();
        }
    for (int i = LANE; i < k; i += LANES) index[n * k + i] = (int)~(uint)best[i];
}

/* y[n, i, ch] = x[n or 0, index[n, i], ch]; sizes: tokens of x, k, c, 1 when x has one item; place: ld and c0 of x.
 * Work-items stride over channels; each takes RUN of the k tokens. */
__kernel void gather(__global XT *y, __global const XT *x, __global const int *index, __global const int *limit,
                     int4 sizes, int4 place) {
    int n = get_global_id(2), c = sizes.z;
    if (n >= *limit) return;
    for (int i = get_global_id(1) * RUN; i < min(sizes.y, (int)(get_global_id(1) + 1) * RUN); i++) {
        size_t to = ((size_t)n * sizes.y + i) * c;
        int t = clamp(index[n * sizes.y + i], 0, sizes.x - 1);
        size_t from = ((size_t)(sizes.w ? 0 : n) * sizes.x + t) * place.x + place.y;
        for (int ch = get_global_id(0); ch < c; ch += get_global_size(0)) PUT(X(x, from + ch), y, to + ch);
    }
}
