/* Layer normalisation of rows and D-FINE's gate, which ends in one.
 *
 *     layernorm: v = clamp(x + add);  gate: v = sigmoid(g[0:c]) x + sigmoid(g[c:2c]) y
 *     out = act((v - mean) / sqrt(variance + eps) * gamma + beta)
 *
 * Statistics over the c channels of a pixel, in two passes over fp32 values. WIDE (CPU): a work-item per group takes
 * `rows` pixels and keeps the current one in a private buffer; else LANES work-items of a group of 64 take a pixel,
 * each PARTS times VW channels of it, group (i, n) of item n. ALIGNED: vectors of four lie at multiples of their
 * size. */
#ifndef LANES
#define LANES 64
#endif
#ifndef VW
#define VW 1
#endif
#ifndef PARTS
#define PARTS 16
#endif
#ifndef C_MAX
#define C_MAX 1024
#endif

#ifdef WIDE
#define GROUP 1

typedef struct row {
    float16 v[C_MAX / 16];
} row;

static inline float sum16(float16 v) {
    float8 a = v.lo + v.hi;
    float4 b = a.lo + a.hi;
    return (b.x + b.y) + (b.z + b.w);
}

static inline int16 lanes_below(int count) {
    return (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) < (int16)(count);
}

/* Sixteen channels from element i, zeros from `count` on. */
NOINLINE float16 load_rest(__global const T *x, int i, int count) {
    float v[16];
    for (int k = 0; k < 16; k++) v[k] = k < count ? LOAD(x, i + k) : 0.0f;
    return vload16(0, v);
}
static inline float16 load_part(__global const T *x, int i, int count) {
    return count >= 16 ? LOAD16(x, i) : load_rest(x, i, count);
}

/* Beyond channel c the row holds zeros. */
NOINLINE void normalise(row *r, __global T *out, int at, __global const float *gamma, __global const float *beta, int c,
                        float eps, int act) {
    float16 total = (float16)(0.0f), square = (float16)(0.0f);
    for (int i = 0; i * 16 < c; i++) total += r->v[i];
    const float mean = sum16(total) / c;
    for (int i = 0; i * 16 < c; i++) {
        float16 d = r->v[i] - (float16)(mean);
        if (i * 16 + 16 > c) d = select((float16)(0.0f), d, lanes_below(c - i * 16));
        r->v[i] = d;
        square = fma(d, d, square);
    }
    const float16 scale = (float16)(1.0f / sqrt(sum16(square) / c + eps));
    int i = 0;
    for (; i + 16 <= c; i += 16)
        STORE16(activate_float16(fma(r->v[i / 16] * scale, vload16(0, gamma + i), vload16(0, beta + i)), act), out, at + i);
    for (; i < c; i++) {
        float v = fma(((float *)r->v)[i] * scale.s0, gamma[i], beta[i]);
        STORE(activate_float(v, act), out, at + i);
    }
}

#define EACH_CHANNEL(i, c) for (int i = 0; i < c; i += 16)
#define VEC                float16
#define PART(x, at, i, c)  load_part(x, (at) + i, c - i)
#define PUT(r, i, x)       (r).v[i / 16] = x
#define SIGMOID(x)         activate_float16(x, ACT_SIGMOID)
#else
#define GROUP 64
#if VW == 4
#define VEC              float4
#define VALUE(p, i)      (*(__global const float4 *)((p) + (i)))
#define SUM(v)           (((v).x + (v).y) + ((v).z + (v).w))
#define SIGMOID(x)       activate_float4(x, ACT_SIGMOID)
#define ACTIVATE(x, act) activate_float4(x, act)
#ifdef ALIGNED
#define PART(x, at)      LOAD4_ALIGNED(x, at)
#define STORE_PART       STORE4_ALIGNED
#else
#define PART(x, at)      LOAD4(x, at)
#define STORE_PART       STORE4
#endif
#else
#define VEC              float
#define VALUE(p, i)      ((p)[i])
#define SUM(v)           (v)
#define SIGMOID(x)       activate_float(x, ACT_SIGMOID)
#define ACTIVATE(x, act) activate_float(x, act)
#define PART(x, at)      LOAD(x, at)
#define STORE_PART       STORE
#endif
#define LANE             (get_local_id(0) % LANES)
#define EACH_CHANNEL(i, k, c)                                                                                          \
    for (int k = 0, i = LANE * VW; k < PARTS; k++, i += LANES * VW)                                                    \
        if (i < c)

