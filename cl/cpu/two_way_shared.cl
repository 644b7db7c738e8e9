/* Many prompts on one image (variants/cpu/shared_prompts.h), for CPUs: one work-item per group, needs cpu/tile,
 * cpu/two_way_columns, cpu/prompt_products.
 *
 * What an image row is to a prompt is linear in what all prompts see, x, and in the weights a of the tokens in the
 * updates so far, but for a factor per norm. With x' = x without its mean over the channels, V the projected values of
 * the tokens and E their output projection, both without mean,
 *
 *     y1 = x' + E1 (V1 a1),  f1 = 1 / |y1|,  z1 = f1 y1 gamma1 + beta1,
 *     y2 = z1' + E2 (V2 a2),  f2 = 1 / |y2|,  z2 = f2 y2 gamma2 + beta2.
 *
 * So a projection of z is a sum of projections of x, which prompts share, and of products of a with a matrix that each
 * prompt has (`relate`), and so are the lengths: nothing that a prompt does here has the image's channels. Weights are
 * relative to the last token: its columns have weight one.
 *
 * Projected rows have channel i of head h at i * 8 + h. Matrices of a prompt are slots: rows are the `depth` columns of
 * other tokens, and behind them the sum over the last token's columns and over what is constant.
 * -D K: channels of the image, a multiple of 64; those of cpu/two_way_columns, BLOCKS = 1. */
#define TRACE      64 /* floats of a noted update: weights, factor in the last */
#define D_MAX      32 /* channels of a head */
#define TO_ADD     16 /* floats behind the columns of a form: the first is of the right side's constant */
#define GLOBAL(p)  ((__global const float *)(size_t)(p)) /* a CPU has one address space */
#define PRIVATE(p) ((const float *)(size_t)(p))

/* One group: way 1 for prompts that have more than `most` on their image, themselves among them; images: number of the
 * last image of such prompts + 1. */
__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
image_ways(__global int *restrict ways, __global int *restrict images, __global const int *restrict map,
           __global const int *restrict limit, int prompts, int most) {
    const int count = min(prompts, *limit);
    int last = 0;
    for (int n = 0; n < count; n++) {
        int beside = 0;
        for (int i = 0; i < count; i++) beside += map[i] == map[n];
        ways[n] = beside > most;
        if (ways[n]) last = max(last, map[n] + 1);
    }
    *images = last;
}

/* Group (i, item): rows [i * group_rows, ..) of y [item][rows][4]: |x'|^2 + x' . v1, |g|^2 + g . v2, g . v3, where g is
 * x' gamma without its mean. v {shift, gamma, v1, v2, v3} [5][K]: the shift is added to x. */
