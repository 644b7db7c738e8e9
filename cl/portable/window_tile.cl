/* TinyViT's window attention as two matrix products on register tiles, for GPUs of any vendor. The tokens of a window are
 * cut into BLOCKS parts. A group has the queries of one part of one window and head, and takes the keys part by part: a
 * work-item computes the scores of 4 queries and 4 keys, then (other work-items, other tiles) the sums of 4 queries and 4
 * channels. Between the two is the online softmax (Milakov & Gimelshein, arXiv 1805.02867), in powers of two.
 *
 * Every vector of local memory that is read serves 16 products; in portable/attention's `window` it serves 4.
 *
 * -D WS: side of a window, BLOCKS, ITEMS: work-items, at least QUADS * max(QUADS, 8); ALIGNED: tokens begin at multiples
 * of four elements. Goes with portable/left_out. Group (x, y, z): part x % BLOCKS of window x / BLOCKS, head y, item z. */
#define D      32
#define D4     (D / 4)
#define TOKENS (WS * WS)
#define PART   ((TOKENS + BLOCKS - 1) / BLOCKS)
#define QUADS  ((PART + 3) / 4)
#define WIDTH  ((QUADS | 1) * 4) /* rows four apart lie in different banks */
#define SPAN   (2 * WS - 1)
#define LOWEST (-3.0e38f)
#define LOG2_E 1.44269504088896340736f

#ifdef ALIGNED
#define LOAD_QUAD(p, i)     LOAD4_ALIGNED(p, i)
#define STORE_QUAD(v, p, i) STORE4_ALIGNED(v, p, i)
#else
#define LOAD_QUAD(p, i)     LOAD4(p, i)
#define STORE_QUAD(v, p, i) STORE4(v, p, i)
#endif
#define QUAD_AT(row, i) (*(__local float4 *)((row) + (i)))

static inline float4 power(float4 t) {
    return quick_exp2_float4(fmax(t, (float4)(-126.0f)));
}

/* Place of token t of the window at (x0, y0) in the map, -1 outside. */
static inline int token_at(int t, int x0, int y0, int n, window_args arg) {
    const int y = y0 + t / WS, x = x0 + t % WS;
    return y < arg.h && x < arg.w ? (n * arg.h + y) * arg.w + x : -1;
}

/* Four channels from c on of token j of the part that begins with token `first`; beyond the window's last, zeros. */
static inline float4 quad_of(__global const T *qkv, __global const float *pad, int first, int j, int c, int x0, int y0,
                             int n, left_out_rows there, window_args arg) {
    const int t = first + j, y = y0 + t / WS, x = x0 + t % WS;
    if (j >= PART || t >= TOKENS) return (float4)(0.0f);
    if (y >= arg.h || x >= arg.w) return vload4(0, pad + c);
    return LOAD_QUAD(qkv, ((n * arg.h + ROW_OF(y, there)) * arg.w + x) * arg.qkv_ld + arg.qkv_c0 + c);
}

/* Rows of channels: to[d][token], by 16 tokens and two quads at a time. */
static inline void load_columns(__local float *to, __global const T *qkv, __global const float *pad, int first, int c,
                                int x0, int y0, int n, float scale, left_out_rows there, window_args arg) {
    for (int e = get_local_id(0); e < D4 * 4 * QUADS; e += ITEMS) {
        const int j = (e >> 1) % (4 * QUADS), d = ((e >> 1) / (4 * QUADS) * 2 + (e & 1)) * 4;
        const float4 v = quad_of(qkv, pad, first, j, c + d, x0, y0, n, there, arg) * scale;
        to[d * WIDTH + j] = v.x;
        to[(d + 1) * WIDTH + j] = v.y;
        to[(d + 2) * WIDTH + j] = v.z;
        to[(d + 3) * WIDTH + j] = v.w;
    }
}

