/* TinyViT's window attention as two matrix products on register tiles, for GPUs of any vendor. The tokens of a window are
 * cut into PARTS. A group has the queries of one part of one window and head, and takes the keys part by part: a work-item
 * computes the scores of 8 queries and 4 keys, then (other work-items, other tiles) the sums of 8 queries and 4 channels.
 * Between the two is the online softmax (Milakov & Gimelshein, arXiv 1805.02867), in powers of two.
 *
 * Tile t of queries has the tokens t, t + QUERY_TILES ..., so that neighbours read neighbours' biases; it keeps them as the
 * vectors t and t + QUERY_TILES of a row of local memory, so that neighbours read neighbouring vectors. Keys alike.
 *
 * -D WS: side of a window, PARTS, ITEMS: work-items, at least QUERY_TILES * max(KEY_TILES, 8); ALIGNED: tokens begin at
 * multiples of four elements. Goes with portable/left_out. Group (x, y, z): part x % PARTS of window x / PARTS, head y,
 * item z. */
#define D           32
#define D4          (D / 4)
#define TOKENS      (WS * WS)
#define PART        ((TOKENS + PARTS - 1) / PARTS)
#define QUERY_TILES ((PART + 7) / 8)
#define KEY_TILES   ((PART + 3) / 4)
#define QUERY_WIDTH ((2 * QUERY_TILES | 1) * 4) /* rows four apart lie in different banks */
#define KEY_WIDTH   ((KEY_TILES | 1) * 4)
#define KEY_SIZE    (D * KEY_WIDTH)
#define WEIGHT_SIZE (4 * KEY_TILES * QUERY_WIDTH)
#define SPAN        (2 * WS - 1)
#define LOWEST      (-3.0e38f)
#define LOG2_E      1.44269504088896340736f

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

/* Each of a work-item's eight queries by its factor. */
static inline void scale_rows(float4 a[8], float4 lo, float4 hi) {
    a[0] *= lo.x;
    a[1] *= lo.y;
    a[2] *= lo.z;
    a[3] *= lo.w;
    a[4] *= hi.x;
    a[5] *= hi.y;
    a[6] *= hi.z;
    a[7] *= hi.w;
}

/* Place of token t of the window at (x0, y0) in the map, -1 outside. */
static inline int token_at(int t, int x0, int y0, int n, window_args arg) {
    const int y = y0 + t / WS, x = x0 + t % WS;
    return y < arg.h && x < arg.w ? (n * arg.h + y) * arg.w + x : -1;
}

/* Four channels from c on of token t; beyond the window's last, zeros. */
static inline float4 quad_of(__global const T *qkv, __global const float *pad, int t, int c, int x0, int y0, int n,
                             left_out_rows there, window_args arg) {
    const int y = y0 + t / WS, x = x0 + t % WS;
    if (t >= TOKENS) return (float4)(0.0f);
    if (y >= arg.h || x >= arg.w) return vload4(0, pad + c);
    return LOAD_QUAD(qkv, ((n * arg.h + ROW_OF(y, there)) * arg.w + x) * arg.qkv_ld + arg.qkv_c0 + c);
}

/* Rows of channels: to[d][column], by 16 columns and two vectors at a time. Vector v of a row has the tokens first + v %
 * tiles + (v / tiles * 4 + 0..3) * tiles. */
static inline void load_columns(__local float *to, int width, int columns, int tiles, __global const T *qkv,
                                __global const float *pad, int first, int c, int x0, int y0, int n, float scale,
                                left_out_rows there, window_args arg) {
    for (int e = get_local_id(0); e < D4 * columns; e += ITEMS) {
        const int j = (e >> 1) % columns, d = ((e >> 1) / columns * 2 + (e & 1)) * 4, v = j >> 2;
        const int t = first + v % tiles + (v / tiles * 4 + (j & 3)) * tiles;
        const float4 value = quad_of(qkv, pad, t, c + d, x0, y0, n, there, arg) * scale;
        to[d * width + j] = value.x;
        to[(d + 1) * width + j] = value.y;
        to[(d + 2) * width + j] = value.z;
        to[(d + 3) * width + j] = value.w;
    }
}

