/* Attention for CPUs: one work-item per group, lanes are queries.
 *
 *     out[i] = sum_j softmax_j(scale * q_i . k_j + bias_ij) v_j          per head
 *
 * A group holds QV vectors of 16 queries as columns, q^T [c][QV * 16], and walks over the keys in blocks of KB that it
 * first copies to a dense scratch. Scores of KT keys x QV vectors are accumulated in registers with the key broadcast,
 * so that maximum, exponential and sum of the softmax run down the lanes and nothing is ever summed across a vector.
 * The block's weighted values are added to out^T [c][QV * 16] after scaling it to the new maximum (online softmax,
 * Milakov & Gimelshein, arXiv 1805.02867). Scratch is private memory: it stays in the first two cache levels.
 * Needs isa/tile. */
#ifndef D
#define D 32 /* largest head dimension served, a multiple of 16 */
#endif
#ifndef KT
#define KT 8 /* keys per register tile: 7 or 8 */
#endif
#ifndef KB
#define KB 64 /* keys per block, a multiple of KT */
#endif
#define QV 2 /* vectors of 16 queries per group */
#define CT 8 /* channels per register tile of the second product */
#if KT == 7
#define KEYS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6)
#else
#define KEYS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#endif
#define CHANNELS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

/* ---- queries and results: 16 tokens by 16 channels at a time ---- */

/* qt[c * QV] = lane i: scale * q[at[i] + c], c < 16; and out[at[i] + c] = lane i of ot[0] * inv and the 15 channels
 * after it, where at[i] is not negative. Of lanes beyond `left` some or all may be left out. */