__attribute__((reqd_work_group_size(ITEMS, 1, 1))) __kernel void
window(__global T *out, __global const T *qkv, __global const float *pad, __global const float *bias,
       __global const int *limit, __global const int *content, window_args arg) {
    /* as vectors, for their alignment */
    __local float4 queries[D * WIDTH / 4], keys[(4 * QUADS > D ? 4 * QUADS : D) * WIDTH / 4];
    __local float4 tops[QUADS * WIDTH / 4], changes[WIDTH / 4];
    __local float table[SPAN * SPAN];
    __local float4 v[4 * QUADS * D4];
    __local float *q = (__local float *)queries, *top = (__local float *)tops, *change = (__local float *)changes;
    __local float *k = (__local float *)keys, *p = k; /* scores are made of the keys, weights [key][query] take their place */
    const int n = get_group_id(2), h = get_group_id(1), id = get_local_id(0), w = get_group_id(0) / BLOCKS;
    if (n >= *limit) return;
    const int x0 = w % arg.across * WS, y0 = w / arg.across * WS, q0 = get_group_id(0) % BLOCKS * PART, c = h * 3 * D;
#ifdef LEFT_OUT
    if (all_left_out(y0, min(y0 + WS, arg.h), rows_left_out(content, arg.out, n))) return;
#endif
    const left_out_rows there = rows_left_out(content, arg.in, n);
    for (int e = id; e < SPAN * SPAN; e += ITEMS)
        table[e] = bias[h * TOKENS + abs(e / SPAN - (WS - 1)) * WS + abs(e % SPAN - (WS - 1))] * LOG2_E;
    load_columns(q, qkv, pad, q0, c, x0, y0, n, arg.scale * LOG2_E, there, arg);

    const int tk = id / QUADS, tq = id % QUADS, scores = tk < QUADS, sums = tk < D4;
    int4 place; /* of this work-item's queries in the table of biases */
    {
        const int4 t = min(q0 + tq * 4 + (int4)(0, 1, 2, 3), TOKENS - 1);
        place = t / WS * SPAN + t % WS - (WS - 1) * (SPAN + 1);
    }
    float4 most = (float4)(LOWEST), total = (float4)(0.0f);
    float4 a0 = (float4)(0.0f), a1 = a0, a2 = a0, a3 = a0;
#pragma unroll 1
    for (int k0 = 0; k0 < TOKENS; k0 += PART) {
        const int count = min(PART, TOKENS - k0);
        float4 s[4];
        barrier(CLK_LOCAL_MEM_FENCE);
        load_columns(k, qkv, pad, k0, c + D, x0, y0, n, 1.0f, there, arg);
        for (int e = id; e < 4 * QUADS * D4; e += ITEMS)
            v[e] = quad_of(qkv, pad, k0, e / D4, c + 2 * D + e % D4 * 4, x0, y0, n, there, arg);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (scores) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int t = min(k0 + tk * 4 + j, TOKENS - 1);
                const int4 at = t / WS * SPAN + t % WS - place;
                s[j] = (float4)(table[at.x], table[at.y], table[at.z], table[at.w]);
            }
#pragma unroll 8
            for (int d = 0; d < D; d++) {
                const float4 a = QUAD_AT(q + d * WIDTH, tq * 4), b = QUAD_AT(k + d * WIDTH, tk * 4);
                s[0] = fma(a, (float4)(b.x), s[0]);
                s[1] = fma(a, (float4)(b.y), s[1]);
                s[2] = fma(a, (float4)(b.z), s[2]);
                s[3] = fma(a, (float4)(b.w), s[3]);
            }
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (tk * 4 + j >= count) s[j] = (float4)(LOWEST);
            QUAD_AT(top + tk * WIDTH, tq * 4) = fmax(fmax(s[0], s[1]), fmax(s[2], s[3]));
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (scores) {
            float4 m = most;
#pragma unroll
            for (int t = 0; t < QUADS; t++) m = fmax(m, QUAD_AT(top + t * WIDTH, tq * 4));
            const float4 f = power(most - m);
            most = m;
            total *= f;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float4 e = power(s[j] - m);
                total += e;
                QUAD_AT(p + (tk * 4 + j) * WIDTH, tq * 4) = e;
            }
            if (tk == 0) QUAD_AT(change, tq * 4) = f;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (sums) {
            const float4 f = QUAD_AT(change, tq * 4);
            a0 *= f.x;
            a1 *= f.y;
            a2 *= f.z;
            a3 *= f.w;
#pragma unroll 4
            for (int j = 0; j < count; j++) {
                const float4 e = QUAD_AT(p + j * WIDTH, tq * 4), b = v[j * D4 + tk];
                a0 = fma((float4)(e.x), b, a0);
                a1 = fma((float4)(e.y), b, a1);
                a2 = fma((float4)(e.z), b, a2);
                a3 = fma((float4)(e.w), b, a3);
            }
        }
    }
    if (scores) QUAD_AT(top + tk * WIDTH, tq * 4) = total;
    barrier(CLK_LOCAL_MEM_FENCE);
    total = (float4)(0.0f);
#pragma unroll
    for (int t = 0; t < QUADS; t++) total += QUAD_AT(top + t * WIDTH, tq * 4);
    total = 1.0f / total;
    a0 *= total.x;
    a1 *= total.y;
    a2 *= total.z;
    a3 *= total.w;
    const int last = sums ? min(TOKENS - q0, PART) - tq * 4 : 0; /* of this work-item's queries */
    out += arg.out_c0 + h * D + tk * 4;
    const float4 rows[4] = {a0, a1, a2, a3};
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const int at = token_at(q0 + tq * 4 + r, x0, y0, n, arg);
        if (r < last && at >= 0) STORE_QUAD(rows[r], out, at * arg.out_ld);
    }
}