/* Sum over the LANES of a pixel, in each of them. */
#if defined(HAVE_LANE_XOR) && LANES <= 32
static inline float lane_sum(float v, __local float *part) {
#pragma unroll
    for (int mask = 1; mask < LANES; mask *= 2) v += lane_xor(v, mask);
    return v;
}
#else
static float lane_sum(float v, __local float *part) {
    part[get_local_id(0)] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    __local const float *mine = part + get_local_id(0) / LANES * LANES;
    float a = 0.0f, b = 0.0f, d = 0.0f, e = 0.0f;
    for (int i = 0; i < LANES; i += 4) {
        a += mine[i];
        b += mine[i + 1];
        d += mine[i + 2];
        e += mine[i + 3];
    }
    return (a + b) + (d + e);
}
#endif

/* `part` has room for two values of each work-item. */
static inline void normalise(VEC *v, __global T *out, int at, __global const float *gamma, __global const float *beta,
                             int c, float eps, int act, bool live, __local float *part) {
    float total = 0.0f, square = 0.0f;
    EACH_CHANNEL(i, k, c) total += SUM(v[k]);
    const float mean = lane_sum(total, part) / c;
    EACH_CHANNEL(i, k, c) {
        const VEC d = v[k] - mean;
        square += SUM(d * d);
    }
    const float scale = 1.0f / sqrt(lane_sum(square, part + GROUP) / c + eps);
    if (!live) return;
    EACH_CHANNEL(i, k, c) {
        const VEC y = fma((v[k] - mean) * scale, VALUE(gamma, i), VALUE(beta, i));
        STORE_PART(ACTIVATE(y, act), out, at + i);
    }
}
#endif

#ifdef FETCHED
/* The kernel below for aligned fours of channels: all loads before the first use and no branch between them; lanes
 * beyond the last channel repeat it and count for nothing. -D ADD, ACT for arg.adds, arg.act; CLAMPED: arg.bound.
 * FILLED: pixels k of every item with filled[k] not 0 are `value` [c]. */
__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
layernorm_fetched(__global T *out, __global const T *x, __global const T *add, __global const float *gamma,
                  __global const float *beta, __global const int *limit,
#ifdef FILLED
                  __global const int *filled, __global const T *value,
#endif
                  layernorm_args arg) {
    __local float part[2 * GROUP];
    const int n = get_group_id(1), c = arg.c, items = fetch_int(limit);
    const int mine = (int)get_group_id(0) * (GROUP / LANES) + (int)get_local_id(0) / LANES;
    const int k = min(mine, arg.pixels - 1), pixel = n * arg.pixels + k, lane = (int)get_local_id(0) % LANES;
    x += pixel * arg.x_ld + arg.x_c0;
    RAW4 raw[PARTS], other[PARTS];
    float4 v[PARTS], g[PARTS], b[PARTS];
    float total = 0.0f, square = 0.0f;
#ifdef FILLED
    const bool given = fetch_int(filled + k) != 0;
    RAW4 instead[PARTS];
#pragma unroll
    for (int p = 0; p < PARTS; p++) instead[p] = FETCH4(value + min((p * LANES + lane) * 4, c - 4));
#endif
#pragma unroll
    for (int p = 0; p < PARTS; p++) raw[p] = FETCH4(x + min((p * LANES + lane) * 4, c - 4));
#if ADD
    add += (ADD == NORM_ADD_ONE ? k : pixel) * arg.add_ld + arg.add_c0;
#pragma unroll
    for (int p = 0; p < PARTS; p++) other[p] = FETCH4(add + min((p * LANES + lane) * 4, c - 4));
#endif
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        g[p] = fetch_float4(gamma + min((p * LANES + lane) * 4, c - 4));
        b[p] = fetch_float4(beta + min((p * LANES + lane) * 4, c - 4));
    }
    ALL_FETCHED();
#ifdef FILLED
#pragma unroll
    for (int p = 0; p < PARTS; p++) raw[p] = given ? instead[p] : raw[p];
#endif
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        v[p] = VALUES4(raw[p]);
#if ADD
        v[p] += VALUES4(other[p]);
#endif
#ifdef CLAMPED
        v[p] = clamp(v[p], (float4)(-arg.bound), (float4)(arg.bound));
