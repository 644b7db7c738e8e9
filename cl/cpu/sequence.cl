/* A sequence on CPUs: many operators on the same rows (queries, tokens) in one launch; one work-item per group, needs
 * cpu/tile. A group takes a few dozen rows from the first operator to the last; what lies between stays in its part of
 * `scratch`, which the second-level cache holds. Activations are float. With -D PARTS and ASM (cpu/amx's, which it then
 * needs) large linear layers multiply on the matrix unit.
 *
 * The program is data: `tape` has WORDS ints per step, written by src/variants/cpu/sequence.c; what they mean, and the
 * numbers, are sequence_tape.h's (codes/sequence_cpu). */
#define POINTS  64 /* of a head, at most */

typedef __global float *to_t;
typedef __global const float *from_t;

/* What every operator reads: pointers to the first element of each tensor, the item, its rows, the group's first; width
 * of the map where rows are its pixels; the address of the room for rows in parts. */
typedef struct state {
    to_t at[OUTSIDE + 1];
    int n, rows, first, count, width;
    size_t squares;
} state;

typedef struct place {
    to_t p; /* of the group's first row */
    int ld;
} place;

static inline bool there(__global const int *t) {
    return t[0] >= 0;
}

static inline place place_of(const state *s, __global const int *t) {
    place q = {0, t[2]};
    if (!there(t)) return q;
    q.p = s->at[t[0] & 255] + t[1];
    if (t[0] & 255) q.p += (size_t)((t[0] & ONE_ITEM ? 0 : s->n * s->rows) + s->first) * t[2];
    if (t[0] & RING) q.p += s->first / s->width % 4 * s->width * t[2];
    return q;
}

/* First element of an outer tensor of which an item has `rows` rows, read at any row. */
static inline from_t whole(const state *s, __global const int *t, int rows) {
    return s->at[t[0] & 255] + t[1] + (size_t)(t[0] & ONE_ITEM ? 0 : s->n * rows) * t[2];
}

static inline void put16(to_t p, float16 v) {
    vstore16(v, 0, p);
}

/* The first `lanes` of sixteen; what there is besides whole vectors is rare. */
NOINLINE float16 get_few(from_t p, int lanes) {
    float16 v = (float16)(0.0f);
#pragma clang loop vectorize(disable) unroll(disable)
    for (int i = 0; i < lanes; i++) ((float *)&v)[i] = p[i];
    return v;
}
NOINLINE void put_few(to_t p, float16 v, int lanes) {
#pragma clang loop vectorize(disable) unroll(disable)
    for (int i = 0; i < lanes; i++) p[i] = ((float *)&v)[i];
}
static inline float16 get_some(from_t p, int lanes) {
    return lanes >= 16 ? vload16(0, p) : get_few(p, lanes);
}
static inline void put_some(to_t p, float16 v, int lanes) {
    if (lanes >= 16) put16(p, v);
    else put_few(p, v, lanes);
}

/* ---- linear layers ---- */

/* How six rows of a result are finished where that is all: y[r][..] = scale max(v, least) + shift; NaN stays. */
typedef struct ending {
    to_t y; /* 0: sums go to `acc` */
    int ld;
    float16 least, scale, shift;
} ending;

/* acc[r * NV + j] = first[j] + sum over i < k of a[r * lda + i] * vector j of b[i], six rows. Of four vectors every
 * second step asks for a line from `next` on, `stride` floats apart. */
#define EXPECT1
#define EXPECT2
#define EXPECT4                                                                                                        \
    PREFETCH_L2(next);                                                                                                 \
    next += stride;
#define ROW1(r, u)  c##r##_0 = fma((float16)(a[(r) * lda + u]), b0, c##r##_0);
#define ROW2(r, u)                                                                                                     \
    {                                                                                                                  \
        const float16 v = (float16)(a[(r) * lda + u]);                                                                 \
        c##r##_0 = fma(v, b0, c##r##_0);                                                                               \
        c##r##_1 = fma(v, b1, c##r##_1);                                                                               \
    }
#define ROW4(r, u)                                                                                                     \
    {                                                                                                                  \
        const float16 v = (float16)(a[(r) * lda + u]);                                                                 \
        TILE_COLS(TILE_MAC, r)                                                                                         \
    }
#define WEIGHTS1(u) const float16 b0 = vload16(u, b);
#define WEIGHTS2(u) const float16 b0 = vload16(2 * u, b), b1 = vload16(2 * u + 1, b);
#define WEIGHTS4(u)                                                                                                    \
    const float16 b0 = vload16(4 * u, b), b1 = vload16(4 * u + 1, b);                                                  \
    const float16 b2 = vload16(4 * u + 2, b), b3 = vload16(4 * u + 3, b);
