/* Attention for CPUs: one work-item per group, lanes are queries.
 *
 *     out[i] = sum_j softmax_j(scale * q_i . k_j) v_j          per head
 *
 * A group holds QV vectors of 16 queries as columns, q^T [c][QV * 16], and walks over the keys in blocks of KB that it
 * first copies to a dense scratch. Scores of KT keys x QV vectors are accumulated in registers with the key broadcast,
 * so that maximum, exponential and sum of the softmax run down the lanes and nothing is ever summed across a vector.
 * The block's weighted values are added to out^T [c][QV * 16] after scaling it to the new maximum (online softmax,
 * Milakov & Gimelshein, arXiv 1805.02867). Scratch is private memory: it stays in the first two cache levels.
 * Needs cpu/tile and cpu/attention_parts. */
#ifndef D
#define D 32 /* largest head dimension served, a multiple of 16 */
#endif
#define KT 8 /* keys per register tile */
#define KB 64 /* keys per block, a multiple of KT */
#define QV 2 /* vectors of 16 queries per group */
#define CT 8 /* channels per register tile of the second product */
#define KEYS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define CHANNELS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

/* ---- results: 16 tokens by 16 channels at a time ---- */

/* out[at[i] + c] = lane i of ot[0] * inv and the 15 channels after it, where at[i] is not negative. */
#ifdef SIMD16
NOINLINE void store_results(__global T *out, const int *at, int c, float16 inv, const float16 *ot) {
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
NOINLINE void store_results(__global T *out, const int *at, int c, float16 inv, const float16 *ot) {
    for (int part = 0; part < 2; part++, at += 8)
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

/* p[j] = q . k_j for KT keys; ma, mb become the maxima. */
#ifdef SIMD16
static inline void score_tile(const float16 *qt, const float *k, float16 *p, int d, float16 *ma, float16 *mb) {
#define OPEN(i) float16 a##i = (float16)(0.0f), b##i = a##i;
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
#else /* 8 registers of 8 floats: a vector of queries and four keys at a time */
#define FOUR(X) X(0) X(1) X(2) X(3)
NOINLINE void scores4(const float16 *qt, const float *k, float16 *p, int d, float16 *top) {
    float16 m = *top;
#define OPEN(i) float16 a##i = (float16)(0.0f);
    FOUR(OPEN)
#undef OPEN
    for (int c = 0; c < d; c++) {
        const float16 q = qt[c * QV];
#define STEP(i) a##i = fma((float16)(k[i * D + c]), q, a##i);
        FOUR(STEP)
#undef STEP
    }
#define CLOSE(i) p[i * QV] = a##i, m = larger(m, a##i);
    FOUR(CLOSE)
#undef CLOSE
    *top = m;
}
static inline void score_tile(const float16 *qt, const float *k, float16 *p, int d, float16 *ma, float16 *mb) {
    for (int v = 0; v < QV; v++)
        for (int j = 0; j < KT; j += 4) scores4(qt + v, k + j * D, p + j * QV + v, d, v ? mb : ma);
}
#endif

/* o[i] = o[i] * f + sum over kn keys j of p_j v_j[i], CT channels. */
#ifdef SIMD16
static inline void weigh_values(float16 *o, float16 fa, float16 fb, const float16 *p, const float *v, int kn) {
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
NOINLINE void weigh_four(float16 *o, float16 f, const float16 *p, const float *v, int kn) {
#define OPEN(i) float16 a##i = o[i * QV] * f;
    FOUR(OPEN)
#undef OPEN
    for (int j = 0; j < kn; j++) {
        const float16 w = p[j * QV];
#define STEP(i) a##i = fma((float16)(v[j * D + i]), w, a##i);
        FOUR(STEP)
#undef STEP
    }
#define CLOSE(i) o[i * QV] = a##i;
    FOUR(CLOSE)
#undef CLOSE
}
static inline void weigh_values(float16 *o, float16 fa, float16 fb, const float16 *p, const float *v, int kn) {
    for (int g = 0; g < QV; g++)
        for (int c = 0; c < CT; c += 4) weigh_four(o + c * QV + g, g ? fb : fa, p + g, v + c, kn);
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
static inline void accumulate(softmax_state *s, float16 *p, const float *vb, float16 ma, float16 mb, int d,
                              int kn) {
    float16 f[QV];
    for (int g = 0; g < QV; g++) {
        const float16 m = g ? mb : ma;
        f[g] = exp2_negative(s->m[g] - m);
        s->sum[g] *= f[g];
        s->m[g] = m;
        exponentials(p + g, kn, s->m + g, s->sum + g);
    }
    for (int c = 0; c < d; c += CT) weigh_values(s->ot + c * QV, f[0], f[QV - 1], p, vb + c, kn);
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

#define TURNS 2 /* tiles of QV * 16 queries that see the same copies of keys and values, at most */

/* The results of queries [q0, q1) of item n in heads [h, past); the arguments are the kernel's. */
static inline void attend(__global T *out, __global const T *q, __global const T *k, __global const T *v, int q_first,
                          int k_first, int n, int q0, int q1, int h, int past, int4 lds, int4 firsts, int4 sizes,
                          float scale) {
    const int nq = sizes.x, nk = sizes.y, dim = sizes.z, d = (dim + CT - 1) / CT * CT;
    float16 qt[TURNS][D * QV], p[(KB + KT) * QV];
    float16 kb[KB * D / 16], vb[KB * D / 16];
    softmax_state s[TURNS];
    for (; h < past; h++) {
        for (int i = q0, turn = 0; i < q1; i += QV * 16, turn++) {
            for (int g = 0; g < QV; g++) {
                int at[16];
                for (int j = 0; j < 16; j++)
                    at[j] = (q_first + min(i + g * 16 + j, q1 - 1)) * lds.x + firsts.x + h * dim;
                int c = 0;
                for (; c + 16 <= dim; c += 16) load_queries(q + c, at, 16, scale, qt[turn] + c * QV + g, QV);
                for (; c < d; c++)
                    for (int j = 0; j < 16; j++)
                        ((float *)(qt[turn] + c * QV + g))[j] = c < dim ? scale * (float)LOAD(q, at[j] + c) : 0.0f;
            }
            softmax_begin(s + turn, d);
        }
        for (int k0 = 0; k0 < nk; k0 += KB) {
            const int kn = min(KB, nk - k0);
            copy_rows(kb, k, (k_first + k0) * lds.y + firsts.y + h * dim, lds.y, dim, d, kn);
            copy_rows(vb, v, (k_first + k0) * lds.z + firsts.z + h * dim, lds.z, dim, d, kn);
            for (int j = kn; j % KT; j++) /* the last key again: the maximum stays, the copies are not summed */
                for (int c = 0; c < D / 16; c++) kb[j * (D / 16) + c] = kb[(kn - 1) * (D / 16) + c];
            for (int i = q0, turn = 0; i < q1; i += QV * 16, turn++) {
                float16 ma = s[turn].m[0], mb = s[turn].m[QV - 1];
                for (int j = 0; j < kn; j += KT)
                    score_tile(qt[turn], (const float *)kb + j * D, p + j * QV, d, &ma, &mb);
                accumulate(s + turn, p, (const float *)vb, ma, mb, d, kn);
            }
        }
        for (int i = q0, turn = 0; i < q1; i += QV * 16, turn++)
            for (int g = 0; g < QV; g++) {
                int at[16];
                float16 inv = 1.0f / s[turn].sum[g];
                for (int j = 0; j < 16; j++) {
                    const int query = i + g * 16 + j;
                    at[j] = query < q1 ? (n * nq + query) * lds.w + firsts.w + h * dim : -1;
                }
                int c = 0;
                for (; c + 16 <= dim; c += 16) store_results(out, at, c, inv, s[turn].ot + c * QV + g);
                for (; c < dim; c++) {
                    float16 r = s[turn].ot[c * QV + g] * inv;
                    for (int j = 0; j < 16; j++)
                        if (at[j] >= 0) STORE(((float *)&r)[j], out, at[j] + c);
                }
            }
    }
}

/* Attention between token sequences. An item of work: some queries, some heads, one of n sequences. lds {q, k, v, out}
 * and firsts: elements per token and first channel; sizes {nq, nk, d, heads}; more {q has a map, k and v have a map,
 * heads of an item, queries of it, negative: backwards}. Grid: x = compute units, which share out the items by `queue`
 * (see prelude). */
NOINLINE void attention_group(__global T *out, __global const T *q, __global const T *k, __global const T *v,
                              __global const int *q_map, __global const int *kv_map, __global const int *limit,
                              int4 lds, int4 firsts, int4 sizes, int4 more, float scale, int n, __global int *queue,
                              const int4 group) {
    const int some = abs(more.w), tiles = (sizes.x + some - 1) / some, parts = (sizes.w + more.z - 1) / more.z;
    work_t work = work_begin(group.w, min(n, *limit) * parts * tiles, more.w < 0);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        const int tile = item % tiles, part = item / tiles % parts, i = item / tiles / parts;
        attend(out, q, k, v, (more.x ? q_map[i] : i) * sizes.x, (more.y ? kv_map[i] : i) * sizes.y, i, tile * some,
               min(sizes.x, (tile + 1) * some), part * more.z, min(sizes.w, (part + 1) * more.z), lds, firsts, sizes,
               scale * 1.44269504f);
    }
    work_end(&work, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
attention(__global T *out, __global const T *q, __global const T *k, __global const T *v, __global const int *q_map,
          __global const int *kv_map, __global const int *limit, int4 lds, int4 firsts, int4 sizes, int4 more,
          float scale, int n, __global int *queue) {
    attention_group(out, q, k, v, q_map, kv_map, limit, lds, firsts, sizes, more, scale, n, queue, THIS_GROUP);
}

