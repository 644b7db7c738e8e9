/* Window attention for CPUs: one work-item per group.
 *
 *     out[i] = sum_j softmax_j(scale * q_i . k_j + bias_ij) v_j          per head
 *
 * -D TOKENS: most tokens of a window. Only those inside the map are read: they are the queries and keys, line by line.
 * The others share the key and value of `pad`: together they are one key more, whose bias is the logarithm of the sum
 * of their weights.
 *
 * Scores have queries as lanes and keys broadcast, so that maximum, exponential and sum of the softmax run down the
 * lanes; results have channels as lanes and weights broadcast, so that they are stored as they are and their queries
 * come in any number. QV vectors of queries are a block. Needs cpu/tile and cpu/attention_parts. */
#define D        32 /* channels of a head */
#define KT       7  /* keys per register tile of scores */
#define QV       3
#define BLOCK    (QV * 16)
#define KEYS_MAX ((TOKENS + 1 + 15) / 16 * 16) /* with copies of the last for whole tiles and vectors */
#define LOG2E    1.44269504f

#ifdef SIMD16
#define FEW 4 /* so many queries beyond whole vectors are cheaper one by one */
#define RT  8 /* queries per register tile of results */
#else
#define FEW 0
#define RT  4
#endif

#define THREE(X, ...) X(0, __VA_ARGS__) X(1, __VA_ARGS__) X(2, __VA_ARGS__)
#define FOUR(X, ...)  THREE(X, __VA_ARGS__) X(3, __VA_ARGS__)
#define SEVEN(X, ...) FOUR(X, __VA_ARGS__) X(4, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__)
#define EIGHT(X, ...) SEVEN(X, __VA_ARGS__) X(7, __VA_ARGS__)

/* ---- scores ---- */

/* p[j] = q . k_j + bias[j * BLOCK ..] for KT keys and one or all vectors of queries, a vector's scores KEYS_MAX apart;
 * top becomes the maximum. Asks for lines of queries and keys that are needed next, at next[at[i]] for the first
 * 8 >> turn of i, evenly over the steps, since a core waits for few lines at a time. */
#ifdef SIMD16
#define DEFINE_SCORES(F, VECTORS)                                                                                      \
    NOINLINE void F(const float16 *qt, const float *k, float16 *p, __global const float *bias, float16 *top,           \
                    __global const T *next, const int *at, int turn) {                                                 \
        SEVEN(SCORE_KEY, VECTORS, SCORE_OPEN)                                                                          \
        for (int r = 0; r < D / 4; r++, k += 4, qt += 4 * QV) {                                                        \
            __global const T *line = next + at[r >> turn];                                                             \
            SCORE_STEP(VECTORS, 0) SCORE_STEP(VECTORS, 1) SCORE_STEP(VECTORS, 2) SCORE_STEP(VECTORS, 3)                \
        }                                                                                                              \
        VECTORS(SCORE_TOP, )                                                                                           \
        SEVEN(SCORE_KEY, VECTORS, SCORE_CLOSE)                                                                         \
        VECTORS(SCORE_END, )                                                                                           \
    }
#define ONE_VECTOR(X, ...)       X(0, __VA_ARGS__)
#define ALL_VECTORS(X, ...)      X(0, __VA_ARGS__) X(1, __VA_ARGS__) X(2, __VA_ARGS__)
#define SCORE_KEY(i, VECTORS, X) VECTORS(X, i)
#define SCORE_OPEN(v, i)         float16 a##i##_##v = (float16)(0.0f);
#define SCORE_STEP(VECTORS, c)                                                                                         \
    {                                                                                                                  \
        VECTORS(SCORE_QUERY, c)                                                                                        \
        SEVEN(SCORE_MACS, VECTORS, c)                                                                                  \
        PREFETCH(line + c * 16);                                                                                       \
    }
#define SCORE_QUERY(v, c) const float16 q##v = qt[(c) * QV + v];
#define SCORE_MACS(i, VECTORS, c)                                                                                      \
    {                                                                                                                  \
        const float16 x = (float16)(k[i * D + c]);                                                                     \
        VECTORS(SCORE_MAC, i)                                                                                          \
    }
