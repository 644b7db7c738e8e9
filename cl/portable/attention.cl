/* Attention, portable: work-groups of 64, online softmax (Milakov & Gimelshein, arXiv 1805.02867).
 *
 *     out[i] = sum_j softmax_j(scale * q_i . k_j + bias_ij) v_j          per head
 *
 * attention_rows, window and relative: a query per work-item, keys and values shared through local memory in blocks.
 * attention_keys, for few queries: a group per query, keys spread over its work-items, partial softmaxes merged.
 * attention_slices, for some more: a few work-items per query. */
#ifndef D
#define D 32 /* head dimension, a multiple of 4 */
#endif
#define D4    (D / 4)
#define KB    (1024 / D / 4 * 4) /* two blocks fill 8 KiB */
#define GROUP 64
#define LOWEST (-3.0e38f)

/* ALIGNED: rows and their heads begin at multiples of four elements. */
#ifdef ALIGNED
#define LOAD_QUAD(p, i) LOAD4_ALIGNED(p, i)
#else
#define LOAD_QUAD(p, i) LOAD4(p, i)
#endif

/* Softmax-weighted sum over the keys seen so far, relative to the maximum m. */
typedef struct softmax_state {
    float m, sum;
    float4 acc[D4];
} softmax_state;

static inline void softmax_begin(softmax_state *s) {
    s->m = LOWEST;
    s->sum = 0.0f;
#pragma unroll
    for (int c = 0; c < D4; c++) s->acc[c] = (float4)(0.0f);
}

static inline void softmax_rescale(softmax_state *s, float m) {
    const float f = ist_exp_float(s->m - m);
    s->m = m;
    s->sum *= f;
#pragma unroll
    for (int c = 0; c < D4; c++) s->acc[c] *= f;
}

static inline float dot_row(const float4 *q, __local const float4 *k) {
    float4 a = (float4)(0.0f);
#pragma unroll
    for (int c = 0; c < D4; c++) a = fma(q[c], k[c], a);
    return (a.x + a.y) + (a.z + a.w);
}

/* Four keys of a block; those from `count` on are absent (their rows are zeros). */
static inline void take_four(softmax_state *s, const float4 *q, __local const float4 *k, __local const float4 *v,
                             float4 bias, int count) {
    float4 t = (float4)(dot_row(q, k), dot_row(q, k + D4), dot_row(q, k + 2 * D4), dot_row(q, k + 3 * D4)) + bias;
    const int4 in = (int4)(0, 1, 2, 3) < (int4)(count);
    t = select((float4)(LOWEST), t, in);
    const float m = fmax(fmax(fmax(t.x, t.y), fmax(t.z, t.w)), s->m);
    if (m > s->m) softmax_rescale(s, m);
    const float4 e = select((float4)(0.0f), ist_exp_float4(t - m), in);
    s->sum += (e.x + e.y) + (e.z + e.w);
#pragma unroll
    for (int c = 0; c < D4; c++) {
        float4 a = fma((float4)(e.x), v[c], s->acc[c]);
        a = fma((float4)(e.y), v[D4 + c], a);
        a = fma((float4)(e.z), v[2 * D4 + c], a);
        s->acc[c] = fma((float4)(e.w), v[3 * D4 + c], a);
    }
}

static inline void load_query(float4 *q, __global const T *x, int at, float scale) {
#pragma unroll
    for (int c = 0; c < D4; c++) q[c] = LOAD_QUAD(x, at + 4 * c) * scale;
}

static inline void store_result(__global T *out, int at, const softmax_state *s) {
#pragma unroll
    for (int c = 0; c < D4; c++) STORE4(s->acc[c] / s->sum, out, at + 4 * c);
}

/* Group (x, y, z): block of 64 queries x, head y, item z. */
__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
attention_rows(__global T *out, __global const T *q, __global const T *k, __global const T *v,
               __global const int *q_map, __global const int *kv_map, __global const int *limit,
               __global const int *k_count, attention_args arg) {
    __local float4 lk[KB * D4], lv[KB * D4];
    const int n = get_group_id(2), h = get_group_id(1), lane = get_local_id(0), nq = arg.queries;
    if (n >= *limit) return;
    const int nk = arg.counted ? k_count[n] : arg.keys;
    const int i = get_group_id(0) * GROUP + lane, k_first = (arg.mapped_kv ? kv_map[n] : n) * arg.keys;
    float4 query[D4];
    softmax_state s;
    load_query(query, q, ((arg.mapped_q ? q_map[n] : n) * nq + min(i, nq - 1)) * arg.q_ld + arg.q_c0 + h * D,
               arg.scale);
    softmax_begin(&s);
    for (int k0 = 0; k0 < nk; k0 += KB) {
        const int kn = min(KB, nk - k0);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int e = lane; e < (kn + 3) / 4 * 4 * D4; e += GROUP) {
            const int j = e / D4, c = h * D + e % D4 * 4, in = j < kn, token = k_first + k0 + min(j, kn - 1);
            lk[e] = in ? LOAD_QUAD(k, token * arg.k_ld + arg.k_c0 + c) : (float4)(0.0f);
            lv[e] = in ? LOAD_QUAD(v, token * arg.v_ld + arg.v_c0 + c) : (float4)(0.0f);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int j = 0; j < kn; j += 4) take_four(&s, query, lk + j * D4, lv + j * D4, (float4)(0.0f), kn - j);
    }
    if (i < nq) store_result(out, (n * nq + i) * arg.out_ld + arg.out_c0 + h * D, &s);
}

