/* TinyViT's window attention as two matrix products on register tiles, for GPUs of any vendor. A group has QUERIES queries
 * of one window and head, and takes the window's keys KEYS at a time: a work-item computes the scores of up to 7 queries
 * and KEY_TILE keys, then the sums of these queries and 4 channels. Between the two is the online softmax (Milakov &
 * Gimelshein, arXiv 1805.02867), in powers of two. Seven queries, since windows of 7 and 14 have multiples of them.
 *
 * Tile t of queries has the tokens t, t + QUERY_TILES ...; it keeps them as the vectors t and t + QUERY_TILES of a row of
 * local memory, so that neighbours read neighbouring vectors. Keys alike. Eight neighbours have the same queries: of these
 * they read the same vectors, and of the rest vectors in different banks.
 *
 * What comes next from global memory is asked for before the scores and kept behind them; weights and values have places
 * of their own for that, so that two barriers are enough for a round of keys. A window of one round needs neither.
 *
 * -D WS: side of a window, QUERIES, KEYS, KEY_TILE (4 or 8), ITEMS: work-items, at least QUERY_TILES * TILES; ALIGNED:
 * tokens begin at multiples of four elements. Goes with portable/left_out. Group (x, y, z): part x % PARTS of window x /
 * PARTS, head y, item z. */
#define D             32
#define D4            (D / 4)
#define CHANNEL_TILES D4
#define TOKENS        (WS * WS)
#define PARTS         ((TOKENS + QUERIES - 1) / QUERIES)
#define QUERY_TILES   ((QUERIES + 6) / 7)
#define QUERIES_EACH  ((QUERIES + QUERY_TILES - 1) / QUERY_TILES)
#define KEY_TILES     ((KEYS + KEY_TILE - 1) / KEY_TILE)
#define KEYS_EACH     ((KEYS + KEY_TILES - 1) / KEY_TILES) /* of a tile's that may be there */
#define TILES         (KEY_TILES > CHANNEL_TILES ? KEY_TILES : CHANNEL_TILES)
#define QUERY_WIDTH   ((2 * QUERY_TILES | 1) * 4) /* rows of neighbours lie in different banks */
#define KEY_WIDTH     ((KEY_TILE / 4 * KEY_TILES | 1) * 4)
#define KEY_COLUMNS   (KEY_TILE * KEY_TILES)
#define QUERY_COLUMNS (8 * QUERY_TILES)
#define KEY_SIZE      (D * KEY_WIDTH)
#define WEIGHT_SIZE   (KEYS * QUERY_WIDTH)
#define VALUE_SIZE    (KEYS * D4) /* vectors */
#define ROUNDS        ((TOKENS + KEYS - 1) / KEYS)
#define SPAN          (2 * WS - 1)
#define LOWEST        (-3.0e38f)
#define LOG2_E        1.44269504088896340736f

#ifdef ALIGNED
#define LOAD_QUAD(p, i)     LOAD4_ALIGNED(p, i)
#define STORE_QUAD(v, p, i) STORE4_ALIGNED(v, p, i)
#else
#define LOAD_QUAD(p, i)     LOAD4(p, i)
#define STORE_QUAD(v, p, i) STORE4(v, p, i)
#endif
#define QUAD_AT(row, i) (*(__local float4 *)((row) + (i)))

static inline float power(float t) {
    return quick_exp2(fmax(t, -126.0f));
}