#define SCORE_MAC(v, i) a##i##_##v = fma(x, q##v, a##i##_##v);
#define SCORE_TOP(v, X) float16 m##v = top[v];
#define SCORE_CLOSE(v, i)                                                                                              \
    a##i##_##v += vload16(v, bias + i * BLOCK);                                                                        \
    p[v * KEYS_MAX + i] = a##i##_##v;                                                                                  \
    m##v = larger(m##v, a##i##_##v);
#define SCORE_END(v, X) top[v] = m##v;
DEFINE_SCORES(scores_all, ALL_VECTORS)
DEFINE_SCORES(scores_one, ONE_VECTOR)
#else /* 8 registers of 8 floats: a vector of queries and four keys at a time, or half a vector and all keys */
#define DEFINE_SCORES(F, V, VLOAD, SOME)                                                                               \
    NOINLINE void F(const float16 *qt, const float *k, float16 *p, __global const float *bias, float16 *top) {         \
        V m = *(V *)top;                                                                                               \
        SOME(SCORE_OPEN, V, VLOAD)                                                                                     \
        for (int c = 0; c < D; c++) {                                                                                  \
            const V q = *(const V *)(qt + c * QV);                                                                     \
            SOME(SCORE_STEP, V, )                                                                                      \
        }                                                                                                              \
        SOME(SCORE_CLOSE, V, )                                                                                         \
        *(V *)top = m;                                                                                                 \
    }
#define SCORE_OPEN(i, V, VLOAD)  V a##i = VLOAD(0, bias + i * BLOCK);
#define SCORE_STEP(i, V, X)      a##i = fma((V)(k[i * D + c]), q, a##i);
#define SCORE_CLOSE(i, V, X)     *(V *)(p + i) = a##i, m = a##i > m ? a##i : m;
DEFINE_SCORES(scores4, float16, vload16, FOUR)
DEFINE_SCORES(scores3, float16, vload16, THREE)
DEFINE_SCORES(half_scores, float8, vload8, SEVEN)
#endif

/* p[j] = 2^(p[j] - top) for n keys; the sum of them. Asks for the lines at next[at[i]], i < 16, to be written. */
NOINLINE float16 exponentials(float16 *p, int n, float16 top, __global const T *next, const int *at) {
    float16 even = (float16)(0.0f), odd = even;
    int j = 0;
    for (; j + 2 <= n; j += 2) {
        const float16 a = exp2_negative(p[j] - top), b = exp2_negative(p[j + 1] - top);
        PREFETCH_WRITE(next + at[j / 2 % 16]);
        PREFETCH_WRITE(next + at[j / 2 % 16] + D / 2);
        p[j] = a;
        p[j + 1] = b;
        even += a;
        odd += b;
    }
    if (j < n) even += p[j] = exp2_negative(p[j] - top);
    return even + odd;
}

/* ---- results ---- */