#ifdef SIMD16
NOINLINE void load_queries(__global const T *q, const int *at, int left, int c, float scale, float16 *qt) {
#pragma clang loop unroll(disable)
    for (int k = 0; k < 16; k += 4, qt += 4 * QV) {
#define PIECE(i) LOAD4(q, at[i] + c + k)
        TRANSPOSE16X4(w, PIECE)
#undef PIECE
        qt[0] = w0 * scale, qt[QV] = w1 * scale, qt[2 * QV] = w2 * scale, qt[3 * QV] = w3 * scale;
    }
}
NOINLINE void store_results(__global T *out, const int *at, int left, int c, float16 inv, const float16 *ot) {
    const float *factor = (const float *)&inv;
#pragma clang loop unroll(disable)
    for (int k = 0; k < 16; k += 4) {
#define PIECE(i) ((const float4 *)(ot + i * QV))[k / 4]
        TRANSPOSE16X4(w, PIECE)
#undef PIECE
#define ROW(i)                                                                                                         \
    if (at[k + i] >= 0) STORE16(w##i * factor[k + i], out, at[k + i] + c);
        ROW(0) ROW(1) ROW(2) ROW(3)
#undef ROW
    }
}
#else /* 8x8 at a time: what fits registers */
NOINLINE void load_queries(__global const T *q, const int *at, int left, int c, float scale, float16 *qt) {
    for (int part = 0; part < 2 && part * 8 < left; part++, at += 8)
        for (int k = 0; k < 16; k += 8) {
#define ROW(i) float8 r##i = LOAD8(q, at[i] + c + k);
            EACH8(ROW)
#undef ROW
            TRANSPOSE8(w, r)
#define COLUMN(i) ((float8 *)(qt + (k + i) * QV))[part] = w##i * scale;
            EACH8(COLUMN)
#undef COLUMN
        }
}
NOINLINE void store_results(__global T *out, const int *at, int left, int c, float16 inv, const float16 *ot) {
    for (int part = 0; part < 2 && part * 8 < left; part++, at += 8)
        for (int k = 0; k < 16; k += 8) {
            const float8 f = part ? inv.hi : inv.lo;
#define COLUMN(i) float8 r##i = ((const float8 *)(ot + (k + i) * QV))[part] * f;
            EACH8(COLUMN)
#undef COLUMN
            TRANSPOSE8(w, r)
#define ROW(i)                                                                                                         \
    if (at[i] >= 0) STORE8(w##i, out, at[i] + c + k);
            EACH8(ROW)
#undef ROW
        }
}
#endif

/* ---- one block of keys ---- */

/* Running maximum, sum and results of QV * 16 queries. */
typedef struct softmax_state {
    float16 m[QV], sum[QV];
    float16 ot[D * QV];
} softmax_state;

static inline void softmax_begin(softmax_state *s, int d) {
    for (int v = 0; v < QV; v++) {
        s->m[v] = (float16)(LOWEST);
        s->sum[v] = (float16)(0.0f);
    }
    for (int i = 0; i < d * QV; i++) s->ot[i] = (float16)(0.0f);
}

/* p[j] = q . k_j for KT keys, plus bias[rows[j] ..] unless `rows` is 0; ma, mb become the maxima. Of lanes beyond
 * `left` some or all may be left out, here and below. */
#ifdef SIMD16
static inline void score_tile(const float16 *qt, const float *k, float16 *p, int d, int left,
                              __global const float *bias, const int *rows, float16 *ma, float16 *mb) {
#define OPEN(i)                                                                                                        \
    float16 a##i = rows ? vload16(0, bias + rows[i]) : (float16)(0.0f);                                                \
    float16 b##i = rows ? vload16(1, bias + rows[i]) : (float16)(0.0f);
    KEYS(OPEN)
#undef OPEN
    for (int c = 0; c < d; c++) {
        float16 qa = qt[c * QV], qb = qt[c * QV + 1];
#define STEP(i)                                                                                                        \
    {                                                                                                                  \
        float16 x = (float16)(k[i * D + c]);                                                                           \
        a##i = fma(x, qa, a##i);                                                                                       \
        b##i = fma(x, qb, b##i);                                                                                       \
    }
        KEYS(STEP)
#undef STEP
    }
#define CLOSE(i)                                                                                                       \
    p[i * QV] = a##i;                                                                                                  \
    p[i * QV + 1] = b##i;                                                                                              \
    *ma = larger(*ma, a##i);                                                                                           \
    *mb = larger(*mb, b##i);
    KEYS(CLOSE)
#undef CLOSE
}
#else /* 8 registers of 8 floats: a vector of queries and four keys at a time, or half a vector and all keys */
#define DEFINE_SCORES(F, V, VLOAD, SOME)                                                                               \
    NOINLINE void F(const float16 *qt, const float *k, float16 *p, int d, __global const float *bias, const int *rows, \
                    float16 *top) {                                                                                    \
        V m = *(V *)top;                                                                                               \
        if (rows) {                                                                                                    \
            SOME(SCORE_OPEN, V, VLOAD)                                                                                 \
            SCORE_STEPS(V, SOME)                                                                                       \
        } else {                                                                                                       \
            SOME(SCORE_ZERO, V, VLOAD)                                                                                 \
            SCORE_STEPS(V, SOME)                                                                                       \
        }                                                                                                              \
        *(V *)top = m;                                                                                                 \
    }
#define SCORE_STEPS(V, SOME)                                                                                           \
    for (int c = 0; c < d; c++) {                                                                                      \
        const V q = *(const V *)(qt + c * QV);                                                                         \
        SOME(SCORE_STEP, V, )                                                                                          \
    }                                                                                                                  \
    SOME(SCORE_CLOSE, V, )
#define SCORE_OPEN(i, V, VLOAD)  V a##i = VLOAD(0, bias + rows[i]);
#define SCORE_ZERO(i, V, VLOAD)  V a##i = (V)(0.0f);
#define SCORE_STEP(i, V, VLOAD)  a##i = fma((V)(k[i * D + c]), q, a##i);
#define SCORE_CLOSE(i, V, VLOAD) *(V *)(p + i * QV) = a##i, m = a##i > m ? a##i : m;
#define THREE(X, ...)            X(0, __VA_ARGS__) X(1, __VA_ARGS__) X(2, __VA_ARGS__)
#define FOUR(X, ...)             THREE(X, __VA_ARGS__) X(3, __VA_ARGS__)
#define SEVEN(X, ...)            FOUR(X, __VA_ARGS__) X(4, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__)
#define EIGHT(X, ...)            SEVEN(X, __VA_ARGS__) X(7, __VA_ARGS__)
DEFINE_SCORES(scores4, float16, vload16, FOUR)
#if KT == 7
DEFINE_SCORES(scores3, float16, vload16, THREE)
DEFINE_SCORES(half_scores, float8, vload8, SEVEN)
#define LAST_SCORES scores3
#else
DEFINE_SCORES(half_scores, float8, vload8, EIGHT)
#define LAST_SCORES scores4
#endif
static inline void score_tile(const float16 *qt, const float *k, float16 *p, int d, int left,
                              __global const float *bias, const int *rows, float16 *ma, float16 *mb) {
    for (int v = 0; v < QV && v * 16 < left; v++) {
        float16 *m = v ? mb : ma;
        if (v * 16 + 8 >= left) {
            half_scores(qt + v, k, p + v, d, bias + v * 16, rows, m);
            break;
        }
        scores4(qt + v, k, p + v, d, bias + v * 16, rows, m);
        LAST_SCORES(qt + v, k + 4 * D, p + 4 * QV + v, d, bias + v * 16, rows ? rows + 4 : rows, m);
    }
}
#endif

/* o[i] = o[i] * f + sum over kn keys j of p_j v_j[i], CT channels. */
#ifdef SIMD16
static inline void weigh_values(float16 *o, int left, float16 fa, float16 fb, const float16 *p, const float *v, int kn) {
#define OPEN(i)                                                                                                        \
    float16 a##i = o[i * QV] * fa, b##i = o[i * QV + 1] * fb;
    CHANNELS(OPEN)
#undef OPEN
    for (int j = 0; j < kn; j++) {
        float16 pa = p[j * QV], pb = p[j * QV + 1];
#define STEP(i)                                                                                                        \
    {                                                                                                                  \
        float16 x = (float16)(v[j * D + i]);                                                                           \
        a##i = fma(x, pa, a##i);                                                                                       \
        b##i = fma(x, pb, b##i);                                                                                       \
    }
        CHANNELS(STEP)
#undef STEP
    }
#define CLOSE(i)                                                                                                       \
    o[i * QV] = a##i;                                                                                                  \
    o[i * QV + 1] = b##i;
    CHANNELS(CLOSE)
#undef CLOSE
}
#else
#define DEFINE_WEIGH(F, V, SOME)                                                                                       \
    NOINLINE void F(float16 *o, V f, const float16 *p, const float *v, int kn) {                                       \
        SOME(WEIGH_OPEN, V)                                                                                            \
        for (int j = 0; j < kn; j++) {                                                                                 \
            const V w = *(const V *)(p + j * QV);                                                                      \
            SOME(WEIGH_STEP, V)                                                                                        \
        }                                                                                                              \
        SOME(WEIGH_CLOSE, V)                                                                                           \
    }
#define WEIGH_OPEN(i, V)  V a##i = *(V *)(o + i * QV) * f;
#define WEIGH_STEP(i, V)  a##i = fma((V)(v[j * D + i]), w, a##i);
#define WEIGH_CLOSE(i, V) *(V *)(o + i * QV) = a##i;
DEFINE_WEIGH(weigh_four, float16, FOUR)
DEFINE_WEIGH(half_weigh, float8, EIGHT)
static inline void weigh_values(float16 *o, int left, float16 fa, float16 fb, const float16 *p, const float *v, int kn) {
    for (int g = 0; g < QV && g * 16 < left; g++) {
        const float16 f = g ? fb : fa;
        if (g * 16 + 8 >= left) {
            half_weigh(o + g, f.lo, p + g, v, kn);
            break;
        }
        for (int c = 0; c < CT; c += 4) weigh_four(o + c * QV + g, f, p + g, v + c, kn);
    }
}
#endif

/* p[j] = 2^(p[j] - m), added to sum, for kn keys. */
NOINLINE void exponentials(float16 *p, int kn, const float16 *m, float16 *sum) {
    const float16 top = *m;
    float16 even = *sum, odd = (float16)(0.0f);
    int j = 0;
    for (; j + 2 <= kn; j += 2) {
        const float16 a = exp2_negative(p[j * QV] - top), b = exp2_negative(p[j * QV + QV] - top);
        p[j * QV] = a;
        p[j * QV + QV] = b;
        even += a;
        odd += b;
    }
    if (j < kn) even += p[j * QV] = exp2_negative(p[j * QV] - top);
    *sum = even + odd;
}

/* p = 2^(p - m_new) for kn keys; ot = ot * 2^(m_old - m_new) + sum_j p_j v_j. */
static inline void accumulate(softmax_state *s, float16 *p, const float *vb, float16 ma, float16 mb, int d, int left,
                              int kn) {
    float16 f[QV];
    for (int g = 0; g < QV; g++) {
        const float16 m = g ? mb : ma;
        f[g] = exp2_negative(s->m[g] - m);
        s->sum[g] *= f[g];
        s->m[g] = m;
        if (g * 16 < left) exponentials(p + g, kn, s->m + g, s->sum + g);
    }
    for (int c = 0; c < d; c += CT) weigh_values(s->ot + c * QV, left, f[0], f[QV - 1], p, vb + c, kn);
}

/* `dim` values from x + at to dst, zeros up to d; dim is a multiple of 4. */
static inline void copy_row(float16 *dst, __global const T *x, int at, int dim, int d) {
    int c = 0;
    for (; c + 16 <= dim; c += 16) *dst++ = LOAD16(x, at + c);
    float *rest = (float *)dst - c;
#pragma clang loop vectorize(disable) unroll(disable)
    for (; c < dim; c++) rest[c] = LOAD(x, at + c);
#pragma clang loop vectorize(disable) unroll(disable)
    for (; c < d; c++) rest[c] = 0.0f;
}

/* `rows` rows of x, `ld` elements apart, to rows of D. */
static inline void copy_rows(float16 *dst, __global const T *x, int at, int ld, int dim, int d, int rows) {
    if (dim == 16) /* what a row costs besides its vector is more than the vector */
        for (int j = 0; j < rows; j++) dst[j * (D / 16)] = LOAD16(x, at + j * ld);
    else if (dim == 32)
        for (int j = 0; j < rows; j++) {
            dst[j * (D / 16)] = LOAD16(x, at + j * ld);
            dst[j * (D / 16) + 1] = LOAD16(x, at + j * ld + 16);
        }
    else
        for (int j = 0; j < rows; j++) copy_row(dst + j * (D / 16), x, at + j * ld, dim, d);
}

#ifndef TOKENS
/* The results of queries [q0, q0 + QV * 16) of item n in heads [h, past); the arguments are the kernel's. */
static inline void attend(__global T *out, __global const T *q, __global const T *k, __global const T *v, int q_first,
                          int k_first, int n, int q0, int h, int past, int4 lds, int4 firsts, int4 sizes, float scale) {
    const int nq = sizes.x, nk = sizes.y, dim = sizes.z, d = (dim + CT - 1) / CT * CT, qn = min(QV * 16, nq - q0);
    float16 qt[D * QV], p[(KB + KT) * QV];
    float16 kb[KB * D / 16], vb[KB * D / 16];
    softmax_state s;
    for (; h < past; h++) {
        for (int g = 0; g < QV; g++) {
            int at[16];
            for (int i = 0; i < 16; i++)
                at[i] = (q_first + q0 + min(g * 16 + i, qn - 1)) * lds.x + firsts.x + h * dim;
            int c = 0;
            for (; c + 16 <= dim; c += 16) load_queries(q, at, 16, c, scale, qt + c * QV + g);
            for (; c < d; c++)
                for (int i = 0; i < 16; i++)
                    ((float *)(qt + c * QV + g))[i] = c < dim ? scale * (float)LOAD(q, at[i] + c) : 0.0f;
        }
        softmax_begin(&s, d);
        for (int k0 = 0; k0 < nk; k0 += KB) {
            const int kn = min(KB, nk - k0);
            copy_rows(kb, k, (k_first + k0) * lds.y + firsts.y + h * dim, lds.y, dim, d, kn);
            copy_rows(vb, v, (k_first + k0) * lds.z + firsts.z + h * dim, lds.z, dim, d, kn);
            for (int j = kn; j % KT; j++) /* the last key again: the maximum stays, the copies are not summed */
                for (int c = 0; c < D / 16; c++) kb[j * (D / 16) + c] = kb[(kn - 1) * (D / 16) + c];
            float16 ma = s.m[0], mb = s.m[QV - 1];
            for (int j = 0; j < kn; j += KT)
                score_tile(qt, (const float *)kb + j * D, p + j * QV, d, QV * 16, 0, 0, &ma, &mb);
            accumulate(&s, p, (const float *)vb, ma, mb, d, QV * 16, kn);
        }
        for (int g = 0; g < QV; g++) {
            int at[16];
            float16 inv = 1.0f / s.sum[g];
            for (int i = 0; i < 16; i++)
                at[i] = g * 16 + i < qn ? (n * nq + q0 + g * 16 + i) * lds.w + firsts.w + h * dim : -1;
            int c = 0;
            for (; c + 16 <= dim; c += 16) store_results(out, at, 16, c, inv, s.ot + c * QV + g);
            for (; c < dim; c++) {
                float16 r = s.ot[c * QV + g] * inv;
                for (int i = 0; i < 16; i++)
                    if (at[i] >= 0) STORE(((float *)&r)[i], out, at[i] + c);
            }
        }
    }
}

/* Attention between token sequences. An item of work: QV * 16 queries, some heads, one of n sequences. lds {q, k, v,
 * out} and firsts: elements per token and first channel; sizes {nq, nk, d, heads}; more {q has a map, k and v have a
 * map, heads of an item, backwards?}. Grid: x = compute units, which share out the items by `queue` (see prelude). */
NOINLINE void attention_group(__global T *out, __global const T *q, __global const T *k, __global const T *v,
                              __global const int *q_map, __global const int *kv_map, __global const int *limit,
                              int4 lds, int4 firsts, int4 sizes, int4 more, float scale, int n, __global int *queue,
                              const int4 group) {
    const int tiles = (sizes.x + QV * 16 - 1) / (QV * 16), parts = (sizes.w + more.z - 1) / more.z;
    work_t work = work_begin(group.w, min(n, *limit) * parts * tiles, more.w);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        const int tile = item % tiles, part = item / tiles % parts, i = item / tiles / parts;
        attend(out, q, k, v, (more.x ? q_map[i] : i) * sizes.x, (more.y ? kv_map[i] : i) * sizes.y, i, tile * QV * 16,
               part * more.z, min(sizes.w, (part + 1) * more.z), lds, firsts, sizes, scale * 1.44269504f);
    }
    work_end(&work, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
attention(__global T *out, __global const T *q, __global const T *k, __global const T *v, __global const int *q_map,
          __global const int *kv_map, __global const int *limit, int4 lds, int4 firsts, int4 sizes, int4 more,
          float scale, int n, __global int *queue) {
    attention_group(out, q, k, v, q_map, kv_map, limit, lds, firsts, sizes, more, scale, n, queue, THIS_GROUP);
}

#else
/* Window attention, -D TOKENS: most tokens of a window. Group (x, y, z): window x, heads [y * per, ..), item z. Only
 * tokens inside the map are read; the others share the key and value of `pad`, so that their part of the softmax is a
 * sum of weights. bias [head][block][key][32]: log2(e) times the bias of each key and the block's queries, in the lanes'
 * order. size {height, width, windows per row, ws}; places {ld and c0 of qkv, ld and c0 of out};
 * heads {all, per group}. */
#define ROOM ((TOKENS + 31) / 32 * 32)

/* The window's side; lines and columns of it inside the map. */
typedef struct window_t {
    int side, rows, cols;
} window_t;

/* Scores of the padding keys: m, sum and ot of the softmax over them alone. */
static inline void pad_keys(softmax_state *s, const float16 *qt, __global const float *pad, __global const float *bias,
                            const window_t *w) {
    for (int g = 0; g < QV; g++) {
        float16 score = (float16)(0.0f), m = (float16)(LOWEST), sum = (float16)(0.0f);
        for (int c = 0; c < D; c++) score = fma((float16)(pad[D + c]), qt[c * QV + g], score);
        for (int j = 0, y = 0; y < w->side; y++)
            for (int x = 0; x < w->side; x++, j++)
                if (y >= w->rows || x >= w->cols) m = larger(m, vload16(g, bias + j * 32));
        for (int j = 0, y = 0; y < w->side; y++)
            for (int x = 0; x < w->side; x++, j++)
                if (y >= w->rows || x >= w->cols)
                    sum += exp2_negative(vload16(g, bias + j * 32) - m);
        s->m[g] = score + m;
        s->sum[g] = sum;
        for (int c = 0; c < D; c++) s->ot[c * QV + g] = sum * (float16)(pad[2 * D + c]);
    }
}

/* A window's keys or values of one head: `count` rows, and copies of the last for whole tiles. */
static inline void gather(float16 *dst, __global const T *qkv, const int *from, int channel, int count) {
    for (int r = 0; r < count; r++)
        for (int c = 0; c < D / 16; c++) dst[r * (D / 16) + c] = LOAD16(qkv, from[r] + channel + c * 16);
    for (int r = count; r % KT; r++)
        for (int c = 0; c < D / 16; c++) dst[r * (D / 16) + c] = dst[(count - 1) * (D / 16) + c];
}

NOINLINE void window_group(__global T *out, __global const T *qkv, __global const float *pad,
                           __global const float *bias, __global const int *limit, int4 size, int4 places, int4 heads,
                           float scale, const int4 group) {
    int n = group.z;
    if (n >= *limit) return;
    const int side = size.w, tokens = side * side, padded = (tokens + 31) / 32 * 32;
    const int x0 = group.x % size.z * side, y0 = group.x / size.z * side;
    const int rows = min(side, size.x - y0), cols = min(side, size.y - x0), count = rows * cols;
    const int each = 32 * KT / padded + 1; /* tokens to ask for per tile of keys, so that all are by the end */
    const window_t w = {side, rows, cols};
    const int first = (n * size.x + y0) * size.y + x0; /* token of the window's corner */
    float16 kb[(TOKENS + KT) * D / 16], vb[(TOKENS + KT) * D / 16], qt[D * QV], p[(KB + KT) * QV];
    int key_from[TOKENS + KT], key_bias[TOKENS + KT]; /* keys inside the map: where they are read, their bias row */
    int from[ROOM], to[ROOM];                         /* queries: read (outside the map the nearest one's), written */
    softmax_state s;

    for (int i = 0, y = 0, x = 0; i < padded; i++, x++) {
        if (x == side) x = 0, y++;
        const int token = first + min(y, rows - 1) * size.y + min(x, cols - 1);
        from[i] = token * places.x + places.y;
        to[i] = y < rows && x < cols ? token * places.z + places.w : -1;
    }
    int r = 0;
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < cols; x++, r++) {
            key_from[r] = from[y * side + x];
            key_bias[r] = (y * side + x) * 32;
        }
    for (; r % KT; r++) key_bias[r] = key_bias[count - 1];

    const int h_end = min(heads.x, (int)(group.y + 1) * heads.y);
    for (int h = group.y * heads.y; h < h_end; h++) {
        /* What is needed next: the same tokens' next head, or the first head of the window on the right. */
        const int step = h + 1 < h_end ? 3 * D : side * places.x - (h - group.y * heads.y) * 3 * D;
        int ahead = 0;
        __global const float *table = bias + h * tokens * padded;
        gather(kb, qkv, key_from, h * 3 * D + D, count);
        gather(vb, qkv, key_from, h * 3 * D + 2 * D, count);
        for (int q0 = 0; q0 < rows * side; q0 += 16 * QV, table += tokens * 32) {
            const int left = rows * side - q0;
            for (int g = 0; g < QV; g++)
                for (int c = 0; c < D; c += 16)
                    load_queries(qkv, from + q0 + g * 16, left - g * 16, h * 3 * D + c, scale * 1.44269504f,
                                 qt + c * QV + g);
            if (count < tokens) pad_keys(&s, qt, pad + h * 3 * D, table, &w);
            else softmax_begin(&s, D);
            for (int k0 = 0; k0 < count; k0 += KB) {
                const int kn = min(KB, count - k0);
                float16 ma = s.m[0], mb = s.m[QV - 1];
                for (int j = 0; j < kn; j += KT) {
                    for (int past = min(ahead + each, tokens); ahead < past; ahead++)
                        for (int c = 0; c < 3 * D; c += 64 / sizeof(T))
                            PREFETCH(qkv + from[ahead] + h * 3 * D + step + c);
                    score_tile(qt, (const float *)kb + (k0 + j) * D, p + j * QV, D, left, table, key_bias + k0 + j,
                               &ma, &mb);
                }
                accumulate(&s, p, (const float *)vb + k0 * D, ma, mb, D, left, kn);
            }
            for (int g = 0; g < QV; g++) {
                float16 inv = 1.0f / s.sum[g];
                for (int c = 0; c < D; c += 16)
                    store_results(out, to + q0 + g * 16, left - g * 16, h * D + c, inv, s.ot + c * QV + g);
            }
        }
    }
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
window(__global T *out, __global const T *qkv, __global const float *pad, __global const float *bias,
       __global const int *limit, int4 size, int4 places, int4 heads, float scale) {
    window_group(out, qkv, pad, bias, limit, size, places, heads, scale, THIS_GROUP);
}
#endif