#endif
        const float s = SUM(v[p]);
        total += (p * LANES + lane) * 4 < c ? s : 0.0f;
    }
    /* divided as exactly as IEEE does: a mean of equal numbers must be that number */
    total = lane_sum(total, part);
    float mean = total * arg.inverse_c;
    mean = fma(fma(-mean, (float)c, total), arg.inverse_c, mean);
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        v[p] -= mean;
        const float s = SUM(v[p] * v[p]);
        square += (p * LANES + lane) * 4 < c ? s : 0.0f;
    }
    const float scale = 1.0f / sqrt(fma(lane_sum(square, part + GROUP), arg.inverse_c, arg.eps));
    if (mine >= arg.pixels || n >= items) return;
    out += pixel * arg.out_ld + arg.out_c0;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        const int i = (p * LANES + lane) * 4;
        if (i < c) STORE_RAW4(activate_float4(fma(v[p] * scale, g[p], b[p]), ACT), out + i);
    }
}
#else
/* WIDE: groups are as many as compute units, which share out the work by `queue` (see prelude). */
#ifdef WIDE
NOINLINE void layernorm_group(__global T *out, __global const T *x, __global const T *add, __global const float *gamma,
                              __global const float *beta, __global const int *limit, const layernorm_args arg,
                              __global int *queue, const int4 group) {
    const int c = arg.c, pieces = (arg.pixels + arg.rows - 1) / arg.rows;
    row r;
    work_t work = work_begin(group.w, min(arg.items, *limit) * pieces, false);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        const int n = item / pieces, first = item % pieces * arg.rows;
        for (int k = first; k < min(arg.pixels, first + arg.rows); k++) {
            const int pixel = n * arg.pixels + k;
            EACH_CHANNEL(i, c) {
                VEC v = PART(x, pixel * arg.x_ld + arg.x_c0, i, c);
                if (arg.adds) v += PART(add, (arg.adds == NORM_ADD_ONE ? k : pixel) * arg.add_ld + arg.add_c0, i, c);
                if (arg.bound > 0.0f) v = clamp(v, (VEC)(-arg.bound), (VEC)(arg.bound));
                PUT(r, i, v);
            }
            normalise(&r, out, pixel * arg.out_ld + arg.out_c0, gamma, beta, c, arg.eps, arg.act);
        }
    }
    work_end(&work, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
layernorm(__global T *out, __global const T *x, __global const T *add, __global const float *gamma,
          __global const float *beta, __global const int *limit, layernorm_args arg, __global int *queue) {
    layernorm_group(out, x, add, gamma, beta, limit, arg, queue, THIS_GROUP);
}
#else
__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
layernorm(__global T *out, __global const T *x, __global const T *add, __global const float *gamma,
          __global const float *beta, __global const int *limit, layernorm_args arg) {
    const int n = get_group_id(1), c = arg.c;
    if (n >= *limit) return;
    __local float part[2 * GROUP];
    const int mine = get_global_id(0) / LANES, k = min(mine, arg.pixels - 1), pixel = n * arg.pixels + k;
    const int from = pixel * arg.x_ld + arg.x_c0;
    const int more = (arg.adds == NORM_ADD_ONE ? k : pixel) * arg.add_ld + arg.add_c0;
    VEC v[PARTS];
    EACH_CHANNEL(i, p, c) v[p] = PART(x, from + i);
    if (arg.adds) {
        EACH_CHANNEL(i, p, c) v[p] += PART(add, more + i);
    }
    if (arg.bound > 0.0f) {
        EACH_CHANNEL(i, p, c) v[p] = clamp(v[p], (VEC)(-arg.bound), (VEC)(arg.bound));
    }
    normalise(v, out, pixel * arg.out_ld + arg.out_c0, gamma, beta, c, arg.eps, arg.act, mine < arg.pixels, part);
}
#endif
#endif

/* Group (i, n): pixels of item n. */
__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
gate(__global T *out, __global const T *g, __global const T *x, __global const T *y, __global const float *gamma,
     __global const float *beta, __global const int *limit, gate_args arg) {
    const int n = get_group_id(1), c = arg.c;
    if (n >= *limit) return;
#ifdef WIDE
    row r;
    for (int k = get_group_id(0) * arg.rows; k < min(arg.pixels, (int)(get_group_id(0) + 1) * arg.rows); k++) {
        const int pixel = n * arg.pixels + k, at = pixel * arg.g_ld + arg.g_c0;
        EACH_CHANNEL(i, c) {
            VEC a = SIGMOID(PART(g, at, i, c)) * PART(x, pixel * arg.x_ld + arg.x_c0, i, c);
            PUT(r, i, a + SIGMOID(PART(g, at + c, i, c)) * PART(y, pixel * arg.y_ld + arg.y_c0, i, c));
        }
        normalise(&r, out, pixel * arg.out_ld + arg.out_c0, gamma, beta, c, arg.eps, ACT_NONE);
    }
#else
    __local float part[2 * GROUP];
    const int mine = get_global_id(0) / LANES, pixel = n * arg.pixels + min(mine, arg.pixels - 1);
    const int at = pixel * arg.g_ld + arg.g_c0, ax = pixel * arg.x_ld + arg.x_c0, ay = pixel * arg.y_ld + arg.y_c0;
    VEC v[PARTS];
    EACH_CHANNEL(i, p, c)
    v[p] = SIGMOID(PART(g, at + i)) * PART(x, ax + i) + SIGMOID(PART(g, at + c + i)) * PART(y, ay + i);
    normalise(v, out, pixel * arg.out_ld + arg.out_c0, gamma, beta, c, arg.eps, ACT_NONE, mine < arg.pixels, part);
#endif
}