/* A value for each of a work-item's queries, and what is beside them in their two vectors. */
static inline void read_pair(float to[8], __local const float *row, int lo, int hi) {
    vstore4(*(__local const float4 *)(row + lo), 0, to);
    vstore4(*(__local const float4 *)(row + hi), 1, to);
}
static inline void write_pair(const float from[8], __local float *row, int lo, int hi) {
    QUAD_AT(row, lo) = vload4(0, from);
    QUAD_AT(row, hi) = vload4(1, from);
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

/* Rows of channels, [d][column], are loaded by 16 columns and two vectors at a time: fetch e of them is four channels
 * from channel_of on, of the token in column_of. Vector v of a row has the tokens v % tiles + (v / tiles * 4 + 0..3) *
 * tiles. */
static inline int column_of(int e, int columns) {
    return (e >> 1) % columns;
}
static inline int channel_of(int e, int columns) {
    return ((e >> 1) / columns * 2 + (e & 1)) * 4;
}
static inline int token_of(int column, int tiles) {
    const int v = column >> 2;
    return v % tiles + (v / tiles * 4 + (column & 3)) * tiles;
}

/* How many vectors a work-item fetches of `count`, and which of them f is; those beyond `count` are zeros, of no token.
 */
#define FETCHES(count)   (((count) + ITEMS - 1) / ITEMS)
#define FETCH_INDEX(f)   ((int)get_local_id(0) + (f) * ITEMS)
#define QUAD(t, channel) quad_of(qkv, pad, t, channel, x0, y0, n, there, arg)
#define FETCH_COLUMNS(to, columns, tiles, first, channel)                                                              \
    _Pragma("unroll") for (int f = 0; f < FETCHES(D4 * (columns)); f++) {                                              \
        const int e = FETCH_INDEX(f), t = (first) + token_of(column_of(e, columns), tiles);                            \
        to[f] = QUAD(e < D4 * (columns) ? t : TOKENS, (channel) + channel_of(e, columns));                             \
    }
#define FETCH_VALUES(to, first, channel)                                                                               \
    _Pragma("unroll") for (int f = 0; f < FETCHES(VALUE_SIZE); f++) {                                                  \
        const int e = FETCH_INDEX(f);                                                                                  \
        to[f] = QUAD(e < VALUE_SIZE ? (first) + e / D4 : TOKENS, (channel) + e % D4 * 4);                              \
    }
#define KEEP_COLUMNS(to, width, columns, from, scale)                                                                  \
    _Pragma("unroll") for (int f = 0; f < FETCHES(D4 * (columns)); f++) {                                              \
        const int e = FETCH_INDEX(f);                                                                                  \
        __local float *column = to + channel_of(e, columns) * (width) + column_of(e, columns);                         \
        if (e < D4 * (columns)) {                                                                                      \
            column[0] = from[f].x * (scale);                                                                           \
            column[width] = from[f].y * (scale);                                                                       \
            column[2 * (width)] = from[f].z * (scale);                                                                 \
            column[3 * (width)] = from[f].w * (scale);                                                                 \
        }                                                                                                              \
    }
#define KEEP_VALUES(to, from)                                                                                          \
    _Pragma("unroll") for (int f = 0; f < FETCHES(VALUE_SIZE); f++) {                                                  \
        if (FETCH_INDEX(f) < VALUE_SIZE) (to)[FETCH_INDEX(f)] = from[f];                                               \
    }

__attribute__((reqd_work_group_size(ITEMS, 1, 1))) __kernel void
window(__global T *out, __global const T *qkv, __global const float *pad, __global const float *bias,
       __global const int *limit, __global const int *content, window_args arg) {
    /* as vectors, for their alignment */
    __local float4 queries[D * QUERY_WIDTH / 4], tops[KEY_TILES * QUERY_WIDTH / 4], changes[QUERY_WIDTH / 4];
    __local float table[SPAN * SPAN];
#if ROUNDS > 1
    __local float4 keys[KEY_SIZE / 4], weights[WEIGHT_SIZE / 4], values[2 * VALUE_SIZE];
#else
    __local float4 keys[(KEY_SIZE > WEIGHT_SIZE ? KEY_SIZE : WEIGHT_SIZE) / 4], values[VALUE_SIZE];
    __local float4 *weights = keys; /* they take the keys' place */
#endif
    __local float *q = (__local float *)queries, *top = (__local float *)tops, *change = (__local float *)changes;
    __local float *k = (__local float *)keys, *p = (__local float *)weights; /* p[key][query] */
    const int n = get_group_id(2), h = get_group_id(1), id = get_local_id(0), w = get_group_id(0) / PARTS;
    if (n >= *limit) return;
    const int x0 = w % arg.across * WS, y0 = w / arg.across * WS, q0 = get_group_id(0) % PARTS * QUERIES;
    const int c = h * 3 * D;
#ifdef LEFT_OUT
    if (all_left_out(y0, min(y0 + WS, arg.h), rows_left_out(content, arg.out, n))) return;
#endif
    const left_out_rows there = rows_left_out(content, arg.in, n);
    float4 next_k[FETCHES(D4 * KEY_COLUMNS)], next_v[FETCHES(VALUE_SIZE)];
    {
        float4 first[FETCHES(D4 * QUERY_COLUMNS)];
        FETCH_COLUMNS(first, QUERY_COLUMNS, QUERY_TILES, q0, c);
        FETCH_COLUMNS(next_k, KEY_COLUMNS, KEY_TILES, 0, c + D);
        FETCH_VALUES(next_v, 0, c + 2 * D);
        for (int e = id; e < SPAN * SPAN; e += ITEMS)
            table[e] = bias[h * TOKENS + abs(e / SPAN - (WS - 1)) * WS + abs(e % SPAN - (WS - 1))] * LOG2_E;
        KEEP_COLUMNS(q, QUERY_WIDTH, QUERY_COLUMNS, first, arg.scale * LOG2_E);
        KEEP_COLUMNS(k, KEY_WIDTH, KEY_COLUMNS, next_k, 1.0f);
        KEEP_VALUES(values, next_v);
    }

    const int tile = id % TILES, tq = min(id / TILES, QUERY_TILES - 1), busy = id < TILES * QUERY_TILES;
    const int scores = busy && tile < KEY_TILES, sums = busy && tile < CHANNEL_TILES;
    const int lo = tq * 4, hi = (tq + QUERY_TILES) * 4; /* columns of this work-item's queries */
    /* Their places in the table of biases: where a work-item's queries lie below each other, a constant apart. */
#define PLACE_OF(t) ((t) / WS * SPAN + (t) % WS - (WS - 1) * (SPAN + 1))
#if QUERY_TILES % WS == 0 && TOKENS % QUERIES == 0 && QUERIES % QUERY_TILES == 0
    const int place_of_first = PLACE_OF(q0 + tq);
#define PLACE(r) (place_of_first + (r) * (QUERY_TILES / WS * SPAN))
#else
    int place[QUERIES_EACH];
#pragma unroll
    for (int r = 0; r < QUERIES_EACH; r++) {
        const int t = min(q0 + tq + r * QUERY_TILES, TOKENS - 1);
        place[r] = PLACE_OF(t);
    }
#define PLACE(r) place[r]
#endif
    float most[QUERIES_EACH], total[QUERIES_EACH];
    float4 a[QUERIES_EACH];
#pragma unroll
    for (int r = 0; r < QUERIES_EACH; r++) {
        most[r] = LOWEST;
        total[r] = 0.0f;
        a[r] = (float4)(0.0f);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 1
    for (int round = 0; round < ROUNDS; round++) {
        const int k0 = round * KEYS, count = min(KEYS, TOKENS - k0);
        float s[KEYS_EACH][QUERIES_EACH], now[8];
#if ROUNDS > 1
        if (round + 1 < ROUNDS) {
            FETCH_COLUMNS(next_k, KEY_COLUMNS, KEY_TILES, k0 + KEYS, c + D);
            FETCH_VALUES(next_v, k0 + KEYS, c + 2 * D);
        }
        __local const float4 *v = values + round % 2 * VALUE_SIZE;
#else
        __local const float4 *v = values;
#endif
        if (scores) {
#pragma unroll
            for (int j = 0; j < KEYS_EACH; j++) {
                const int t = min(k0 + tile + j * KEY_TILES, TOKENS - 1), at = t / WS * SPAN + t % WS;
#pragma unroll
                for (int r = 0; r < QUERIES_EACH; r++) s[j][r] = table[at - PLACE(r)];
            }
#pragma unroll 8
            for (int d = 0; d < D; d++) {
                float e[8], b[KEY_TILE];
                read_pair(e, q + d * QUERY_WIDTH, lo, hi);
#pragma unroll
                for (int g = 0; g < KEY_TILE / 4; g++)
                    vstore4(QUAD_AT(k + d * KEY_WIDTH, (tile + g * KEY_TILES) * 4), g, b);
#pragma unroll
                for (int j = 0; j < KEYS_EACH; j++)
#pragma unroll
                    for (int r = 0; r < QUERIES_EACH; r++) s[j][r] = fma(e[r], b[j], s[j][r]);
            }
#pragma unroll
            for (int r = 0; r < 8; r++) now[r] = LOWEST;
#pragma unroll
            for (int j = 0; j < KEYS_EACH; j++)
#pragma unroll
                for (int r = 0; r < QUERIES_EACH; r++) {
                    if (tile + j * KEY_TILES >= count) s[j][r] = LOWEST;
                    now[r] = fmax(now[r], s[j][r]);
                }
            write_pair(now, top + tile * QUERY_WIDTH, lo, hi);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (scores) {
#pragma unroll
            for (int r = 0; r < QUERIES_EACH; r++) now[r] = most[r];
#pragma unroll
            for (int t = 0; t < KEY_TILES; t++) {
                float others[8];
                read_pair(others, top + t * QUERY_WIDTH, lo, hi);
#pragma unroll
                for (int r = 0; r < QUERIES_EACH; r++) now[r] = fmax(now[r], others[r]);
            }
            float f[8];
#pragma unroll
            for (int r = 0; r < QUERIES_EACH; r++) {
                f[r] = power(most[r] - now[r]);
                most[r] = now[r];
                total[r] *= f[r];
            }
#pragma unroll
            for (int j = 0; j < KEYS_EACH; j++) {
                float e[8];
#pragma unroll
                for (int r = 0; r < QUERIES_EACH; r++) {
                    e[r] = power(s[j][r] - now[r]);
                    total[r] += e[r];
                }
                if (tile + j * KEY_TILES < KEYS) write_pair(e, p + (tile + j * KEY_TILES) * QUERY_WIDTH, lo, hi);
            }
            if (tile == 0) write_pair(f, change, lo, hi);
        }
#if ROUNDS > 1
        if (round + 1 < ROUNDS) {
            KEEP_COLUMNS(k, KEY_WIDTH, KEY_COLUMNS, next_k, 1.0f);
            KEEP_VALUES(values + (round + 1) % 2 * VALUE_SIZE, next_v);
        }
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
        if (sums) {
            float f[8];
            read_pair(f, change, lo, hi);
#pragma unroll
            for (int r = 0; r < QUERIES_EACH; r++) a[r] *= f[r];
#pragma unroll 7
            for (int j = 0; j < count; j++) {
                float e[8];
                read_pair(e, p + j * QUERY_WIDTH, lo, hi);
                const float4 b = v[j * D4 + tile];
#pragma unroll
                for (int r = 0; r < QUERIES_EACH; r++) a[r] = fma((float4)(e[r]), b, a[r]);
            }
        }
    }
    if (scores) {
        float all[8];
#pragma unroll
        for (int r = 0; r < QUERIES_EACH; r++) all[r] = total[r];
        write_pair(all, top + tile * QUERY_WIDTH, lo, hi);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int r = 0; r < QUERIES_EACH; r++) total[r] = 0.0f;
#pragma unroll
    for (int t = 0; t < KEY_TILES; t++) {
        float others[8];
        read_pair(others, top + t * QUERY_WIDTH, lo, hi);
#pragma unroll
        for (int r = 0; r < QUERIES_EACH; r++) total[r] += others[r];
    }
    const int last = sums ? min(TOKENS - q0, QUERIES) : 0;
    out += arg.out_c0 + h * D + tile * 4;
#pragma unroll
    for (int r = 0; r < QUERIES_EACH; r++) {
        const int t = tq + r * QUERY_TILES, at = token_at(q0 + t, x0, y0, n, arg);
        if (t < last && at >= 0) STORE_QUAD(a[r] * (1.0f / total[r]), out, at * arg.out_ld);
    }
}