/* As attention_rows; group (x, y, z): query x. */
__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
attention_keys(__global T *out, __global const T *q, __global const T *k, __global const T *v,
               __global const int *q_map, __global const int *kv_map, __global const int *limit,
               __global const int *k_count, attention_args arg) {
    __local float4 part[GROUP];
    __local float top[GROUP];
    const int n = get_group_id(2), h = get_group_id(1), i = get_group_id(0), lane = get_local_id(0);
    if (n >= *limit) return;
    const int nk = arg.counted ? k_count[n] : arg.keys, k_first = (arg.mapped_kv ? kv_map[n] : n) * arg.keys;
    float4 query[D4];
    softmax_state s;
    load_query(query, q, ((arg.mapped_q ? q_map[n] : n) * arg.queries + i) * arg.q_ld + arg.q_c0 + h * D, arg.scale);
    softmax_begin(&s);
    for (int j = lane; j < nk; j += GROUP) {
        float4 t = (float4)(0.0f);
    #pragma unroll
        for (int c = 0; c < D4; c++)
            t = fma(query[c], LOAD_QUAD(k, (k_first + j) * arg.k_ld + arg.k_c0 + h * D + 4 * c), t);
        const float score = (t.x + t.y) + (t.z + t.w);
        if (score > s.m) softmax_rescale(&s, score);
        const float e = ist_exp_float(score - s.m);
        s.sum += e;
    #pragma unroll
    for (int c = 0; c < D4; c++)
            s.acc[c] = fma((float4)(e), LOAD_QUAD(v, (k_first + j) * arg.v_ld + arg.v_c0 + h * D + 4 * c), s.acc[c]);
    }
    top[lane] = s.m;
    barrier(CLK_LOCAL_MEM_FENCE);
    float m = LOWEST;
    for (int l = 0; l < GROUP; l++) m = fmax(m, top[l]);
    softmax_rescale(&s, m);
    float sum = 0.0f;
    for (int c = -1; c < D4; c++) { /* first the sum of weights, then the channels */
        barrier(CLK_LOCAL_MEM_FENCE);
        part[lane] = c < 0 ? (float4)(s.sum) : s.acc[max(c, 0)];
        for (int step = GROUP / 2; step > 0; step /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            if (lane < step) part[lane] += part[lane + step];
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* compilers load part[0] in every work-item */
        if (lane == 0 && c < 0) sum = part[0].x;
        if (lane == 0 && c >= 0)
            STORE4(part[0] / sum, out, (n * arg.queries + i) * arg.out_ld + arg.out_c0 + h * D + 4 * c);
    }
}

#ifdef QUERIES
#define SLICES     (SLICED / QUERIES)
#define SLICED     256 /* work-items */
#define BLOCK_KEYS (SLICED / 2)
#define SLICE_KEYS (BLOCK_KEYS / SLICES)

/* Where few groups of attention_rows would be busy: as that, but SLICES work-items share a query, each with a part of
 * every block of keys, and put their softmaxes together at the end. Group (x, y, z): block of QUERIES queries x. */
__attribute__((reqd_work_group_size(SLICED, 1, 1))) __kernel void
attention_slices(__global T *out, __global const T *q, __global const T *k, __global const T *v,
                 __global const int *q_map, __global const int *kv_map, __global const int *limit,
                 __global const int *k_count, attention_args arg) {
    __local float4 room[SLICED * D4]; /* keys, then values; at the end [channels][slice][query] */
    __local float top[SLICED], sums[SLICED];
    __local float4 *lk = room, *lv = room + BLOCK_KEYS * D4;
    const int n = get_group_id(2), h = get_group_id(1), lane = get_local_id(0), nq = arg.queries;
    if (n >= *limit) return;
    const int nk = arg.counted ? k_count[n] : arg.keys, k_first = (arg.mapped_kv ? kv_map[n] : n) * arg.keys;
    const int first = get_group_id(0) * QUERIES, own = lane / QUERIES * SLICE_KEYS;
    float4 query[D4];
    softmax_state s;
    load_query(query, q,
               ((arg.mapped_q ? q_map[n] : n) * nq + min(first + lane % QUERIES, nq - 1)) * arg.q_ld + arg.q_c0 + h * D,
               arg.scale);
    softmax_begin(&s);
    for (int k0 = 0; k0 < nk; k0 += BLOCK_KEYS) {
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (int f = 0; f < (D4 + 1) / 2; f++) {
            const int e = lane + f * SLICED, j = k0 + e / D4, c = h * D + e % D4 * 4, token = k_first + min(j, nk - 1);
            if (D4 % 2 && e >= BLOCK_KEYS * D4) break;
            const float4 key = LOAD_QUAD(k, token * arg.k_ld + arg.k_c0 + c);
            const float4 value = LOAD_QUAD(v, token * arg.v_ld + arg.v_c0 + c);
            lk[e] = key;
            lv[e] = j < nk ? value : (float4)(0.0f); /* what is beyond the last has no weight, unless it is NaN */
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int j = own; j < min(own + SLICE_KEYS, nk - k0); j += 4)
            take_four(&s, query, lk + j * D4, lv + j * D4, (float4)(0.0f), nk - k0 - j);
    }
    top[lane] = s.m;
    barrier(CLK_LOCAL_MEM_FENCE);
    float most = LOWEST;
#pragma unroll
    for (int i = 0; i < SLICES; i++) most = fmax(most, top[i * QUERIES + lane % QUERIES]);
    softmax_rescale(&s, most);
    sums[lane] = s.sum;
#pragma unroll
    for (int c = 0; c < D4; c++) room[c * SLICED + lane] = s.acc[c];
    barrier(CLK_LOCAL_MEM_FENCE);
    const int i = lane / D4, c = lane % D4;
    if (i >= QUERIES || first + i >= nq) return;
    float4 a = (float4)(0.0f);
    float total = 0.0f;
#pragma unroll
    for (int j = 0; j < SLICES; j++) {
        a += room[c * SLICED + j * QUERIES + i];
        total += sums[j * QUERIES + i];
    }
    STORE4(a / total, out, (n * nq + first + i) * arg.out_ld + arg.out_c0 + h * D + 4 * c);
}
#endif

#ifdef WW
#define WINDOW_BLOCKS ((WH * WW + GROUP - 1) / GROUP)
#define COLUMNS       16 /* of a window at a time, whose position scores lie in registers; at most KB */

/* query . row, divided by the scale that the query has been multiplied by. */
static inline float position_score(const float4 *query, __global const float *row, float inverse) {
    float4 a = (float4)(0.0f);
#pragma unroll
    for (int c = 0; c < D4; c++) a = fma(query[c], vload4(c, row), a);
    return ((a.x + a.y) + (a.z + a.w)) * inverse;
}

/* Self-attention within windows of WH x WW tokens with decomposed relative positions: bias_ij = q_i . rel_h[y_i - y_j +
 * WH - 1] + q_i . rel_w[x_i - x_j + WW - 1]. qkv [n][h][w][3 C], tokens outside the map are `pad`. Group (x, y, z):
 * block x % WINDOW_BLOCKS of the queries of window x / WINDOW_BLOCKS, head y, item z. */
__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
relative(__global T *out, __global const T *qkv, __global const float *rel_h, __global const float *rel_w,
         __global const T *pad, __global const int *limit, relative_args arg) {
    __local float4 lk[COLUMNS * D4], lv[COLUMNS * D4];
    const int n = get_group_id(2), h = get_group_id(1), lane = get_local_id(0), w = get_group_id(0) / WINDOW_BLOCKS;
    if (n >= *limit) return;
    const int x0 = w % arg.across * WW, y0 = w / arg.across * WH, i = get_group_id(0) % WINDOW_BLOCKS * GROUP + lane;
    const int qy = min(i, WH * WW - 1) / WW, qx = min(i, WH * WW - 1) % WW, C = arg.c;
    const int inside = i < WH * WW && y0 + qy < arg.h && x0 + qx < arg.w; /* the others compute along */
    const int token = (n * arg.h + (inside ? y0 + qy : y0)) * arg.w + (inside ? x0 + qx : x0);
    float4 query[D4], column[COLUMNS / 4];
    softmax_state s;
    load_query(query, qkv, token * arg.qkv_ld + arg.qkv_c0 + h * D, arg.scale);
    softmax_begin(&s);
    pad += h * D;
#pragma unroll 1
    for (int u0 = 0; u0 < WW; u0 += COLUMNS) {
        const int kn = min(COLUMNS, WW - u0);
#pragma unroll
        for (int u = 0; u < COLUMNS; u++)
            ((float *)column)[u] =
                position_score(query, rel_w + (qx - min(u0 + u, WW - 1) + WW - 1) * D, 1.0f / arg.scale);
#pragma unroll 1
        for (int v = 0; v < WH; v++) {
            const float line = position_score(query, rel_h + (qy - v + WH - 1) * D, 1.0f / arg.scale);
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int e = lane; e < (kn + 3) / 4 * 4 * D4; e += GROUP) {
                const int j = e / D4, c = e % D4 * 4, x = x0 + u0 + j, y = y0 + v;
                const int at = ((n * arg.h + y) * arg.w + x) * arg.qkv_ld + arg.qkv_c0 + h * D + c;
                const int in = y < arg.h && x < arg.w && j < kn;
                lk[e] = in ? LOAD4(qkv, at + C) : j < kn ? LOAD4(pad, C + c) : (float4)(0.0f);
                lv[e] = in ? LOAD4(qkv, at + 2 * C) : j < kn ? LOAD4(pad, 2 * C + c) : (float4)(0.0f);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
            for (int j = 0; j < COLUMNS; j += 4)
                if (j < kn) take_four(&s, query, lk + j * D4, lv + j * D4, column[j / 4] + line, kn - j);
        }
    }
    if (inside) store_result(out, token * arg.out_ld + arg.out_c0 + h * D, &s);
}
#endif

#ifdef WS
#define TOKENS (WS * WS)
#define BLOCKS ((TOKENS + GROUP - 1) / GROUP)

/* TinyViT's windows. Group (x, y, z): block x % BLOCKS of the queries of window x / BLOCKS, head y, item z. Tokens
 * outside the map are `pad`, as keys and values. bias [head][|dy| * WS + |dx|]. */
__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
window(__global T *out, __global const T *qkv, __global const float *pad, __global const float *bias,
       __global const int *limit, __global const int *content, window_args arg) {
    __local float4 lk[KB * D4], lv[KB * D4];
    const int n = get_group_id(2), h = get_group_id(1), lane = get_local_id(0), w = get_group_id(0) / BLOCKS;
    if (n >= *limit) return;
    const int x0 = w % arg.across * WS, y0 = w / arg.across * WS;
#ifdef LEFT_OUT
    if (all_left_out(y0, min(y0 + WS, arg.h), rows_left_out(content, arg.out, n))) return;
    const left_out_rows there = rows_left_out(content, arg.in, n);
#endif
    const int i = get_group_id(0) % BLOCKS * GROUP + lane;
    const int qy = min(i, TOKENS - 1) / WS, qx = min(i, TOKENS - 1) % WS;
    const int inside = i < TOKENS && y0 + qy < arg.h && x0 + qx < arg.w; /* the others compute along */
    const int token = (n * arg.h + (inside ? y0 + qy : y0)) * arg.w + (inside ? x0 + qx : x0);
    float4 query[D4];
    softmax_state s;
    const int from = (n * arg.h + ROW_OF(inside ? y0 + qy : y0, there)) * arg.w + (inside ? x0 + qx : x0);
    load_query(query, qkv, from * arg.qkv_ld + arg.qkv_c0 + h * 3 * D, arg.scale);
    softmax_begin(&s);
    pad += h * 3 * D;
    bias += h * TOKENS;
#pragma unroll 1 /* else compilers give up on the loops inside, and arrays end in memory */
    for (int k0 = 0; k0 < TOKENS; k0 += KB) {
        const int kn = min(KB, TOKENS - k0);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int e = lane; e < (kn + 3) / 4 * 4 * D4; e += GROUP) {
            const int j = k0 + e / D4, c = e % D4 * 4, y = y0 + j / WS, x = x0 + j % WS;
            const int at = ((n * arg.h + ROW_OF(y, there)) * arg.w + x) * arg.qkv_ld + arg.qkv_c0 + h * 3 * D;
            const int in = y < arg.h && x < arg.w && j < TOKENS;
            lk[e] = in ? LOAD4(qkv, at + D + c) : j < TOKENS ? vload4(0, pad + D + c) : (float4)(0.0f);
            lv[e] = in ? LOAD4(qkv, at + 2 * D + c) : j < TOKENS ? vload4(0, pad + 2 * D + c) : (float4)(0.0f);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int j = 0; j < kn; j += 4) {
            float b[4];
            for (int r = 0; r < 4; r++) {
                const int t = min(k0 + j + r, TOKENS - 1);
                b[r] = bias[abs(t / WS - qy) * WS + abs(t % WS - qx)];
            }
            take_four(&s, query, lk + j * D4, lv + j * D4, vload4(0, b), kn - j);
        }
    }
    if (inside) store_result(out, token * arg.out_ld + arg.out_c0 + h * D, &s);
}
#endif
