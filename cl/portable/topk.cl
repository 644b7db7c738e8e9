/* Row maxima, exact top-k and gather.
 *
 * Order of values: falling, equal values by rising index; NaN counts as -inf. key() turns a float into an unsigned
 * number of that order. LANES work-items share one problem: 1 on CPUs, 64 or 256 elsewhere. */
#ifndef LANES
#define LANES 1
#endif
#ifndef K_MAX
#define K_MAX 512
#endif
#ifdef X_F32
#define XT           float
#define X(p, i)      ((p)[i])
#define X16(p, i)    vload16(0, (p) + (i))
#define PUT(v, p, i) ((p)[i] = (v))
#else
#define XT           T
#define X(p, i)      LOAD(p, i)
#define X16(p, i)    LOAD16(p, i)
#define PUT(v, p, i) STORE(v, p, i)
#endif
#define BINS 1024 /* at least 2 K_MAX */
#define RUN  (LANES == 1 ? 32 : 1) /* tokens that a work-item takes one after the other */
#define RUNS (LANES < 16 ? 1 : 16) /* of lanes, whose sums are summed again */

/* y[n, t] = max over c of x[n, t, c]; sizes: tokens, c, ld, c0. One work-item per RUN tokens. */
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

/* The digits of a rank, highest first: four of the key, then three of the index. The bits between them (22 to 31) are
 * ones in every rank. */
#define PASSES 7
static int shift_of(int pass) {
    return pass == 0 ? 54 : pass == 1 ? 44 : pass == 2 ? 34 : pass == 3 ? 32 : pass == 4 ? 12 : pass == 5 ? 2 : 0;
}
static ulong digit_of(int pass) {
    return pass == 3 || pass == 6 ? 3ul : (ulong)(BINS - 1);
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

/* Rank of entry e: of value e, or of the value that list[e] names; negative names are of no value. */
static ulong entry(__global const float *v, __global const int *list, bool named, int e, int ld) {
    int i = named ? list[e] : e;
    return i < 0 ? 0ul : rank_of(v[(size_t)i * ld], i);
}

/* Sums over each run of lanes, by several lanes alike: a branch here confuses some compilers. */
#define SUM_RUNS()                                                                                                     \
    SYNC();                                                                                                            \
    {                                                                                                                  \
        int total = 0;                                                                                                 \
        for (int i = 0; i < LANES / RUNS; i++) total += sums[LANE % RUNS * (LANES / RUNS) + i];                        \
        runs[LANE % RUNS] = total;                                                                                     \
    }                                                                                                                  \
    SYNC()

/* index [n, part, k]: the k best of entries [part * span, (part + 1) * span) of item n in falling order, -1 where there
 * are fewer. Entries are the values x[n, 0..total), or, when `named`, those that list[n, 0..total) names, -1 for none.
 * Radix selection finds the rank of the k-th best digit by digit; the ranks from it on are collected, and each counts
 * those before it. sizes: total, k, ld, c0; more: span, named, values per item of x. One group per (part, n). */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void topk(__global int *index, __global const float *x,
                                                                      __global const int *list,
                                                                      __global const int *limit, int4 sizes,
                                                                      int4 more) {
    __local uint bins[BINS];
    __local int sums[LANES], runs[RUNS], need, last;
    __local uint floor_high, floor_low;
    int n = get_group_id(1), part = get_group_id(0), ld = sizes.z;
    if (n >= *limit) return;
    bool named = more.y != 0;
    int begin = part * more.x, end = min(begin + more.x, sizes.x), k = min(sizes.y, end - begin);
    __global const float *v = x + (size_t)n * more.z * ld + sizes.w;
    list += named ? (size_t)n * sizes.x : 0;
    index += ((size_t)n * get_num_groups(0) + part) * sizes.y;
    if (LANE == 0) {
        floor_high = floor_low = 0;
        need = k;
        last = 0;
    }
    SYNC();
    ulong mask = 0; /* digits settled so far */
    for (int pass = 0; pass < PASSES && !last; pass++) {
        int shift = shift_of(pass);
        ulong digit = digit_of(pass);
        for (int i = LANE; i < BINS; i += LANES) bins[i] = 0;
        SYNC();
        ulong prefix = (ulong)floor_high << 32 | floor_low;
        for (int e = begin + LANE; e < end; e += LANES) {
            ulong r = entry(v, list, named, e, ld);
            if ((r & mask) == prefix) COUNT(&bins[(uint)(r >> shift & digit)]);
        }
        SYNC();
        int per = BINS / LANES, sum = 0;
        for (int i = LANE * per; i < (LANE + 1) * per; i++) sum += (int)bins[i];
        sums[LANE] = sum;
        SUM_RUNS();
        if (LANE == 0) {
            int run = RUNS - 1, left = need;
            while (run > 0 && runs[run] < left) left -= runs[run--];
            run = (run + 1) * (LANES / RUNS) - 1;
            while (run > 0 && sums[run] < left) left -= sums[run--];
            int b = (run + 1) * per - 1;
            while (b > 0 && (int)bins[b] < left) left -= (int)bins[b--];
            prefix |= (ulong)b << shift | (pass == 3 ? 0xffc00000ul : 0ul);
            floor_high = (uint)(prefix >> 32);
            floor_low = (uint)prefix;
            last = (int)bins[b] == left; /* a digit that is wanted whole ends the search */
            need = left;
        }
        mask |= digit << shift | (pass == 3 ? 0xffc00000ul : 0ul);
        SYNC();
    }
    ulong least = (ulong)floor_high << 32 | floor_low;
    int mine = 0, at = 0;
    for (int e = begin + LANE; e < end; e += LANES) mine += entry(v, list, named, e, ld) >= least;
    sums[LANE] = mine;
    SUM_RUNS();
    const int run = LANE / (LANES / RUNS);
    for (int l = 0; l < run; l++) at += runs[l];
    for (int l = run * (LANES / RUNS); l < LANE; l++) at += sums[l];
    __local uint *high = bins, *low = bins + K_MAX; /* the two halves of the ranks; the counts are done with */
    for (int e = begin + LANE; e < end; e += LANES) {
        ulong r = entry(v, list, named, e, ld);
        if (r < least) continue;
        high[at] = (uint)(r >> 32);
        low[at++] = (uint)r;
    }
    for (int i = k + LANE; i < (k + 15) / 16 * 16; i += LANES) high[i] = low[i] = 0; /* worse than any */
    SYNC();
    for (int i = LANE; i < sizes.y; i += LANES) {
        if (i >= k) {
            index[i] = -1;
            continue;
        }
        uint a = high[i], b = low[i];
        int16 better = 0;
        for (int j = 0; j < k; j += 16) {
            uint16 c = vload16(0, high + j), d = vload16(0, low + j);
            better += select((int16)(0), (int16)(1), (c > a) | ((c == a) & (d > b)));
        }
        int8 s8 = better.lo + better.hi;
        int4 s4 = s8.lo + s8.hi;
        index[s4.x + s4.y + s4.z + s4.w] = (int)~b;
    }
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