__attribute__((reqd_work_group_size(ITEMS, 1, 1))) __kernel void
window(__global T *out, __global const T *qkv, __global const float *pad, __global const float *bias,
       __global const int *limit, __global const int *content, window_args arg) {
    /* as vectors, for their alignment */
    __local float4 queries[D * QUERY_WIDTH / 4], keys[(KEY_SIZE > WEIGHT_SIZE ? KEY_SIZE : WEIGHT_SIZE) / 4];
    __local float4 tops[KEY_TILES * QUERY_WIDTH / 4], changes[QUERY_WIDTH / 4];
    __local float table[SPAN * SPAN];
    __local float4 v[PART * D4];
    __local float *q = (__local float *)queries, *top = (__local float *)tops, *change = (__local float *)changes;
    __local float *k = (__local float *)keys, *p = k; /* scores are made of the keys, weights [key][query] take their place */
    const int n = get_group_id(2), h = get_group_id(1), id = get_local_id(0), w = get_group_id(0) / PARTS;
    if (n >= *limit) return;
    const int x0 = w % arg.across * WS, y0 = w / arg.across * WS, q0 = get_group_id(0) % PARTS * PART;
    const int c = h * 3 * D;
#ifdef LEFT_OUT
    if (all_left_out(y0, min(y0 + WS, arg.h), rows_left_out(content, arg.out, n))) return;
#endif
    const left_out_rows there = rows_left_out(content, arg.in, n);
    for (int e = id; e < SPAN * SPAN; e += ITEMS)
        table[e] = bias[h * TOKENS + abs(e / SPAN - (WS - 1)) * WS + abs(e % SPAN - (WS - 1))] * LOG2_E;
    load_columns(q, QUERY_WIDTH, 8 * QUERY_TILES, QUERY_TILES, qkv, pad, q0, c, x0, y0, n, arg.scale * LOG2_E, there, arg);

    const int tk = id / QUERY_TILES, tq = id % QUERY_TILES, scores = tk < KEY_TILES, sums = tk < D4;
    const int lo = tq * 4, hi = (tq + QUERY_TILES) * 4; /* columns of this work-item's queries */
    int place[8];                                       /* of them in the table of biases */
#pragma unroll
    for (int r = 0; r < 8; r++) {
        const int t = min(q0 + tq + r * QUERY_TILES, TOKENS - 1);
        place[r] = t / WS * SPAN + t % WS - (WS - 1) * (SPAN + 1);
    }
    float4 most_lo = (float4)(LOWEST), most_hi = most_lo, total_lo = (float4)(0.0f), total_hi = total_lo;
    float4 a[8];
#pragma unroll
    for (int r = 0; r < 8; r++) a[r] = (float4)(0.0f);
#pragma unroll 1
    for (int k0 = 0; k0 < TOKENS; k0 += PART) {
        const int count = min(PART, TOKENS - k0);
        float4 s_lo[4], s_hi[4];
        barrier(CLK_LOCAL_MEM_FENCE);
        load_columns(k, KEY_WIDTH, 4 * KEY_TILES, KEY_TILES, qkv, pad, k0, c + D, x0, y0, n, 1.0f, there, arg);
        for (int e = id; e < PART * D4; e += ITEMS)
            v[e] = quad_of(qkv, pad, k0 + e / D4, c + 2 * D + e % D4 * 4, x0, y0, n, there, arg);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (scores) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int t = min(k0 + tk + j * KEY_TILES, TOKENS - 1), at = t / WS * SPAN + t % WS;
                s_lo[j] = (float4)(table[at - place[0]], table[at - place[1]], table[at - place[2]], table[at - place[3]]);
                s_hi[j] = (float4)(table[at - place[4]], table[at - place[5]], table[at - place[6]], table[at - place[7]]);
            }
#pragma unroll 8
            for (int d = 0; d < D; d++) {
                const float4 a_lo = QUAD_AT(q + d * QUERY_WIDTH, lo), a_hi = QUAD_AT(q + d * QUERY_WIDTH, hi);
                const float4 b = QUAD_AT(k + d * KEY_WIDTH, tk * 4);
                s_lo[0] = fma(a_lo, (float4)(b.x), s_lo[0]);
                s_lo[1] = fma(a_lo, (float4)(b.y), s_lo[1]);
                s_lo[2] = fma(a_lo, (float4)(b.z), s_lo[2]);
                s_lo[3] = fma(a_lo, (float4)(b.w), s_lo[3]);
                s_hi[0] = fma(a_hi, (float4)(b.x), s_hi[0]);
                s_hi[1] = fma(a_hi, (float4)(b.y), s_hi[1]);
                s_hi[2] = fma(a_hi, (float4)(b.z), s_hi[2]);
                s_hi[3] = fma(a_hi, (float4)(b.w), s_hi[3]);
            }
            float4 m_lo = (float4)(LOWEST), m_hi = m_lo;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (tk + j * KEY_TILES >= count) s_lo[j] = s_hi[j] = (float4)(LOWEST);
                m_lo = fmax(m_lo, s_lo[j]);
                m_hi = fmax(m_hi, s_hi[j]);
            }
            QUAD_AT(top + tk * QUERY_WIDTH, lo) = m_lo;
            QUAD_AT(top + tk * QUERY_WIDTH, hi) = m_hi;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (scores) {
            float4 m_lo = most_lo, m_hi = most_hi;
#pragma unroll
            for (int t = 0; t < KEY_TILES; t++) {
                m_lo = fmax(m_lo, QUAD_AT(top + t * QUERY_WIDTH, lo));
                m_hi = fmax(m_hi, QUAD_AT(top + t * QUERY_WIDTH, hi));
            }
            const float4 f_lo = power(most_lo - m_lo), f_hi = power(most_hi - m_hi);
            most_lo = m_lo;
            most_hi = m_hi;
            total_lo *= f_lo;
            total_hi *= f_hi;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float4 e_lo = power(s_lo[j] - m_lo), e_hi = power(s_hi[j] - m_hi);
                total_lo += e_lo;
                total_hi += e_hi;
                QUAD_AT(p + (tk + j * KEY_TILES) * QUERY_WIDTH, lo) = e_lo;
                QUAD_AT(p + (tk + j * KEY_TILES) * QUERY_WIDTH, hi) = e_hi;
            }
            if (tk == 0) {
                QUAD_AT(change, lo) = f_lo;
                QUAD_AT(change, hi) = f_hi;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (sums) {
            scale_rows(a, QUAD_AT(change, lo), QUAD_AT(change, hi));
#pragma unroll 4
            for (int j = 0; j < count; j++) {
                const float4 e_lo = QUAD_AT(p + j * QUERY_WIDTH, lo), e_hi = QUAD_AT(p + j * QUERY_WIDTH, hi);
                const float4 b = v[j * D4 + tk];
                a[0] = fma((float4)(e_lo.x), b, a[0]);
                a[1] = fma((float4)(e_lo.y), b, a[1]);
                a[2] = fma((float4)(e_lo.z), b, a[2]);
                a[3] = fma((float4)(e_lo.w), b, a[3]);
                a[4] = fma((float4)(e_hi.x), b, a[4]);
                a[5] = fma((float4)(e_hi.y), b, a[5]);
                a[6] = fma((float4)(e_hi.z), b, a[6]);
                a[7] = fma((float4)(e_hi.w), b, a[7]);
            }
        }
    }
    if (scores) {
        QUAD_AT(top + tk * QUERY_WIDTH, lo) = total_lo;
        QUAD_AT(top + tk * QUERY_WIDTH, hi) = total_hi;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    total_lo = total_hi = (float4)(0.0f);
#pragma unroll
    for (int t = 0; t < KEY_TILES; t++) {
        total_lo += QUAD_AT(top + t * QUERY_WIDTH, lo);
        total_hi += QUAD_AT(top + t * QUERY_WIDTH, hi);
    }
    scale_rows(a, 1.0f / total_lo, 1.0f / total_hi);
    const int last = sums ? min(TOKENS - q0, PART) : 0;
    out += arg.out_c0 + h * D + tk * 4;
#pragma unroll
    for (int r = 0; r < 8; r++) {
        const int t = tq + r * QUERY_TILES, at = token_at(q0 + t, x0, y0, n, arg);
        if (t < last && at >= 0) STORE_QUAD(a[r], out, at * arg.out_ld);
    }
}