#define OPEN1(r)  float16 c##r##_0 = first[0];
#define OPEN2(r)  float16 c##r##_0 = first[0], c##r##_1 = first[1];
#define OPEN4(r)  float16 c##r##_0 = first[0], c##r##_1 = first[1], c##r##_2 = first[2], c##r##_3 = first[3];
#define CLOSE1(r) acc[r] = c##r##_0;
#define CLOSE2(r) acc[r * 2] = c##r##_0, acc[r * 2 + 1] = c##r##_1;
#define CLOSE4(r) TILE_COLS(TILE_CLOSE, r)
#define END(r, j)                                                                                                      \
    put16(end.y + r * end.ld + 16 * j,                                                                                 \
          fma(end.least > c##r##_##j ? end.least : c##r##_##j, end.scale, end.shift));
#define END1(r)   END(r, 0)
#define END2(r)   END(r, 0) END(r, 1)
#define END4(r)   TILE_COLS(END, r)
#define SIX(F)      F(0) F(1) F(2) F(3) F(4) F(5)
#define SIX_AT(F, u) F(0, u) F(1, u) F(2, u) F(3, u) F(4, u) F(5, u)
#define DEFINE_PRODUCT(F, NV, KIND)                                                                                    \
    KIND void F(float16 *acc, const float16 *first, from_t a, int lda, from_t b, int k, from_t next,          \
                         int stride, const ending end) {                                                               \
        SIX(OPEN##NV)                                                                                                  \
        for (; k > 1; k -= 2, a += 2, b += 32 * NV) {                                                                  \
            EXPECT##NV                                                                                                 \
            {                                                                                                          \
                WEIGHTS##NV(0) SIX_AT(ROW##NV, 0)                                                                      \
            }                                                                                                          \
            {                                                                                                          \
                WEIGHTS##NV(1) SIX_AT(ROW##NV, 1)                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        if (k > 0) {                                                                                                   \
            WEIGHTS##NV(0) SIX_AT(ROW##NV, 0)                                                                          \
        }                                                                                                              \
        if (end.y) {                                                                                                   \
            SIX(END##NV)                                                                                               \
        } else {                                                                                                       \
            SIX(CLOSE##NV)                                                                                             \
        }                                                                                                              \
    }
#if PANEL == 64 /* what is left beside blocks of four vectors is little */
DEFINE_PRODUCT(product1, 1, NOINLINE)
DEFINE_PRODUCT(product2, 2, NOINLINE)
DEFINE_PRODUCT(product4, 4, static inline)
#else
DEFINE_PRODUCT(product1, 1, static inline)
#define product2 product1
#define product4 product1
#endif

/* `lines` rows of nv vectors of which `lanes` lanes are there. */
static inline void add_tile(float16 *acc, int nv, from_t from, int ld, int lines, int lanes) {
    for (int i = 0; i < lines; i++, acc += nv, from += ld)
        for (int j = 0; j < nv; j++) acc[j] += get_some(from + 16 * j, lanes - 16 * j);
}
static inline void put_tile(to_t to, int ld, const float16 *acc, int nv, int lines, int lanes) {
    for (int i = 0; i < lines; i++, acc += nv, to += ld)
        for (int j = 0; j < nv; j++) put_some(to + 16 * j, acc[j], lanes - 16 * j);
}

/* y = scale act(w a + bias + b) + shift + c. Weights in blocks of PANEL columns, then of half as many, down to 16,
 * [in][block]; numbers: inputs, weights at, bias at or -1, scale, shift. The last tile begins before its rows where
 * they are fewer than six, or takes them singly. The first eight tiles ask for the weights that follow, those of the
 * next layer behind the last block: without that the first tile of a block waits for the third-level cache. */
NOINLINE void linear(const state *s, __global const int *t, from_t weights, from_t table) {
    const place y = place_of(s, t + OUT), x = place_of(s, t + A), before = place_of(s, t + B),
                after = place_of(s, t + C);
    const int outs = t[1], act = t[2], k = t[NUMBERS], bias = t[NUMBERS + 2];
    const float16 scale = (float16)(as_float(t[NUMBERS + 3])), shift = (float16)(as_float(t[NUMBERS + 4]));
    const float16 least = (float16)(act == ACT_RELU ? 0.0f : -INFINITY);
    const bool simple = (act == ACT_NONE || act == ACT_RELU) && !before.p && !after.p;
    from_t w = weights + t[NUMBERS + 1];
    int nv = PANEL_VECTORS;
    for (int o = 0; o < outs; o += 16 * nv, w += 16 * nv * k) {
        while (nv > 1 && o + 16 * nv > (outs + 15) / 16 * 16) nv /= 2;
        float16 sums[4], acc[TILE_ROWS * 4];
        for (int j = 0; j < nv; j++) sums[j] = bias < 0 ? (float16)(0.0f) : vload16(j, table + bias + o);
        for (int r0 = 0; r0 < s->count;) {
            const bool alone = s->count < TILE_ROWS;
            const int lines = alone ? 1 : TILE_ROWS, r = alone ? r0 : min(r0, s->count - TILE_ROWS);
            const int lda = alone ? 0 : x.ld, asked = r0 / TILE_ROWS;
            from_t next = w + 64 * k + asked * (k / 2) * 16;
            const int stride = asked < 8 ? 16 : 0;
            const bool plain = simple && !alone && outs - o >= 16 * nv;
            const ending end = {plain ? y.p + r * y.ld + o : 0, y.ld, least, scale, shift};
            if (nv == 4) product4(acc, sums, x.p + r * x.ld, lda, w, k, next, stride, end);
            else if (nv == 2) product2(acc, sums, x.p + r * x.ld, lda, w, k, next, stride, end);
            else product1(acc, sums, x.p + r * x.ld, lda, w, k, next, stride, end);
            r0 = r + lines;
            if (plain) continue;
            if (before.p) add_tile(acc, nv, before.p + r * before.ld + o, before.ld, lines, outs - o);
            activate_all(acc, lines * nv, act);
            for (int i = 0; i < lines * nv; i++) acc[i] = fma(acc[i], scale, shift);
            if (after.p) add_tile(acc, nv, after.p + r * after.ld + o, after.ld, lines, outs - o);
            put_tile(y.p + r * y.ld + o, y.ld, acc, nv, lines, outs - o);
        }
    }
}

/* ---- linear layers on the matrix unit ---- */

#ifdef PARTS
#define SQUARE_BYTES ((size_t)PARTS * AMX_PANEL * sizeof(ushort)) /* 32 rows or columns of a step */

/* A block of sums whose rows from `row` on are still to be finished, and weights to ask for, `lines` in each pause. */
typedef struct later {
    const float16 *sums; /* [32][2] */
    int row, rows, lanes, act;
    place y, before, after; /* of the block's first row and column */
    float16 scale, shift;
    size_t weights;
    int lines;
} later;

NOINLINE void finish_row(later *b) {
    const int r = b->row++;
    float16 v[2] = {b->sums[2 * r], b->sums[2 * r + 1]};
    if (b->before.p) add_tile(v, 2, b->before.p + r * b->before.ld, 0, 1, b->lanes);
    if (b->act == ACT_RELU)
        for (int i = 0; i < 2; i++) v[i] = (float16)(0.0f) > v[i] ? (float16)(0.0f) : v[i];
    else if (b->act != ACT_NONE)
        activate_all(v, 2, b->act);
    for (int i = 0; i < 2; i++) v[i] = fma(v[i], b->scale, b->shift);
    if (b->after.p) add_tile(v, 2, b->after.p + r * b->after.ld, 0, 1, b->lanes);
    put_tile(b->y.p + r * b->y.ld, 0, v, 2, 1, b->lanes);
}

/* sums[32][2] = first + squares a x squares w, while b's rows are finished. */
NOINLINE void tile_product(later *b, float16 *sums, const float16 *first, size_t a, size_t w, int steps) {
    const int rows = b->rows - b->row, rate = rows * 256 / (steps * AMX_PAUSES) + 1;
    amx_start((size_t)sums, AMX_BLOCK, (size_t)first, 0);
    for (int i = 0, due = 0; i < steps; i++, a += SQUARE_BYTES, w += SQUARE_BYTES) {
        AMX_STEP((size_t)sums, AMX_BLOCK, a, (size_t)AMX_DEPTH, (size_t)AMX_PANEL, w,
                 for (int l = 0; l < b->lines; l++, b->weights += 64) PREFETCH_L2(b->weights);
                 for (due += rate; due >= 256 && b->row < b->rows; due -= 256) finish_row(b);)
    }
    amx_finish((size_t)sums, AMX_BLOCK);
    while (b->row < b->rows) finish_row(b);
}

/* Splits rows [first, first + 32 tiles) of k columns, as far as they exist: squares [tile][step] at `to`. */
NOINLINE void split_rows(size_t to, place x, int first, int count, int k) {
    const int steps = (k + AMX_DEPTH - 1) / AMX_DEPTH, whole = k / AMX_DEPTH;
    for (int r = 0; r < count; r++) {
        from_t from = x.p + (first + r) * x.ld;
        size_t at = to + (size_t)(r / AMX_BLOCK * steps) * SQUARE_BYTES + r % AMX_BLOCK * AMX_DEPTH * sizeof(ushort);
        for (int i = 0; i < whole; i++, from += AMX_DEPTH, at += SQUARE_BYTES)
            amx_split(vload16(0, from), vload16(1, from), at, (size_t)AMX_PANEL);
        if (whole == steps) continue;
        const int left = k - whole * AMX_DEPTH;
        amx_split(get_some(from, left), left > 16 ? get_some(from + 16, left - 16) : (float16)(0.0f), at,
                  (size_t)AMX_PANEL);
    }
}

/* As `linear`, weights as cpu/amx has them. Numbers besides: tiles of 32 rows that are split at a time. */
NOINLINE void linear_parts(const state *s, __global const int *t, from_t weights, from_t table) {
    const place y = place_of(s, t + OUT), x = place_of(s, t + A), before = place_of(s, t + B),
                after = place_of(s, t + C);
    const int outs = t[1], k = t[NUMBERS], bias = t[NUMBERS + 2], together = t[NUMBERS + 5];
    const int steps = (k + AMX_DEPTH - 1) / AMX_DEPTH;
    float16 sums[2][AMX_BLOCK * 2], first[2];
    int mine = 0;
    later b = {.act = t[2], .scale = (float16)(as_float(t[NUMBERS + 3])), .shift = (float16)(as_float(t[NUMBERS + 4]))};
    for (int r0 = 0; r0 < s->count; r0 += together * AMX_BLOCK) {
        const int count = min(together * AMX_BLOCK, s->count - r0), tiles = (count + AMX_BLOCK - 1) / AMX_BLOCK;
        size_t w = (size_t)(weights + t[NUMBERS + 1]);
        split_rows(s->squares, x, r0, count, k);
        b.lines = ((int)SQUARE_BYTES / 64 / AMX_PAUSES + tiles - 1) / tiles;
        for (int o = 0; o < outs; o += AMX_BLOCK, w += steps * SQUARE_BYTES) {
            first[0] = bias < 0 ? (float16)(0.0f) : vload16(0, table + bias + o);
            first[1] = bias < 0 || outs - o <= 16 ? (float16)(0.0f) : vload16(1, table + bias + o);
            b.weights = w + steps * SQUARE_BYTES;
            for (int tile = 0; tile < tiles; tile++, mine ^= 1) {
                const int r = r0 + tile * AMX_BLOCK;
                tile_product(&b, sums[mine], first, s->squares + (size_t)(tile * steps) * SQUARE_BYTES, w, steps);
                b.sums = sums[mine];
                b.row = 0;
                b.rows = min(AMX_BLOCK, s->count - r);
                b.lanes = min(outs - o, AMX_BLOCK);
                b.y = (place){y.p + r * y.ld + o, y.ld};
                b.before = (place){before.p ? before.p + r * before.ld + o : 0, before.ld};
                b.after = (place){after.p ? after.p + r * after.ld + o : 0, after.ld};
            }
        }
        while (b.row < b.rows) finish_row(&b);
    }
}
#endif

/* ---- sums, norms ---- */

/* y = a + b, held between two numbers. */
NOINLINE void sum(const state *s, __global const int *t) {
    const place y = place_of(s, t + OUT), a = place_of(s, t + A), b = place_of(s, t + B);
    const float low = as_float(t[NUMBERS]), high = as_float(t[NUMBERS + 1]);
    const int mode = t[2];
    for (int r = 0; r < s->count; r++)
        for (int c = 0; c < t[1]; c += 16) {
            const int lanes = t[1] - c;
            float16 v = get_some(a.p + r * a.ld + c, lanes);
            if (mode & ONE_COLUMN) v += (float16)(b.p[r * b.ld]);
            else if (mode & PRESENT) v += get_some(b.p + r * b.ld + c, lanes);
            if (mode & CLAMPED) v = clamp(v, (float16)(low), (float16)(high));
            put_some(y.p + r * y.ld + c, v, lanes);
        }
}

/* y = act(norm(a + b)), a + b within the clamp where there is one, or norm(sigmoid(c) a + sigmoid(c') b), c' the second
 * half of c. Numbers: gamma at, beta at, eps, clamp. */
NOINLINE void norm(const state *s, __global const int *t, from_t table) {
    const place y = place_of(s, t + OUT), a = place_of(s, t + A), b = place_of(s, t + B), g = place_of(s, t + C);
    const int columns = t[1], vectors = columns / 16;
    const float16 bound = (float16)(as_float(t[NUMBERS + 3]));
    for (int r = 0; r < s->count; r++) {
        float16 v[64];
        for (int i = 0; i < vectors; i++) {
            v[i] = vload16(i, a.p + r * a.ld);
            if (t[0] == GATE)
                v[i] = activate_float16(vload16(i, g.p + r * g.ld), ACT_SIGMOID) * v[i] +
                       activate_float16(vload16(i, g.p + r * g.ld + columns), ACT_SIGMOID) * vload16(i, b.p + r * b.ld);
            else if (b.p)
                v[i] += vload16(i, b.p + r * b.ld);
            if (t[NUMBERS + 3]) v[i] = clamp(v[i], -bound, bound);
        }
        norm_row(v, vectors, table + t[NUMBERS], table + t[NUMBERS + 1], as_float(t[NUMBERS + 2]));
        for (int i = 0; i < vectors; i++) put16(y.p + r * y.ld + i * 16, activate_float16(v[i], t[2]));
    }
}

/* ---- boxes ---- */

/* y = sigmoid(a + b), or of a and the logit of b (portable/box). */
NOINLINE void box_sigmoid(const state *s, __global const int *t) {
    const place y = place_of(s, t + OUT), a = place_of(s, t + A), b = place_of(s, t + B);
    for (int r = 0; r < s->count; r++)
        for (int c = 0; c < t[1]; c++) {
            const float v = b.p[r * b.ld + c];
            y.p[r * y.ld + c] = sigmoid(a.p[r * a.ld + c] + (t[0] == BOX_REFINE ? logit(v) : v));
        }
}

/* One instruction each; fmax and fmin would also order NaN. */
#define MORE(a, b) ((a) > (b) ? (a) : (b))
#define LESS(a, b) ((a) > (b) ? (b) : (a))

/* corners = a + b; y: the box of the integrals of the four sides around the first boxes c (portable/box's fdr). Numbers: the
 * bins' offsets at, scale. */
NOINLINE void fdr(const state *s, __global const int *t, from_t table) {
    const place y = place_of(s, t + OUT), corners = place_of(s, t + WHOLE), a = place_of(s, t + A);
    const place b = place_of(s, t + B), first = place_of(s, t + C);
    from_t project = table + t[NUMBERS];
    const float scale = as_float(t[NUMBERS + 1]);
    const float16 w0 = vload16(0, project), w1 = vload16(1, project);
    for (int r = 0; r < s->count; r++) {
        float side[4];
        for (int k = 0; k < 4; k++) {
            const int at = k * BINS;
            float16 c0 = vload16(0, a.p + r * a.ld + at), c1 = vload16(1, a.p + r * a.ld + at);
            float c2 = a.p[r * a.ld + at + 32];
            if (b.p) {
                c0 += vload16(0, b.p + r * b.ld + at);
                c1 += vload16(1, b.p + r * b.ld + at);
                c2 += b.p[r * b.ld + at + 32];
            }
            put16(corners.p + r * corners.ld + at, c0);
            put16(corners.p + r * corners.ld + at + 16, c1);
            corners.p[r * corners.ld + at + 32] = c2;
            const bins q = bins_of_vectors(c0, c1, c2, w0, w1, project[32]);
            side[k] = q.weighted / q.total;
        }
        const float4 box = vload4(0, first.p + r * first.ld), d = vload4(0, side);
        const float2 over = moved_sides(box.x, box.z, d.x, d.z, scale), down = moved_sides(box.y, box.w, d.y, d.w, scale);
        vstore4((float4)(over.x, down.x, over.y, down.y), 0, y.p + r * y.ld);
    }
}

/* The larger of each lane into a, the smaller into b. */
#define ORDER(V, a, b)                                                                                                 \
    {                                                                                                                  \
        const V more = MORE(a, b);                                                                                     \
        b = LESS(a, b);                                                                                                \
        a = more;                                                                                                      \
    }
/* Lanes of falling lists of four (a, b, c, d): the four largest of the two halves of each, falling again. */
#define MERGE(V, H)                                                                                                    \
    {                                                                                                                  \
        H p = MORE(a.lo, d.hi), q = MORE(b.lo, c.hi), u = MORE(c.lo, b.hi), v = MORE(d.lo, a.hi);                      \
        ORDER(H, p, u)                                                                                                 \
        ORDER(H, q, v)                                                                                                 \
        ORDER(H, p, q)                                                                                                 \
        ORDER(H, u, v)                                                                                                 \
        MERGED(p, q, u, v)                                                                                             \
    }

/* The four largest of 33, falling; NaN is passed over. */
static inline float4 four_largest(from_t from) {
    float16 c0 = vload16(0, from), c1 = vload16(1, from);
    c0 = c0 == c0 ? c0 : (float16)(-INFINITY);
    c1 = c1 == c1 ? c1 : (float16)(-INFINITY);
    float8 a = c0.lo, b = c0.hi, c = c1.lo, d = c1.hi;
    ORDER(float8, a, b)
    ORDER(float8, c, d)
    ORDER(float8, a, c)
    ORDER(float8, b, d)
    ORDER(float8, b, c)
    float4 e, f, g, h;
    float2 i, j, k, l;
    float w, x, y, z;
#define MERGED(p, q, u, v) e = p, f = q, g = u, h = v;
    MERGE(float8, float4)
#undef MERGED
#define MERGED(p, q, u, v) i = p, j = q, k = u, l = v;
    {
        const float4 a = e, b = f, c = g, d = h;
        MERGE(float4, float2)
    }
#undef MERGED
#define MERGED(p, q, u, v) w = p, x = q, y = u, z = v;
    {
        const float2 a = i, b = j, c = k, d = l;
        MERGE(float2, float)
    }
#undef MERGED
    float last = from[32];
    last = last == last ? last : -INFINITY;
    ORDER(float, w, last)
    ORDER(float, x, last)
    ORDER(float, y, last)
    return (float4)(w, x, y, MORE(z, last));
}

/* The four largest probabilities of each side of a and their mean (portable/box's lqe). */
NOINLINE void lqe(const state *s, __global const int *t) {
    const place y = place_of(s, t + OUT), x = place_of(s, t + A);
    for (int r = 0; r < s->count; r++)
        for (int k = 0; k < 4; k++) {
            from_t c = x.p + r * x.ld + k * BINS;
            const float4 top = four_largest(c);
            const float16 e = ist_exp_float16(vload16(0, c) - top.x) + ist_exp_float16(vload16(1, c) - top.x);
            const float4 p = probabilities(top, sum16(e) + ist_exp_float(c[32] - top.x));
            vstore4(p, 0, y.p + r * y.ld + 5 * k);
            y.p[r * y.ld + 5 * k + 4] = mean_of(p);
        }
}

/* ---- what is read at other rows ---- */

/* y = row b[i] of a tensor with NUMBERS rows. */
NOINLINE void gather(const state *s, __global const int *t) {
    const place y = place_of(s, t + OUT), index = place_of(s, t + B);
    from_t x = whole(s, t + WHOLE, t[NUMBERS]);
    for (int r = 0; r < s->count; r++) {
        from_t row = x + (size_t)((__global const int *)index.p)[r * index.ld] * t[WHOLE + 2];
        for (int c = 0; c < t[1]; c += 16) put_some(y.p + r * y.ld + c, get_some(row + c, t[1] - c), t[1] - c);
    }
}

/* Where one head of one row looks: first element of the token and weight of neighbour k of point p at [k * POINTS +
 * p]. */
typedef struct samples {
    int from[POINTS * 4];
    float weight[POINTS * 4];
} samples;

static inline void put_neighbour(samples *s, int at, int16 x, int16 y, int16 width, int16 height, int16 first, int ld,
                                 float16 weight) {
    const int16 in = x >= (int16)(0) && x < width && y >= (int16)(0) && y < height;
    const int16 token = first + clamp(y, (int16)(0), height - 1) * width + clamp(x, (int16)(0), width - 1);
    vstore16(token * ld, 0, s->from + at);
    vstore16(select((float16)(0.0f), weight, in), 0, s->weight + at);
}

/* As in portable/deform; `points` [4][pad]: width, height, first token and reach of each point. */
static inline void find_samples(samples *s, from_t offsets, from_t weights, float4 box, from_t points, int count,
                                int ld) {
    const int pad = (count + 15) / 16 * 16;
    const int16 lane = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    float e[POINTS], ox[POINTS], oy[POINTS];
    float16 most = (float16)(LOWEST), sum = (float16)(0.0f);
    for (int p = 0; p < pad; p++) { /* the lanes beyond the last point repeat it */
        const int from = min(p, count - 1);
        e[p] = weights[from];
        ox[p] = offsets[2 * from];
        oy[p] = offsets[2 * from + 1];
    }
    for (int p = 0; p < pad; p += 16) most = larger(most, vload16(0, e + p));
    most = (float16)(largest_of_16(most));
    for (int p = 0; p < pad; p += 16) {
        const float16 v = ist_exp_float16(vload16(0, e + p) - most);
        vstore16(v, 0, e + p);
        sum += select((float16)(0.0f), v, lane + p < count);
    }
    const float16 share = (float16)(1.0f / sum16(sum));
    for (int p = 0; p < pad; p += 16) {
        const float16 width = vload16(0, points + p), height = vload16(0, points + pad + p);
        const float16 reach = vload16(0, points + 3 * pad + p), edge = (float16)(-2.0f);
        const float16 lx = fma(vload16(0, ox + p) * reach, (float16)(box.z), (float16)(box.x));
        const float16 ly = fma(vload16(0, oy + p) * reach, (float16)(box.w), (float16)(box.y));
        /* So far outside at most that no neighbour is inside, before it becomes an int. */
        const float16 x = fmin(fmax(fma(lx, width, (float16)(-0.5f)), edge), width + 1.0f);
        const float16 y = fmin(fmax(fma(ly, height, (float16)(-0.5f)), edge), height + 1.0f);
        const float16 fx = floor(x), fy = floor(y), bx = x - fx, by = y - fy;
        const float16 a = vload16(0, e + p) * share;
        const int16 x0 = convert_int16(fx), y0 = convert_int16(fy), iw = convert_int16(width);
        const int16 ih = convert_int16(height), first = convert_int16(vload16(0, points + 2 * pad + p));
        put_neighbour(s, p, x0, y0, iw, ih, first, ld, (1.0f - bx) * (1.0f - by) * a);
        put_neighbour(s, POINTS + p, x0 + 1, y0, iw, ih, first, ld, bx * (1.0f - by) * a);
        put_neighbour(s, 2 * POINTS + p, x0, y0 + 1, iw, ih, first, ld, (1.0f - bx) * by * a);
        put_neighbour(s, 3 * POINTS + p, x0 + 1, y0 + 1, iw, ih, first, ld, bx * by * a);
    }
}

/* Asks for the first cache line of every token that is looked at. */
static inline void expect_samples(const samples *s, from_t memory, int count) {
    for (int k = 0; k < 4 * POINTS; k += POINTS)
        for (int p = 0; p < count; p++) PREFETCH(memory + s->from[k + p]);
}

/* Numbers: table at, heads, points, channels of a head (a multiple of 16), tokens. a: offsets, b: weights, c: boxes.
 * Places are found and asked for one head ahead of the sums. */
NOINLINE void deform(const state *s, __global const int *t, from_t table) {
    const place y = place_of(s, t + OUT), offsets = place_of(s, t + A), weights = place_of(s, t + B);
    const place box = place_of(s, t + C);
    const int heads = t[NUMBERS + 1], points = t[NUMBERS + 2], d = t[NUMBERS + 3], ld = t[WHOLE + 2];
    from_t memory = whole(s, t + WHOLE, t[NUMBERS + 4]);
    samples both[2];
    for (int i = 0; i <= s->count * heads; i++) {
        if (i < s->count * heads) {
            const int r = i / heads, h = i - r * heads;
            samples *next = both + i % 2;
            find_samples(next, offsets.p + r * offsets.ld + h * points * 2, weights.p + r * weights.ld + h * points,
                         vload4(0, box.p + r * box.ld), table + t[NUMBERS], points, ld);
            expect_samples(next, memory + h * d, points);
        }
        if (i == 0) continue;
        const samples *at = both + (i - 1) % 2;
        const int r = (i - 1) / heads, h = i - 1 - r * heads;
        for (int c = h * d; c < h * d + d; c += 16) {
            float16 a0 = (float16)(0.0f), a1 = a0, a2 = a0, a3 = a0;
            for (int p = 0; p < points; p++) {
                const int p1 = p + POINTS, p2 = p + 2 * POINTS, p3 = p + 3 * POINTS;
                a0 = fma((float16)(at->weight[p]), vload16(0, memory + at->from[p] + c), a0);
                a1 = fma((float16)(at->weight[p1]), vload16(0, memory + at->from[p1] + c), a1);
                a2 = fma((float16)(at->weight[p2]), vload16(0, memory + at->from[p2] + c), a2);
                a3 = fma((float16)(at->weight[p3]), vload16(0, memory + at->from[p3] + c), a3);
            }
            put16(y.p + r * y.ld + c, (a0 + a1) + (a2 + a3));
        }
    }
}

/* ---- the depthwise convolution behind a map ---- */

/* Output pixels [x, x + COUNT) of a line: lines[0..2] are its window's (lines from `ky0` on), kx from `kx0` on. w
 * [9][columns]. Channels run innermost, since neighbours in memory are what a core fetches ahead; sums are named, since
 * LLVM leaves an array of them in memory. */
#define FIRST(i) float16 a##i = first;
#define TAP(i)   a##i = fma(vload16(0, from + (2 * i + kx) * ld), wv, a##i);
#define LAST(i)  put16(y + (x + i) * y_ld + c, activate_float16(a##i, act));
#define EACH1(F) F(0)
#define EACH4(F) F(0) F(1) F(2) F(3)
#define DEFINE_WINDOW(F, COUNT)                                                                                        \
    NOINLINE void F(to_t y, int y_ld, const from_t *lines, int ld, int x, int ky0, int kx0, from_t w,                  \
                    int columns, from_t bias, int act) {                                                               \
        for (int c = 0; c < columns; c += 16) {                                                                        \
            const float16 first = bias ? vload16(0, bias + c) : (float16)(0.0f);                                       \
            EACH##COUNT(FIRST)                                                                                         \
            for (int ky = ky0; ky < 3; ky++) {                                                                         \
                from_t from = lines[ky] + (2 * x - 1) * ld + c;                                                        \
                for (int kx = kx0; kx < 3; kx++) {                                                                     \
                    const float16 wv = vload16(0, w + (ky * 3 + kx) * columns + c);                                    \
                    EACH##COUNT(TAP)                                                                                   \
                }                                                                                                      \
            }                                                                                                          \
            EACH##COUNT(LAST)                                                                                          \
        }                                                                                                              \
    }
DEFINE_WINDOW(window1, 1)
DEFINE_WINDOW(window4, 4)

/* 3x3, stride 2, padding 1: the output line whose window ends with the group's last line. Numbers: weights at, bias at
 * or -1. Extents of the input are even, so that only the first line and column are padding. */
NOINLINE void depthwise(const state *s, __global const int *t, from_t table) {
    const int columns = t[1], width = s->width, line = s->first / width, ld = t[A + 2], out = width / 2;
    const int ky0 = line == 0;
    from_t lines[3] = {0}, from = s->at[t[A] & 255] + t[A + 1], w = table + t[NUMBERS];
    from_t bias = t[NUMBERS + 1] < 0 ? 0 : table + t[NUMBERS + 1];
    for (int k = ky0; k < 3; k++) {
        const int l = line - 1 + k;
        lines[k] = from + (size_t)(t[A] & RING ? l % 4 * width : s->n * s->rows + l * width) * ld;
    }
    to_t y = s->at[t[OUT] & 255] + t[OUT + 1] + (size_t)(s->n * (s->rows / 4) + line / 2 * out) * t[OUT + 2];
    window1(y, t[OUT + 2], lines, ld, 0, ky0, 1, w, columns, bias, t[2]);
    int x = 1;
    for (; x + 4 <= out; x += 4) window4(y, t[OUT + 2], lines, ld, x, ky0, 0, w, columns, bias, t[2]);
    for (; x < out; x++) window1(y, t[OUT + 2], lines, ld, x, ky0, 0, w, columns, bias, t[2]);
}

static void run(const state *s, __global const int *tape, int steps, from_t weights, from_t table) {
    for (int i = 0; i < steps; i++) {
        __global const int *t = tape + i * WORDS;
        switch (t[0]) {
#ifdef PARTS
        case LINEAR_PARTS: linear_parts(s, t, weights, table); break;
#endif
        case LINEAR: linear(s, t, weights, table); break;
        case SUM: sum(s, t); break;
        case GATE:
        case NORM: norm(s, t, table); break;
        case DEFORM: deform(s, t, table); break;
        case GATHER: gather(s, t); break;
        case BOX_INIT:
        case BOX_REFINE: box_sigmoid(s, t); break;
        case FDR: fdr(s, t, table); break;
        case LQE: lqe(s, t); break;
        default: depthwise(s, t, table);
        }
    }
}

/* As many groups as compute units; a piece of work is some tiles of rows of one item. Where the last step is a
 * depthwise convolution it is some lines of its result, which are made one by one from two more lines of the map, and
 * at first the one above. */
__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
sequence(__global float *scratch, __global const int *tape, __global const float *weights, __global const float *table,
      __global const int *limit, volatile __global int *queue, __global float *e0, __global float *e1,
      __global float *e2, __global float *e3, __global float *e4, __global float *e5, __global float *e6,
      __global float *e7, __global float *e8, __global float *e9, __global float *e10, __global float *e11,
      __global float *e12, __global float *e13, __global float *e14, __global float *e15, __global float *e16,
      __global float *e17, __global float *e18, __global float *e19, cpu_sequence_args arg) {
    const int rows = arg.rows, per = arg.pieces, tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    state s = {{scratch + (size_t)get_group_id(0) * arg.scratch_floats, e0, e1, e2, e3, e4, e5, e6, e7, e8, e9, e10,
                e11, e12, e13, e14, e15, e16, e17, e18, e19}, 0, rows, 0, 0, arg.map_width};
    s.squares = (size_t)(s.at[0] + arg.squares_at);
#ifdef PARTS
    amx_begin();
#endif
    work_t work = work_begin((int)get_num_groups(0), min(arg.items, *limit) * per, arg.backwards);
    for (int item = work_next(&work, queue); item >= 0; item = work_next(&work, queue)) {
        s.n = item / per;
        const int k = item - s.n * per, units = s.width ? rows / s.width / 2 : tiles; /* pairs of lines, or tiles */
        const int from = k * units / per, to = (k + 1) * units / per;
        if (s.width) {
            for (int o = from > 0 ? from - 1 : 0; o < to; o++) {
                s.first = (2 * o + (o < from)) * s.width;
                s.count = (2 - (o < from)) * s.width;
                run(&s, tape, o < from ? arg.steps - 1 : arg.steps, weights, table);
            }
        } else {
            s.first = from * TILE_ROWS;
            s.count = min(to * TILE_ROWS, rows) - s.first;
            run(&s, tape, arg.steps, weights, table);
        }
    }
#ifdef PARTS
    amx_end();
#endif
    work_end(&work, queue);
}