/* out[to[r]] = inv[r] * sum over n keys j of p[j * 16 + r] v_j for r < RT, rows r below `left` only. */
#ifdef SIMD16 /* asks for the values at next[at[r]] */
NOINLINE void results(__global T *out, const int *to, int left, const float *inv, const float *p, const float16 *v,
                      int n, __global const T *next, const int *at) {
#define ASK(r, X)                                                                                                      \
    PREFETCH(next + at[r]);                                                                                            \
    PREFETCH(next + at[r] + D / 2);
    EIGHT(ASK, )
#undef ASK
#define OPEN(r, X) float16 a##r = (float16)(0.0f), b##r = a##r;
    EIGHT(OPEN, )
#undef OPEN
    for (int j = 0; j < n; j++) {
        const float16 va = v[j * 2], vb = v[j * 2 + 1];
#define STEP(r, X)                                                                                                     \
    {                                                                                                                  \
        const float16 x = (float16)(p[j * 16 + r]);                                                                    \
        a##r = fma(x, va, a##r);                                                                                       \
        b##r = fma(x, vb, b##r);                                                                                       \
    }
        EIGHT(STEP, )
#undef STEP
    }
#define CLOSE(r, X)                                                                                                    \
    if (r < left) {                                                                                                    \
        STORE16(a##r * inv[r], out, to[r]);                                                                            \
        STORE16(b##r * inv[r], out, to[r] + 16);                                                                       \
    }
    EIGHT(CLOSE, )
#undef CLOSE
}
#else /* 8 registers of 8 floats: four queries and half of the channels */
NOINLINE void half_results(__global T *out, const int *to, int left, const float *inv, const float *p, const float16 *v,
                           int n) {
#define OPEN(r, X) float16 a##r = (float16)(0.0f);
    FOUR(OPEN, )
#undef OPEN
    for (int j = 0; j < n; j++) {
        const float16 x = v[j * 2];
#define STEP(r, X) a##r = fma((float16)(p[j * 16 + r]), x, a##r);
        FOUR(STEP, )
#undef STEP
    }
#define CLOSE(r, X)                                                                                                    \
    if (r < left) STORE16(a##r * inv[r], out, to[r]);
    FOUR(CLOSE, )
#undef CLOSE
}
#endif

/* ---- a single query: channels as lanes ---- */

#ifdef SIMD16
/* Blocks of four lanes of two vectors. */
#define EVEN_BLOCKS(a, b) LANES(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
#define ODD_BLOCKS(a, b)  LANES(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)

/* The largest of v in all lanes. */
static inline float16 largest(float16 v) {
    v = larger(v, LANES(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
    v = larger(v, LANES(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
    v = larger(v, LANES(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
    return larger(v, LANES(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
}

/* out[0 .. D) = the results of the query at q with n keys, with copies of the last up to a whole vector; their biases
 * lie in blocks `ld` apart. p: scratch for the scores; at: see exponentials. */
NOINLINE void single(__global T *out, __global const T *q, const float16 *k, const float16 *v, float16 *p, int n,
                     float scale, __global const float *bias, int ld, const int *at) {
    const float16 qa = LOAD16(q, 0) * scale, qb = LOAD16(q, 16) * scale;
    const int vectors = (n + 15) / 16;
    float16 top = (float16)(LOWEST);
    for (int i = 0; i < vectors; i++) {
        float16 w[4];
#pragma clang loop unroll(disable)
        for (int j = 0; j < 4; j++, k += 8) { /* lane l of w[j]: channels of block l / 4 with key 4 j + l % 4 */
            const float16 s0 = fma(k[1], qb, k[0] * qa), s1 = fma(k[3], qb, k[2] * qa);
            const float16 s2 = fma(k[5], qb, k[4] * qa), s3 = fma(k[7], qb, k[6] * qa);
            const float16 s01 = LOW_OF_EACH(s0, s1) + HIGH_OF_EACH(s0, s1);
            const float16 s23 = LOW_OF_EACH(s2, s3) + HIGH_OF_EACH(s2, s3);
            w[j] = LOW_PAIRS(s01, s23) + HIGH_PAIRS(s01, s23);
        }
        const float16 w01 = EVEN_BLOCKS(w[0], w[1]) + ODD_BLOCKS(w[0], w[1]);
        const float16 w23 = EVEN_BLOCKS(w[2], w[3]) + ODD_BLOCKS(w[2], w[3]);
        p[i] = EVEN_BLOCKS(w01, w23) + ODD_BLOCKS(w01, w23) + vload16(i % QV, bias + i / QV * ld);
        top = larger(top, p[i]);
    }
    const float inv = 1.0f / sum16(exponentials(p, vectors, largest(top), out, at));
    const float *x = (const float *)p;
#define OPEN(i, X) float16 a##i = (float16)(0.0f);
    EIGHT(OPEN, )
#undef OPEN
    int j = 0;
    for (; j + 4 <= n; j += 4, v += 8) {
#define STEP(i, X) a##i = fma((float16)(x[j + i / 2]), v[i], a##i);
        EIGHT(STEP, )
#undef STEP
    }
    for (; j < n; j++, v += 2) {
        a0 = fma((float16)(x[j]), v[0], a0);
        a1 = fma((float16)(x[j]), v[1], a1);
    }
    STORE16(((a0 + a2) + (a4 + a6)) * inv, out, 0);
    STORE16(((a1 + a3) + (a5 + a7)) * inv, out, 16);
}
#endif

/* ---- a window ---- */

/* A window's keys and values of one head: `count` rows, the padding's if there is one, and copies of the last key up to
 * `all`. */
static inline void gather(float16 *k, float16 *v, __global const T *qkv, const int *from, int count,
                          __global const float *pad, int keys, int all) {
    for (int r = 0; r < count; r++) {
        const float16 k0 = LOAD16(qkv, from[r] + D), k1 = LOAD16(qkv, from[r] + D + 16);
        const float16 v0 = LOAD16(qkv, from[r] + 2 * D), v1 = LOAD16(qkv, from[r] + 2 * D + 16);
        k[r * 2] = k0, k[r * 2 + 1] = k1, v[r * 2] = v0, v[r * 2 + 1] = v1;
    }
    if (count < keys)
        for (int i = 0; i < 2; i++) {
            k[count * 2 + i] = vload16(i, pad + D);
            v[count * 2 + i] = vload16(i, pad + 2 * D);
        }
    for (int i = keys * 2; i < all * 2; i++) k[i] = k[i - 2];
}

/* Heads [h_begin, h_end) of one window of item n, after which the one to the right is next, or to the left (backwards);
 * the other arguments are the kernel's. */
static inline void attend(__global T *out, __global const T *qkv, __global const float *pad, __global const float *bias,
                          const cpu_window_args arg, int n, int window, int h_begin, int h_end) {
    const window_args common = arg.common;
    const int side = arg.side, way = arg.backwards ? -1 : 1;
    const float scale = common.scale;
    const int x0 = window % common.across * side, y0 = window / common.across * side;
    const int rows = min(side, common.h - y0), cols = min(side, common.w - x0), count = rows * cols;
    const int keys = count + (count < side * side), tiles = (keys + KT - 1) / KT;
    const int all = max(tiles * KT, (keys + 15) & ~15), table_size = tiles * KT * BLOCK;
    const int table_at = cols == side ? rows == side ? 0 : arg.at_end : rows == side ? arg.at_right : arg.at_both;
    const int asked = (count - 1) / (tiles * max(count / BLOCK, 1)) + 1; /* tokens to ask for per tile of keys */
    const int turn = asked > 4 ? 0 : asked > 2 ? 1 : asked > 1 ? 2 : 3;
    const int first = (n * common.h + y0) * common.w + x0; /* token of the window's corner */
    float16 kb[KEYS_MAX * 2], vb[KEYS_MAX * 2], qt[D * QV], p[KEYS_MAX * QV], top[QV], inv[QV];
    int from[TOKENS + 16], to[TOKENS + 16]; /* where tokens are read and written */

    for (int i = 0, y = 0, x = 0; i < count; i++) {
        const int token = first + y * common.w + x;
        from[i] = token * common.qkv_ld + common.qkv_c0;
        to[i] = token * common.out_ld + common.out_c0;
        if (++x == cols) x = 0, y++;
    }
    for (int i = 0; i < 16; i++) from[count + i] = from[count - 1], to[count + i] = to[count - 1];

    for (int h = h_begin; h < h_end; h++) {
        /* What is needed next: the same tokens' next head, or the first head of the window beside. */
        const int step = h + 1 < h_end ? 3 * D : way * side * common.qkv_ld - (h - h_begin) * 3 * D;
        __global const T *next = qkv + h * 3 * D + step;
        __global const float *biases = bias + h * arg.table_size + table_at;
        int ahead = 0;
        gather(kb, vb, qkv + h * 3 * D, from, count, pad + h * 3 * D, keys, all);
        for (int q0 = 0; q0 < count; q0 += BLOCK) {
            const int left = min(BLOCK, count - q0), vectors = left / 16 + (left % 16 > FEW);
            for (int v = 0; v < vectors; v++)
                for (int c = 0; c < D; c += 16)
                    load_queries(qkv + h * 3 * D + c, from + q0 + v * 16, left - v * 16, scale * LOG2E,
                                 qt + c * QV + v, QV);
            for (int v = 0; v < QV; v++) top[v] = (float16)(LOWEST);
            for (int j = 0; j < tiles; j++) {
                const float *k = (const float *)kb + j * KT * D;
                __global const float *table = biases + q0 / BLOCK * table_size + j * KT * BLOCK;
#ifdef SIMD16
                if (vectors == QV) scores_all(qt, k, p + j * KT, table, top, next, from + ahead, turn);
                else
                    for (int v = 0; v < vectors; v++)
                        scores_one(qt + v, k, p + v * KEYS_MAX + j * KT, table + v * 16, top + v, next, from + ahead,
                                   turn);
                ahead = min(ahead + (8 >> turn), count);
#else
                for (int past = min(ahead + (8 >> turn), count); ahead < past; ahead++)
                    for (int c = 0; c < 3 * D; c += 64 / sizeof(T)) PREFETCH(next + from[ahead] + c);
                for (int v = 0; v < vectors; v++) {
                    float16 *to_v = p + v * KEYS_MAX + j * KT;
                    if (v * 16 + 8 >= left) {
                        half_scores(qt + v, k, to_v, table + v * 16, top + v);
                        break;
                    }
                    scores4(qt + v, k, to_v, table + v * 16, top + v);
                    scores3(qt + v, k + 4 * D, to_v + 4, table + v * 16 + 4 * BLOCK, top + v);
                }
#endif
            }
            for (int v = 0; v < vectors; v++) {
                const int q = q0 + v * 16, past = min(16, count - q);
                inv[v] = (float16)(1.0f) / exponentials(p + v * KEYS_MAX, keys, top[v], out + h * D, to + q);
                for (int r = 0; r < past; r += RT) {
                    const float *f = (const float *)(inv + v) + r, *w = (const float *)(p + v * KEYS_MAX) + r;
#ifdef SIMD16
                    results(out + h * D, to + q + r, past - r, f, w, vb, keys, next + 2 * D, from + q + r);
#else
                    half_results(out + h * D, to + q + r, past - r, f, w, vb, keys);
                    half_results(out + h * D + 16, to + q + r, past - r, f, w, vb + 1, keys);
#endif
                }
            }
#ifdef SIMD16
            for (int i = q0 + vectors * 16; i < q0 + left; i++) /* its biases are those of key i */
                single(out + to[i] + h * D, qkv + from[i] + h * 3 * D, kb, vb, p, keys, scale * LOG2E,
                       biases + i * BLOCK, table_size, to + i);
#endif
        }
    }
}

/* An item of work: some heads of a window of one of the maps. Biases [head]{windows inside the map, those that its
 * right end cuts, its lower end, both}[block of queries][key][BLOCK], times log2(e). In windows that are cut the
 * padding is one token more, as a key and a query; keys come in whole tiles, and biases of what does not exist are
 * LOWEST. Grid: x = compute units, which share out the items by `queue` (see prelude). */
NOINLINE void window_group(__global T *out, __global const T *qkv, __global const float *pad,
                           __global const float *bias, __global const int *limit, const cpu_window_args arg,
                           __global int *queue, const int4 group) {
    const int heads = arg.heads, together = arg.tile_heads, parts = (heads + together - 1) / together;
    const int windows = arg.per_map;
    work_t work = work_begin(group.w, min(arg.items, *limit) * windows * parts, arg.backwards);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        const int part = item / windows % parts;
        attend(out, qkv, pad, bias, arg, item / windows / parts, item % windows, part * together,
               min(heads, (part + 1) * together));
    }
    work_end(&work, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
window(__global T *out, __global const T *qkv, __global const float *pad, __global const float *bias,
       __global const int *limit, cpu_window_args arg, __global int *queue) {
    window_group(out, qkv, pad, bias, limit, arg, queue, THIS_GROUP);
}