NOINLINE void image_lengths_group(__global float *restrict y, __global const T *restrict x,
                                  __global const float *restrict v, __global const int *restrict limit,
                                  image_lengths_args arg, const int4 group) {
    const int item = group.y, first = group.x * arg.group_rows, last = min(arg.length, first + arg.group_rows);
    const int x_ld = arg.x_ld;
    if (item >= *limit) return;
    x += (size_t)item * arg.length * x_ld + arg.x_c0;
    y += (size_t)item * arg.length * 4;
    for (int row = first; row < last; row++) {
        float16 u[K / 16], sum = (float16)(0.0f), a = sum, b = sum, c = sum;
        UNROLL for (int i = 0; i < K / 16; i++) {
            u[i] = LOAD16(x, (size_t)row * x_ld + i * 16) + vload16(i, v);
            PREFETCH(x + (size_t)(row + 4) * x_ld + i * 16);
            sum += u[i];
        }
        const float16 mean = (float16)(sum16(sum) / K);
        sum = (float16)(0.0f);
        UNROLL for (int i = 0; i < K / 16; i++) {
            u[i] -= mean;
            a = fma(u[i], u[i] + vload16(i, v + 2 * K), a);
            u[i] *= vload16(i, v + K);
            sum += u[i];
        }
        const float16 other = (float16)(sum16(sum) / K);
        UNROLL for (int i = 0; i < K / 16; i++) {
            u[i] -= other;
            b = fma(u[i], u[i] + vload16(i, v + 3 * K), b);
            c = fma(u[i], vload16(i, v + 4 * K), c);
        }
        vstore4((float4)(sum16(a), sum16(b), sum16(c), 0.0f), 0, y + (size_t)row * 4);
    }
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
image_lengths(__global float *restrict y, __global const T *restrict x, __global const float *restrict v,
              __global const int *restrict limit, image_lengths_args arg) {
    image_lengths_group(y, x, v, limit, arg, THIS_GROUP);
}

/* Six rows of sums: each the row b; a row times a row. */
static inline void start_rows(float16 *sums, __global const float *b) {
    for (int r = 0; r < TILE_ROWS; r++) UNROLL for (int j = 0; j < 4; j++) sums[r * 4 + j] = vload16(j, b);
}
static inline float row_by(const float16 *sums, const float16 *a) {
    return sum16(fma(sums[0], a[0], sums[1] * a[1]) + fma(sums[2], a[2], sums[3] * a[3]));
}

/* ---- matrices of a prompt ---- */

enum { SCORES, SQUARE, CROSS, VALUES, COLUMNS };

/* to [d][CP]: plain columns relative to the last token's, which stay. */
NOINLINE void relative_columns(float *to, __global const float *v, int tokens, int d) {
    for (int i = 0; i < d; i++, v += CP, to += CP) {
        const float8 last = vload8(tokens - 1, v);
        for (int t = 0; t < CP / HEADS; t++) {
            float8 u = (float8)(0.0f);
            if (t < tokens) u = t < tokens - 1 ? vload8(t, v) - last : last;
            vstore8(u, t, to);
        }
    }
}

/* to [CP][wide] = columns times the form, wide = 8 d + TO_ADD; zeros behind the row of constants. */
NOINLINE void left_rows(float *to, const float *columns, __global const float *form, int tokens, int d, int wide) {
    const int depth = (tokens - 1) * HEADS;
    for (int i = 0; i < wide; i += 16) vstore16(vload16(0, form + HEADS * d * wide + i), 0, to + depth * wide + i);
    for (int r = depth + 1; r < CP; r++)
        for (int i = 0; i < wide; i += 16) vstore16((float16)(0.0f), 0, to + r * wide + i);
    for (int h = 0; h < HEADS; h++, form += d * wide)
        for (int t = 0; t < tokens; t++) {
            const float *v = columns + t * HEADS + h;
            const bool rest = t == tokens - 1;
            float *y = to + (rest ? depth : t * HEADS + h) * wide;
            for (int i = 0; i < wide; i += 16) {
                float16 a = rest ? vload16(0, y + i) : (float16)(0.0f), b = (float16)(0.0f);
                for (int k = 0; k < d; k += 2) {
                    a = fma((float16)(v[k * CP]), vload16(0, form + k * wide + i), a);
                    b = fma((float16)(v[(k + 1) * CP]), vload16(0, form + (k + 1) * wide + i), b);
                }
                vstore16(a + b, 0, y + i);
            }
        }
}

/* Group (j, n): job j of prompt n, {left, right, kind, slot}: slot of y [n][slots][slot floats] becomes
 *
 *     SCORES: left F right, [64][CP]            SQUARE: the same as the form of a square, CROSS: of twice a product,
 *                                               its last column as one row more
 *     VALUES: left F, [64] projected rows       COLUMNS: left, plain columns
 *
 * where left and right are plain columns [n][d + 1][CP], by number: values of both updates, relative to the last token
 * here, keys of the last one, queries of the reading. F [job][8 d + 1][8 d + TO_ADD]: rows are inputs h * d + i, then a
 * constant, columns those of projected rows, then a constant's, which joins the last token's first one. Of a square
 * what is above the diagonal counts twice and what is below is left out, by blocks of 16; columns of constants are
 * zeros, their row counts twice. */
NOINLINE void relate_group(__global float *restrict y, __global const float *restrict values1,
                           __global const float *restrict values2, __global const float *restrict keys,
                           __global const float *restrict queries, __global const float *restrict forms,
                           __global const int *restrict jobs, __global const int *restrict ways,
                           __global const int *restrict limit, relate_args arg, const int4 group) {
    const int n = group.y, tokens = arg.tokens, d = arg.d, wide = HEADS * d + TO_ADD, depth = (tokens - 1) * HEADS;
    if (n >= *limit || !ways[n]) return;
    const int4 job = vload4(group.x, jobs);
    const size_t at = (size_t)n * (d + 1) * CP;
    float left[D_MAX * CP], right[D_MAX * CP], rows[(CP + TILE_ROWS) * (HEADS * D_MAX + TO_ADD)];
    y += ((size_t)n * arg.slots + job.w) * arg.slot_floats;
    relative_columns(left, (job.x ? values2 : values1) + at, tokens, d);
    if (job.z == COLUMNS) {
        for (int i = 0; i < d * CP; i += 16) vstore16(vload16(0, left + i), 0, y + i);
        return;
    }
    left_rows(rows, left, forms + (size_t)group.x * (HEADS * d + 1) * wide, tokens, d, wide);
    if (job.z == VALUES) {
        for (int c = 0; c <= depth; c++)
            for (int i = 0; i < HEADS * d; i += 16) vstore16(vload16(0, rows + c * wide + i), 0, y + c * HEADS * d + i);
        return;
    }
    __global const float *columns = (job.y == 2 ? keys : queries) + at;
    if (job.y < 2) {
        relative_columns(right, (job.y ? values2 : values1) + at, tokens, d);
        columns = GLOBAL(right);
    }
    for (int i = 0; i < CP && job.z == CROSS; i += 16) vstore16((float16)(0.0f), 0, y + (depth + 1) * CP + i);
    for (int c = 0; c <= depth; c += TILE_ROWS) {
        float16 sums[TILE_ROWS * 4];
        for (int i = 0; i < TILE_ROWS * 4; i++) sums[i] = (float16)(0.0f);
        add_heads(sums, rows + c * wide, wide, columns, d, 4);
        for (int r = 0; r < TILE_ROWS && c + r <= depth; r++) {
            const float to_add = job.z == SCORES ? 0.0f : rows[(c + r) * wide + HEADS * d];
            ((float *)(sums + r * 4))[depth] += to_add;
            for (int i = 0; i < CP && job.z != SCORES; i++) {
                const int row = (c + r) / 16, column = i / 16;
                const float block = row > column || i >= depth ? 0.0f : row < column ? 2.0f : 1.0f;
                const float square = c + r < depth ? block : i < depth ? 2.0f : 1.0f;
                ((float *)(sums + r * 4))[i] *= job.z == SQUARE ? square : 2.0f;
            }
            if (job.z == CROSS) {
                const float8 last = vload8(tokens - 1, (const float *)(sums + r * 4));
                y[(depth + 1) * CP + c + r] = sum16((float16)(last, (float8)(0.0f)));
                vstore8((float8)(0.0f), tokens - 1, (float *)(sums + r * 4));
            }
            for (int j = 0; j < 4; j++) vstore16(sums[r * 4 + j], j, y + (c + r) * CP);
        }
    }
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
relate(__global float *restrict y, __global const float *restrict values1, __global const float *restrict values2,
       __global const float *restrict keys, __global const float *restrict queries,
       __global const float *restrict forms, __global const int *restrict jobs, __global const int *restrict ways,
       __global const int *restrict limit, relate_args arg) {
    relate_group(y, values1, values2, keys, queries, forms, jobs, ways, limit, arg, THIS_GROUP);
}

/* ---- the image ---- */

/* What the stages of a step know; rows are those in hand. */
typedef struct {
    int rows, d, wide, ld, ldp, depth, vectors, reads, slot;
    __global const float *image, *position, *lengths, *slots;
    float keep[CP], add[CP]; /* ones for other tokens' columns, for the last one's */
} step_t;
static inline __global const float *slot_of(const step_t *m, int i) {
    return m->slots + (size_t)i * m->slot;
}
/* The row of constants behind a slot's matrix. */
static inline __global const float *constants_of(const step_t *m, int i) {
    return slot_of(m, i) + m->depth * CP;
}

/* Six rows of s [6][CP] become f times themselves, + b. */
static inline void scale_tile(float16 *s, const float *f, __global const float *b) {
    for (int r = 0; r < TILE_ROWS; r++)
        UNROLL for (int j = 0; j < 4; j++) s[r * 4 + j] = fma(s[r * 4 + j], (float16)(f[r]), vload16(j, b));
}

/* s [rows][CP] = projected rows times plain columns: of the image before its updates, which have their position.
 * image: offset of the projection. */
NOINLINE void first_scores(float16 *s, const step_t *m, int image, __global const float *columns, int vectors) {
    for (int t = 0; t < m->rows; t += TILE_ROWS, s += TILE_ROWS * 4) {
        start_rows(s, columns + m->d * CP);
        add_heads(s, PRIVATE(m->image + (size_t)t * m->ld + image), m->ld, columns, m->d, vectors);
    }
}

/* The same behind updates: (f1 f2 projected rows + position) times plain columns + f2 (f1 a1 S1 + a2 S2); place: offset
 * of the position; slot1, slot2: of S1 and S2, or slot2 below zero: not. */
NOINLINE void score_rows(float16 *s, const step_t *m, int image, int place, __global const float *columns, int vectors,
                         const float *f1, const float *f2, const float16 *a1, int slot1, const float16 *a2, int slot2) {
    __global const float *plain = columns + m->d * CP;
    for (int t = 0; t < m->rows; t += TILE_ROWS, s += TILE_ROWS * 4) {
        __global const float *x = m->image + (size_t)t * m->ld + image;
        __global const float *position = m->position + (size_t)t * m->ldp + place;
        const float *scale = f1 + t;
        float f[TILE_ROWS];
        for (int r = 0; r < TILE_ROWS; r++) f[r] = f1[t + r] * f2[t + r];
        start_rows(s, constants_of(m, slot1));
        add_weighted(s, (const float *)(a1 + t * 4), slot_of(m, slot1), m->depth, vectors);
        if (slot2 >= 0) {
            scale_tile(s, scale, constants_of(m, slot2));
            add_weighted(s, (const float *)(a2 + t * 4), slot_of(m, slot2), m->depth, vectors);
            scale = f2 + t;
        }
        add_image(s, scale, plain, x, m->ld, position, m->ldp, f, columns, m->d, vectors);
    }
}

/* `count` vectors of s [rows][CP] times the rows' factors by; total = total * f + all of them. */
static inline void scale_vectors(float16 *s, const float *by, int rows, float16 *total, const float16 *f,
                                 const int count) {
    float16 sum[4];
    UNROLL for (int j = 0; j < count; j++) sum[j] = total[j] * f[j];
    for (int r = 0; r < rows; r++, s += 4) {
        UNROLL for (int j = 0; j < count; j++) {
            s[j] *= (float16)(by[r]);
            sum[j] += s[j];
        }
    }
    UNROLL for (int j = 0; j < count; j++) total[j] = sum[j];
}
NOINLINE void scale_rows(float16 *s, const float *by, int rows, float16 *total, const float16 *f, int count) {
    if (count == 1)
        scale_vectors(s, by, rows, total, f, 1);
    else
        scale_vectors(s, by, rows, total, f, 4);
}

/* Scores become an update's weights: the softmax over tokens, and ones for the last token's columns. */
NOINLINE void weigh_tokens(float16 *s, const step_t *m) {
    for (int t = 0; t < m->rows; t += TILE_ROWS, s += TILE_ROWS * 4) {
        softmax_tokens(s, m->vectors, 0.0f);
        for (int i = 0; i < TILE_ROWS * 4; i++) {
            const float16 add = vload16(i % 4, m->add);
            s[i] = i % 4 < m->vectors ? fma(s[i], vload16(i % 4, m->keep), add) : add;
        }
    }
}

/* Weights and factors of an update to and from its rows of the trace. */
NOINLINE void note_rows(__global float *to, const float16 *a, const float *f, int rows) {
    for (int r = 0; r < rows; r++, a += 4, to += TRACE) {
        UNROLL for (int j = 0; j < 4; j++) vstore16(a[j], j, to);
        to[TRACE - 1] = f[r];
    }
}
NOINLINE void recall_rows(float16 *a, float *f, const step_t *m, __global const float *from) {
    for (int r = 0; r < SUB; r++, a += 4, from += TRACE) {
        const bool here = r < m->rows;
        UNROLL for (int j = 0; j < 4; j++) a[j] =
            here ? fma(vload16(j, from), vload16(j, m->keep), vload16(j, m->add)) : (float16)(0.0f);
        f[r] = here ? from[TRACE - 1] : 0.0f;
    }
}

/* f [rows] = factors of the first norm; slots {values, square}. */
NOINLINE void first_factors(float *f, const float16 *a, const step_t *m, int along, float eps,
                            __global const float *noted) {
    for (int t = 0; t < m->rows; t += TILE_ROWS) {
        __global const float *x = m->image + (size_t)t * m->ld + along;
        float16 s[TILE_ROWS * 4];
        start_rows(s, constants_of(m, 1));
        add_heads(s, PRIVATE(x), m->ld, slot_of(m, 0), m->d, 4);
        add_square(s, (const float *)(a + t * 4), slot_of(m, 1), m->depth, m->vectors, noted + t * TRACE);
        for (int r = 0; r < TILE_ROWS; r++) {
            const float all = m->lengths[(t + r) * 4] + row_by(s + r * 4, a + (t + r) * 4);
            f[t + r] = 1.0f / sqrt(max(all, 0.0f) / K + eps);
        }
    }
}

/* f2 [rows] = those of the second; slots {values of both, -, square of the first, cross, square of the second}. */
NOINLINE void second_factors(float *f2, const float *f1, const float16 *a1, const float16 *a2, const step_t *m,
                             int along1, int along2, float eps, __global float *const *noted) {
    for (int t = 0; t < m->rows; t += TILE_ROWS) {
        __global const float *x = m->image + (size_t)t * m->ld;
        float16 s[TILE_ROWS * 4];
        float all[TILE_ROWS];
        start_rows(s, constants_of(m, 3));
        add_heads(s, PRIVATE(x + along1), m->ld, slot_of(m, 0), m->d, 4);
        add_square(s, (const float *)(a1 + t * 4), slot_of(m, 3), m->depth, m->vectors, noted[1] + t * TRACE);
        scale_tile(s, f1 + t, constants_of(m, 4) + CP);
        for (int r = 0; r < TILE_ROWS; r++) {
            __global const float *lengths = m->lengths + (t + r) * 4;
            all[r] = fma(lengths[1], f1[t + r], lengths[2]) + row_by(s + r * 4, a1 + (t + r) * 4);
        }
        start_rows(s, constants_of(m, 4));
        add_heads(s, PRIVATE(x + along2), m->ld, slot_of(m, 1), m->d, 4);
        add_weighted(s, (const float *)(a1 + t * 4), slot_of(m, 4), m->depth, m->vectors);
        scale_tile(s, f1 + t, constants_of(m, 5));
        add_square(s, (const float *)(a2 + t * 4), slot_of(m, 5), m->depth, m->vectors, noted[0] + (SUB + t) * TRACE);
        for (int r = 0; r < TILE_ROWS; r++) {
            const float whole = fma(all[r], f1[t + r], row_by(s + r * 4, a2 + (t + r) * 4));
            f2[t + r] = 1.0f / sqrt(max(whole, 0.0f) / K + eps);
        }
    }
}

/* o [d][4 vectors] += z [depth + 1][4 vectors] times the projected rows of a slot, `count` channels at a time: they lie
 * far away, and a row's lines follow each other. */
static inline int take_channels(float16 *o, const float16 *z, const step_t *m, __global const float *values, int from,
                                const int count) {
    for (; from + count <= m->d; from += count) {
        float16 c[16];
        UNROLL for (int i = 0; i < count; i++) c[i] = o[(from + i) * 4];
        for (int a = 0; a <= m->depth; a++) {
            UNROLL for (int i = 0; i < count; i++) c[i] =
                fma(z[a * 4], both(vload8(from + i, values + a * m->wide)), c[i]);
        }
        UNROLL for (int i = 0; i < count; i++) o[(from + i) * 4] = c[i];
    }
    return from;
}
NOINLINE void take_values(float16 *o, const float16 *z, const step_t *m, int slot) {
    for (int j = 0; j < m->reads; j++) {
        const int done = take_channels(o + j, z + j, m, slot_of(m, slot), 0, 16);
        take_channels(o + j, z + j, m, slot_of(m, slot), done, 4);
    }
}

/* Group (n, i): rows [i * group_rows, ..) of prompt n, if it is of way 1, behind `updates` updates, the last of which
 * is made here and noted in trace [n][update][rows][TRACE]: the softmax over these rows of projected keys times
 * `queries`, and the values under it: part [n][group]{m [CP], sum [CP], sums [d][CP]}. image [item][rows][image_ld],
 * position [rows][3 * 8 d], lengths as image_lengths has them. Projections, by 8 d floats: of the readings' keys at 0,
 * 4, 9 and values at 2, 5, 10, of the updates' queries at 1, 6, along the updates' values at 3 and, for the second
 * norm, at 7, 8. Positions of the last two readings' keys at 0, 2, of the last update's queries at 1; those of the
 * first ones are in the projections. slots [n][slots][slot_floats]: behind one update {values, square, scores,
 * values}, behind two {values of both, scores of the update, square of the first, cross, square of the second, scores
 * by both, values by both}. */
NOINLINE void shared_step_group(__global float *restrict part, __global float *restrict trace,
                                __global const float *restrict image, __global const float *restrict position,
                                __global const float *restrict lengths, __global const int *restrict map,
                                __global const int *restrict ways, __global const float *restrict keys,
                                __global const float *restrict queries, __global const float *restrict slots,
                                __global const int *restrict limit, shared_step_args arg, const int4 group) {
    const int n = group.x, first = group.y * arg.group_rows, last = min(arg.length, first + arg.group_rows);
    const int updates = arg.updates;
    if (n >= *limit || !ways[n]) return;
    const int d = arg.d, wide = HEADS * d, depth = (arg.update_tokens - 1) * HEADS;
    const int reads = arg.read_tokens <= 2 ? 1 : 4;
    const float eps = arg.eps;
    float16 a[2][SUB * 4], s[SUB * 4], z[2][CP * 4], o[D_MAX * 4], top[4], total[4], f[4];
    float factors[2][SUB], ones[SUB];
    step_t m = {.d = d,
                .wide = wide,
                .ld = arg.image_ld,
                .ldp = 3 * wide,
                .depth = depth,
                .vectors = (depth + 15) / 16,
                .reads = reads,
                .slot = arg.slot_floats,
                .slots = slots + (size_t)n * arg.slots * arg.slot_floats};
    const size_t column = (size_t)n * (d + 1) * CP, item = (size_t)map[n] * arg.length;
    keys += column;
    queries += column;
    part += ((size_t)n * arg.groups + group.y) * CP * (d + 2);
    for (int i = 0; i < SUB; i++) ones[i] = 1.0f;
    for (int c = 0; c < CP; c++) {
        m.keep[c] = c < depth;
        m.add[c] = c >= depth && c < depth + HEADS;
    }
    for (int j = 0; j < 4; j++) top[j] = (float16)(LOWEST), total[j] = (float16)(0.0f);
    for (int i = 0; i < d * 4; i++) o[i] = (float16)(0.0f);
    for (int i = 0; i < 2 * CP * 4; i++) z[i / (CP * 4)][i % (CP * 4)] = (float16)(0.0f);
    for (int r0 = first; r0 < last; r0 += SUB) {
        const int rows = min(SUB, last - r0);
        m.rows = rows;
        m.image = image + (item + r0) * m.ld;
        m.position = position + (size_t)r0 * m.ldp;
        m.lengths = lengths + (item + r0) * 4;
        __global float *noted[2];
        for (int i = 0; i < 2; i++) noted[i] = trace + (((size_t)n * 2 + i) * arg.length + r0) * TRACE;
        if (updates == 1) {
            first_scores(a[0], &m, wide, keys, m.vectors);
            weigh_tokens(a[0], &m);
            first_factors(factors[0], a[0], &m, 3 * wide, eps, noted[0]);
            score_rows(s, &m, 4 * wide, 0, queries, reads, factors[0], ones, a[0], 2, a[0], -1);
            note_rows(noted[0], a[0], factors[0], rows);
        } else if (updates == 2) {
            recall_rows(a[0], factors[0], &m, noted[0]);
            score_rows(a[1], &m, 6 * wide, wide, keys, m.vectors, factors[0], ones, a[0], 2, a[1], -1);
            weigh_tokens(a[1], &m);
            second_factors(factors[1], factors[0], a[0], a[1], &m, 7 * wide, 8 * wide, eps, noted);
            score_rows(s, &m, 9 * wide, 2 * wide, queries, reads, factors[0], factors[1], a[0], 6, a[1], 7);
            note_rows(noted[1], a[1], factors[1], rows);
        } else {
            first_scores(s, &m, 0, queries, reads);
        }
        weigh_rows(top, total, f, s, rows, reads);
        __global const float *values = m.image + (updates == 2 ? 10 : updates ? 5 : 2) * wide;
        if (updates == 2) {
            scale_rows(s, factors[1], rows, z[1] + depth * 4, f, reads);
            sum_weights(z[1], f, s, (const float *)a[1], rows, depth, reads, values, m.ld);
        }
        if (updates) {
            scale_rows(s, factors[0], rows, z[0] + depth * 4, f, reads);
            sum_weights(z[0], f, s, (const float *)a[0], rows, depth, reads, values, m.ld);
        }
        sum_heads(o, f, s, PRIVATE(values), m.ld, rows, d, reads);
    }
    if (updates == 1) take_values(o, z[0], &m, 3);
    if (updates == 2) {
        take_values(o, z[0], &m, 8);
        take_values(o, z[1], &m, 9);
    }
    for (int j = 0; j < reads; j++) {
        vstore16(top[j], j, part);
        vstore16(total[j], j, part + CP);
        for (int i = 0; i < d; i++) vstore16(o[i * 4 + j], j, part + (i + 2) * CP);
    }
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
shared_step(__global float *restrict part, __global float *restrict trace, __global const float *restrict image,
            __global const float *restrict position, __global const float *restrict lengths,
            __global const int *restrict map, __global const int *restrict ways, __global const float *restrict keys,
            __global const float *restrict queries, __global const float *restrict slots,
            __global const int *restrict limit, shared_step_args arg) {
    shared_step_group(part, trace, image, position, lengths, map, ways, keys, queries, slots, limit, arg, THIS_GROUP);
}

/* Group n: y[t][h d ..] = the average that the parts are of, + b [8 d]. */
NOINLINE void shared_merge_group(__global T *restrict y, __global const float *restrict part,
                                 __global const float *restrict b, __global const int *restrict ways,
                                 __global const int *restrict limit, image_merge_args arg, const int4 group) {
    const int n = group.x, d = arg.d, tokens = arg.tokens, groups = arg.groups;
    if (n >= *limit || !ways[n]) return;
    part += (size_t)n * groups * CP * (d + 2);
    for (int j = 0; j * 2 < tokens; j++) {
        float16 m = (float16)(LOWEST), sum = (float16)(0.0f), o[D_MAX];
        for (int g = 0; g < groups; g++) m = larger(m, vload16(j, part + (size_t)g * CP * (d + 2)));
        for (int i = 0; i < d; i++) o[i] = (float16)(0.0f);
        for (int g = 0; g < groups; g++) {
            __global const float *p = part + (size_t)g * CP * (d + 2);
            const float16 f = exp2_negative(vload16(j, p) - m);
            sum = fma(vload16(j, p + CP), f, sum);
            for (int i = 0; i < d; i++) o[i] = fma(vload16(j, p + (i + 2) * CP), f, o[i]);
        }
        for (int i = 0; i < d; i++) {
            const float16 average = o[i] / sum;
            for (int l = 0; l < 16 && j * 2 + l / HEADS < tokens; l++) {
                const int to = l % HEADS * d + i;
                STORE(((const float *)&average)[l] + b[to], y, (n * tokens + j * 2 + l / HEADS) * arg.y_ld + to);
            }
        }
    }
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
shared_merge(__global T *restrict y, __global const float *restrict part, __global const float *restrict b,
             __global const int *restrict ways, __global const int *restrict limit, image_merge_args arg) {
    shared_merge_group(y, part, b, ways, limit, arg, THIS_GROUP);
}
