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
#ifndef KT
#define KT 8 /* keys per register tile; 7 with SIMD16 only */
#endif
#define KB 64 /* keys per block, a multiple of KT */
#define QV 2 /* vectors of 16 queries per group */
#define CT 8 /* channels per register tile of the second product */
#define SEVEN_KEYS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6)
#if KT == 7
#define KEYS(X) SEVEN_KEYS(X)
#else
#define KEYS(X) SEVEN_KEYS(X) X(7)
#endif
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

/* What scores start at: with -D RELATIVE the sum of a bias for each key's column and one for the keys' line. */
#ifdef RELATIVE
#define BIASES          , const float16 *column, const float16 *line
#define BIASES_FROM(j, g) , column + (j) * QV + (g), line + (g)
#define FIRST_SCORE(i, g) (column[(i) * QV + (g)] + line[g])
#else
#define BIASES
#define BIASES_FROM(j, g)
#define FIRST_SCORE(i, g) ((float16)(0.0f))
#endif

/* p[j] = q . k_j for KT keys; ma, mb become the maxima. */
#ifdef SIMD16
static inline void score_tile(const float16 *qt, const float *k, float16 *p, int d, float16 *ma, float16 *mb BIASES) {
#define OPEN(i) float16 a##i = FIRST_SCORE(i, 0), b##i = FIRST_SCORE(i, 1);
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
NOINLINE void scores4(const float16 *qt, const float *k, float16 *p, int d, float16 *top BIASES) {
    float16 m = *top;
#define OPEN(i) float16 a##i = FIRST_SCORE(i, 0);
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
static inline void score_tile(const float16 *qt, const float *k, float16 *p, int d, float16 *ma, float16 *mb BIASES) {
    for (int v = 0; v < QV; v++)
        for (int j = 0; j < KT; j += 4) scores4(qt + v, k + j * D, p + j * QV + v, d, v ? mb : ma BIASES_FROM(j, v));
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

/* qt: lane j of vector g = scale * row at[g * 16 + j] of q, zeros from `dim` to d. */
static inline void load_tile(float16 *qt, __global const T *q, const int *at, float scale, int dim, int d) {
    for (int g = 0; g < QV; g++, at += 16) {
        int c = 0;
        for (; c + 16 <= dim; c += 16) load_queries(q + c, at, 16, scale, qt + c * QV + g, QV);
        for (; c < d; c++)
            for (int j = 0; j < 16; j++)
                ((float *)(qt + c * QV + g))[j] = c < dim ? scale * (float)LOAD(q, at[j] + c) : 0.0f;
    }
}

/* Row at[g * 16 + j] of out = results of lane j of vector g, where that is not negative. */
static inline void store_tile(__global T *out, const int *at, const softmax_state *s, int dim) {
    for (int g = 0; g < QV; g++, at += 16) {
        float16 inv = 1.0f / s->sum[g];
        int c = 0;
        for (; c + 16 <= dim; c += 16) store_results(out, at, c, inv, s->ot + c * QV + g);
        for (; c < dim; c++) {
            float16 r = s->ot[c * QV + g] * inv;
            for (int j = 0; j < 16; j++)
                if (at[j] >= 0) STORE(((float *)&r)[j], out, at[j] + c);
        }
    }
}

#ifndef RELATIVE
/* The results of queries [q0, q1) of item n in heads [h, past), of nk keys; the arguments are the kernel's. */
static inline void attend(__global T *out, __global const T *q, __global const T *k, __global const T *v, int q_first,
                          int k_first, int nk, int n, int q0, int q1, int h, int past, const cpu_attention_args arg) {
    const attention_args common = arg.common;
    const int nq = common.queries, dim = arg.dim, d = (dim + CT - 1) / CT * CT;
    const float scale = common.scale * 1.44269504f;
    float16 qt[TURNS][D * QV], p[(KB + KT) * QV];
    float16 kb[KB * D / 16], vb[KB * D / 16];
    softmax_state s[TURNS];
    for (; h < past; h++) {
        for (int i = q0, turn = 0; i < q1; i += QV * 16, turn++) {
            int at[QV * 16];
            for (int j = 0; j < QV * 16; j++)
                at[j] = (q_first + min(i + j, q1 - 1)) * common.q_ld + common.q_c0 + h * dim;
            load_tile(qt[turn], q, at, scale, dim, d);
            softmax_begin(s + turn, d);
        }
        for (int k0 = 0; k0 < nk; k0 += KB) {
            const int kn = min(KB, nk - k0);
            copy_rows(kb, k, (k_first + k0) * common.k_ld + common.k_c0 + h * dim, common.k_ld, dim, d, kn);
            copy_rows(vb, v, (k_first + k0) * common.v_ld + common.v_c0 + h * dim, common.v_ld, dim, d, kn);
            for (int j = kn; j % KT; j++) /* the last key again: the maximum stays, the copies are not summed */
                for (int c = 0; c < D / 16; c++) kb[j * (D / 16) + c] = kb[(kn - 1) * (D / 16) + c];
            for (int i = q0, turn = 0; i < q1; i += QV * 16, turn++) {
                float16 ma = s[turn].m[0], mb = s[turn].m[QV - 1];
                for (int j = 0; j < kn; j += KT)
                    score_tile(qt[turn], (const float *)kb + j * D, p + j * QV, d, &ma, &mb);
                accumulate(s + turn, p, (const float *)vb, ma, mb, d, kn);
            }
        }
        for (int i = q0, turn = 0; i < q1; i += QV * 16, turn++) {
            int at[QV * 16];
            for (int j = 0; j < QV * 16; j++)
                at[j] = i + j < q1 ? (n * nq + i + j) * common.out_ld + common.out_c0 + h * dim : -1;
            store_tile(out, at, s + turn, dim);
        }
    }
}

/* Attention between token sequences. An item of work: some queries, some heads, one of the sequences. Grid: x =
 * compute units, which share out the items by `queue` (see prelude). */
NOINLINE void attention_group(__global T *out, __global const T *q, __global const T *k, __global const T *v,
                              __global const int *q_map, __global const int *kv_map, __global const int *limit,
                              __global const int *k_count, const cpu_attention_args arg, __global int *queue,
                              const int4 group) {
    const int nq = arg.common.queries, nk = arg.common.keys, some = arg.tile_queries, tiles = (nq + some - 1) / some;
    const int heads = arg.heads, together = arg.tile_heads, parts = (heads + together - 1) / together;
    work_t work = work_begin(group.w, min(arg.items, *limit) * parts * tiles, arg.backwards);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        const int tile = item % tiles, part = item / tiles % parts, i = item / tiles / parts;
        attend(out, q, k, v, (arg.common.mapped_q ? q_map[i] : i) * nq, (arg.common.mapped_kv ? kv_map[i] : i) * nk,
               arg.common.counted ? k_count[i] : nk, i,
               tile * some, min(nq, (tile + 1) * some), part * together, min(heads, (part + 1) * together), arg);
    }
    work_end(&work, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
attention(__global T *out, __global const T *q, __global const T *k, __global const T *v, __global const int *q_map,
          __global const int *kv_map, __global const int *limit, __global const int *k_count, cpu_attention_args arg,
          __global int *queue) {
    attention_group(out, q, k, v, q_map, kv_map, limit, k_count, arg, queue, THIS_GROUP);
}
#else /* RELATIVE: windows of WH x WW tokens, at most 64 either way, with decomposed relative positions */
#define LINE  ((WW + KT - 1) / KT * KT) /* keys of a line, with those that make it whole tiles */
#define LINES (KB / LINE)               /* of a block of keys */

/* bias[u] = what a key at u gives every query, inverse * q . rel[position - u + side - 1], u < side, where position[j]
 * is that of query j, of `count`. A row of rel meets all queries at once, and each takes what is its own. A function of
 * its own, since inlined, with a side of 3, Intel's compiler (2026.22.10) gets two of three columns wrong. */
NOINLINE void position_scores(float16 *bias, const float16 *qt, __global const float *rel, const int *position,
                                   int count, int side, int dim, float inverse) {
    int lo = position[0], hi = lo;
    for (int j = 1; j < count; j++) lo = min(lo, position[j]), hi = max(hi, position[j]);
    const int past = hi + side;
    for (int r = lo; r < past; r += 4) {
        __global const float *r0 = rel + r * dim, *r1 = rel + min(r + 1, past - 1) * dim;
        __global const float *r2 = rel + min(r + 2, past - 1) * dim, *r3 = rel + min(r + 3, past - 1) * dim;
        float16 sums[4][QV];
        for (int g = 0; g < QV; g++) {
            float16 a0 = (float16)(0.0f), a1 = a0, a2 = a0, a3 = a0;
            for (int c = 0; c < dim; c++) {
                const float16 q = qt[c * QV + g];
                a0 = fma((float16)(r0[c]), q, a0);
                a1 = fma((float16)(r1[c]), q, a1);
                a2 = fma((float16)(r2[c]), q, a2);
                a3 = fma((float16)(r3[c]), q, a3);
            }
            sums[0][g] = a0 * inverse, sums[1][g] = a1 * inverse;
            sums[2][g] = a2 * inverse, sums[3][g] = a3 * inverse;
        }
        for (int k = 0; k < 4 && r + k < past; k++)
            for (int j = 0; j < count; j++) {
                const int u = position[j] + side - 1 - r - k;
                if (u >= 0 && u < side) ((float *)(bias + u * QV))[j] = ((const float *)sums[k])[j];
            }
    }
}

/* Queries of a window, and what they know of their keys' positions. */
typedef struct position_state {
    float16 line[WH * QV], column[LINE * QV];
} position_state;

static inline void positions_begin(position_state *s, const float16 *qt, __global const float *rel_h,
                                   __global const float *rel_w, int first, int cols, int dim, float inverse) {
    int y[QV * 16], x[QV * 16];
    for (int j = 0; j < QV * 16; j++) y[j] = min((first + j) / cols, WH - 1), x[j] = (first + j) % cols;
    position_scores(s->line, qt, rel_h, y, QV * 16, WH, dim, inverse);
    position_scores(s->column, qt, rel_w, x, QV * 16, WW, dim, inverse);
    for (int i = WW * QV; i < LINE * QV; i++) s->column[i] = (float16)(LOWEST);
}

/* Keys and values of lines [v0, v1) of the window at (y0, x0), of token rows of `ld`; outside the map those of `pad`.
 * `at` is where channel 0 of the head's keys is in a token, C more for values. */
static inline void copy_lines(float16 *kb, float16 *vb, __global const T *qkv, __global const T *pad, int first,
                              const relative_args common, int at, int y0, int x0, int v0, int v1, int dim, int d) {
    for (int v = v0; v < v1; v++)
        for (int u = 0; u < LINE; u++, kb += D / 16, vb += D / 16) {
            if (u >= WW) {
                for (int c = 0; c < D / 16; c++) kb[c] = vb[c] = (float16)(0.0f);
            } else if (y0 + v < common.h && x0 + u < common.w) {
                const int token = first + ((y0 + v) * common.w + x0 + u) * common.qkv_ld;
                copy_row(kb, qkv, token + at, dim, d);
                copy_row(vb, qkv, token + at + common.c, dim, d);
            } else {
                copy_row(kb, pad, at, dim, d);
                copy_row(vb, pad, at + common.c, dim, d);
            }
        }
}

/* The results of queries [q0, q1) of those of the window at (y0, x0) that lie inside the map, `cols` in a line. */
static inline void attend_window(__global T *out, __global const T *qkv, __global const float *rel_h,
                                 __global const float *rel_w, __global const T *pad, int n, int h, int y0, int x0,
                                 int q0, int q1, int cols, const relative_args common, int dim) {
    const int d = (dim + CT - 1) / CT * CT, first = n * common.h * common.w;
    const float scale = common.scale, factor = scale * 1.44269504f;
    float16 qt[TURNS][D * QV], p[(KB + KT) * QV];
    float16 kb[KB * D / 16], vb[KB * D / 16];
    softmax_state s[TURNS];
    position_state b[TURNS];
    for (int i = q0, turn = 0; i < q1; i += QV * 16, turn++) {
        int at[QV * 16];
        for (int j = 0; j < QV * 16; j++) {
            const int query = min(i + j, q1 - 1);
            const int token = first + (y0 + query / cols) * common.w + x0 + query % cols;
            at[j] = token * common.qkv_ld + common.qkv_c0 + h * dim;
        }
        load_tile(qt[turn], qkv, at, factor, dim, d);
        positions_begin(b + turn, qt[turn], rel_h, rel_w, i, cols, dim, 1.0f / scale);
        softmax_begin(s + turn, d);
    }
    for (int v0 = 0; v0 < WH; v0 += LINES) {
        const int lines = min(LINES, WH - v0);
        copy_lines(kb, vb, qkv + common.qkv_c0, pad, first * common.qkv_ld, common, common.c + h * dim, y0, x0,
                   v0, v0 + lines, dim, d);
        for (int i = q0, turn = 0; i < q1; i += QV * 16, turn++) {
            float16 ma = s[turn].m[0], mb = s[turn].m[QV - 1];
            for (int j = 0; j < lines * LINE; j += KT)
                score_tile(qt[turn], (const float *)kb + j * D, p + j * QV, d, &ma, &mb, b[turn].column + j % LINE * QV,
                           b[turn].line + (v0 + j / LINE) * QV);
            accumulate(s + turn, p, (const float *)vb, ma, mb, d, lines * LINE);
        }
    }
    for (int i = q0, turn = 0; i < q1; i += QV * 16, turn++) {
        int at[QV * 16];
        for (int j = 0; j < QV * 16; j++) {
            const int query = min(i + j, q1 - 1);
            const int token = first + (y0 + query / cols) * common.w + x0 + query % cols;
            at[j] = i + j < q1 ? token * common.out_ld + common.out_c0 + h * dim : -1;
        }
        store_tile(out, at, s + turn, dim);
    }
}

/* An item of work: some queries of a window, a head, one of the maps. Grid as attention's. */
NOINLINE void relative_group(__global T *out, __global const T *qkv, __global const float *rel_h,
                             __global const float *rel_w, __global const T *pad, __global const int *limit,
                             const cpu_relative_args arg, __global int *queue, const int4 group) {
    const int some = TURNS * QV * 16, parts = (WH * WW + some - 1) / some, heads = arg.heads;
    const int windows = arg.per_map, across = arg.common.across;
    work_t work = work_begin(group.w, min(arg.items, *limit) * windows * heads * parts, arg.backwards);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        const int q0 = item % parts * some, h = item / parts % heads, w = item / parts / heads % windows;
        const int y0 = w / across * WH, x0 = w % across * WW, cols = min(WW, arg.common.w - x0);
        const int q1 = min(q0 + some, min(WH, arg.common.h - y0) * cols);
        if (q0 < q1)
            attend_window(out, qkv, rel_h, rel_w, pad, item / parts / heads / windows, h, y0, x0, q0, q1, cols,
                          arg.common, arg.dim);
    }
    work_end(&work, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
relative(__global T *out, __global const T *qkv, __global const float *rel_h, __global const float *rel_w,
         __global const T *pad, __global const int *limit, cpu_relative_args arg, __global int *queue) {
    relative_group(out, qkv, rel_h, rel_w, pad, limit, arg, queue, THIS_GROUP);
}
#endif
