/* SAM's mask upscaling (graph/nodes.h) for CPUs with AMX: one work-item per group, needs cpu/tile, cpu/upscale_parts,
 * cpu/amx.
 *
 * What cpu/upscale makes, 32 pixels and a phase of the first convolution at a time. While the matrix unit makes the
 * first product of one such item, the vector units finish that of the item before (norm, GELU, split) and split pixels
 * that follow; while it makes that item's second product, they take the logits of the one before.
 * -D K: most input channels, a multiple of 32. */
#define PITCH(channels) (((channels) / 32 | 1) * 32) /* odd in cache lines: rows of a tile lie in as many sets */
#define DEPTH_MAX       (K > 128 ? K : 128)
#define PLANE_X         (AMX_BLOCK * PITCH(DEPTH_MAX))
#define PITCH_U         PITCH(C1)
#define PLANE_U         (AMX_BLOCK * PITCH_U)
#define STEP_BYTES      (PARTS * AMX_PANEL * 2) /* of weights */

/* What there is to do beside a product: units of three kinds, one after the other. */
typedef struct {
    int four, fours, row, rows; /* of the first product, to be measured by four and to become u: */
    float *first;               /* [32][C1] */
    float *scales;              /* [32]: 1 / deviations */
    size_t u;                    /* PARTS planes */
    __global const float *norm;
    float eps;
    __global const float *image; /* prompts that share: the image's rows, `ld` apart, or 0 */
    int ld;
    const int *image_rows;       /* [32]: which of them */
    const float16 *rest;         /* [2][C1 / 16] */
    const float2 *factors;       /* [32] */

    int pixel, pixels;                    /* to be split */
    const int *pixel_rows;                /* [32]: of */
    __global const T *x;                  /* the item's pixels, ldx apart, or */
    __global const float *trace, *trace2; /* its updates */
    int ldx, steps;                       /* steps of the first product */
    size_t to, pitch;
    float2 *factors_to;

    int pair, pairs; /* rows of the second product by two, of one line and then of the other */
    const float *second; /* [32][2][2][C2] */
    __global float *y;
    const int *at;
    int here, wide, masks, mask_step; /* rows that exist, line, masks and their distance */
    __global const T *vectors_of;
    int vectors_ld;
} beside_t;

/* Scales of four rows from r on, whose mean is zero: one row at a time would wait for itself. Prompts that share: their
 * rows become whole before. */
static inline void measure_rows(const beside_t *b, int r) {
    float16 square[4];
    float *row = b->first + r * C1;
    UNROLL for (int j = 0; j < 4; j++, row += C1) {
        float16 v[4];
        UNROLL for (int i = 0; i < 4; i++) v[i] = vload16(i, row);
        if (b->image) {
            const float2 f = b->factors[r + j];
            __global const float *image = b->image + (size_t)b->image_rows[r + j] * b->ld;
            UNROLL for (int i = 0; i < 4; i++) {
                v[i] = fma(vload16(i, image) + b->rest[i], (float16)(f.x), v[i]);
                v[i] = fma(b->rest[4 + i], (float16)(f.y), v[i]);
                vstore16(v[i], i, row);
                PREFETCH_L2(image + (size_t)AMX_BLOCK * b->ld + i * 16);
            }
        }
        square[j] = fma(v[0], v[0], v[1] * v[1]) + fma(v[2], v[2], v[3] * v[3]);
    }
    float16 all = sums_of_four(square[0], square[1], square[2], square[3]);
    all += LANES(all, all, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    all = LANES(all, all, 0, 4, 8, 12, 0, 4, 8, 12, 1, 5, 9, 13, 1, 5, 9, 13);
    const float4 variance = (all.lo.lo + all.hi.lo) * (float4)(1.0f / C1);
    vstore4((float4)(1.0f) / sqrt(variance + (float4)(b->eps)), 0, b->scales + r);
}

/* A measured row becomes u. */
static inline void finish_first(const beside_t *b, int r) {
    const float16 scale = (float16)(b->scales[r]);
    const size_t to = b->u + r * PITCH_U * 2;
    float16 u[4];
    UNROLL for (int i = 0; i < 4; i++) {
        const float16 v = vload16(i, b->first + r * C1) * scale;
        u[i] = ist_gelu_float16(fma(v, vload16(i, b->norm), vload16(4 + i, b->norm)));
    }
    amx_split(u[0], u[1], to, PLANE_U);
    amx_split(u[2], u[3], to + 64, PLANE_U);
}

static inline void split_pixel(const beside_t *b, int r) {
    const size_t to = b->to + r * b->pitch * 2, at = b->pixel_rows[r];
    if (!b->trace) {
        __global const T *x = b->x + at * b->ldx;
        for (int i = 0; i < b->steps; i++) {
            amx_split(LOAD16(x, i * 32), LOAD16(x, i * 32 + 16), to + i * 64, PLANE_X);
            PREFETCH_L2(x + 8 * b->ldx + i * 32);
            PREFETCH_L2(x + 8 * b->ldx + i * 32 + 16);
        }
        return;
    }
    __global const float *t = b->trace + at * TRACE, *t2 = b->trace2 + at * TRACE;
    const float f2 = t2[TRACE - 1], both = t[TRACE - 1] * f2;
    b->factors_to[r] = (float2)(both, f2);
    for (int i = 0; i < b->steps; i++) {
        amx_split(vload16(i, t) * (float16)(both), vload16(i, t2) * (float16)(f2), to + i * 64, PLANE_X);
        PREFETCH_L2(t + 8 * TRACE + i * 16);
        PREFETCH_L2(t2 + 8 * TRACE + i * 16);
    }
}

static inline void take_logits(const beside_t *b, int i) {
    const int line = i / (AMX_BLOCK / 2), r = i % (AMX_BLOCK / 2) * 2;
    if (r >= b->here) return;
    float16 v[8];
    UNROLL for (int j = 0; j < 8; j++)
        v[j] = ist_gelu_float16(vload16(j % 4, b->second + (r + j / 4) * 4 * C2 + line * 2 * C2));
    for (int m = 0; m < b->masks; m++) {
        __global const T *vector = b->vectors_of + m * b->vectors_ld;
        dot_rows(b->y + m * b->mask_step + line * b->wide, b->at + r, b->here - r, v, LOAD16(vector, 0),
                 LOAD16(vector, 16));
    }
}

NOINLINE void beside_unit(beside_t *b) {
    if (b->four < b->fours)
        measure_rows(b, b->four++ * 4);
    else if (b->row < b->rows)
        finish_first(b, b->row++);
    else if (b->pixel < b->pixels)
        split_pixel(b, b->pixel++);
    else
        take_logits(b, b->pair++);
}
static inline int beside_count(const beside_t *b) {
    return b->fours - b->four + b->rows - b->row + b->pixels - b->pixel + b->pairs - b->pair;
}
NOINLINE void beside_all(beside_t *b) {
    for (int left = beside_count(b); left > 0; left--) beside_unit(b);
}

/* to [32][columns] = `from`, a row of floats, repeated every `period` columns, + rows [part][32][pitch] times panels,
 * `steps` each. Addresses. */
NOINLINE void product(beside_t *b, size_t to, int columns, size_t from, int period, size_t rows, size_t pitch,
                      size_t plane, size_t panel, int steps) {
    const size_t end = panel + (columns / AMX_BLOCK * steps - 1) * STEP_BYTES; /* the last step's */
    BESIDE_BEGIN(beside_count(b), columns / AMX_BLOCK * steps * AMX_PAUSES)
    AMX_FIRST(rows, pitch, plane, panel)
    for (int j = 0; j < columns; j += AMX_BLOCK, to += AMX_BLOCK * 4) {
        size_t a = rows;
        amx_start(to, columns, from + j % period * 4, 0);
        for (int i = 0; i < steps; i++) {
            const size_t a0 = a, b0 = panel;
            a = i + 1 < steps ? a + AMX_DEPTH * 2 : rows;
            panel += panel < end ? STEP_BYTES : 0;
            AMX_STEP_THEN(to, columns, a0, pitch, plane, b0, AMX_FIRST(a, pitch, plane, panel),
                          BESIDE_PAUSE(beside_unit(b);))
        }
        amx_finish(to, columns);
    }
    BESIDE_FINISH(beside_unit(b);)
}

/* The columns of both updates as panels [phase][half of C1], pairs of one of each, zeros behind `depth` of them. */
NOINLINE void pack_values(size_t to, __global const float *values1, __global const float *values2, int depth,
                          int columns, int steps) {
    for (int phase = 0; phase < 4; phase++)
        for (int c = 0; c < C1; c += AMX_BLOCK, to += steps * STEP_BYTES)
            for (int k = 0; k < steps * 16; k++) {
                const int at = (phase * columns + k) * C1 + c;
                for (int h = 0; h < 2; h++) {
                    const float16 zero = (float16)(0.0f);
                    const float16 v = k < depth ? vload16(h, values1 + at) : zero;
                    const float16 w = k < depth ? vload16(h, values2 + at) : zero;
                    amx_split(v, w, to + k / 16 * STEP_BYTES + h * 1024 + k % 16 * 64, AMX_PANEL);
                }
            }
}

/* Group (n, i): group_pixels of the pixels of item n that are seen (portable/tokens_seen). Prompts of an
 * image follow each other on the same pixels, so that its rows come once to the second-level cache. Arguments as those
 * of cpu/upscale, but for w1 [2a + b][C1 / 32][K / 32] and w2 [(c, d)][C1 / 32], panels' steps whose pairs are as
 * amx_split makes them. */
NOINLINE void upscale_group(__global float *restrict y, __global const T *restrict x,
                            __global const ushort *restrict w1, __global const float *restrict norm,
                            __global const ushort *restrict w2, __global const float *restrict b2,
                            __global const T *restrict vectors, __global const float *restrict shared,
                            __global const float *restrict trace, __global const float *restrict values1,
                            __global const float *restrict values2, __global const float *restrict constants,
                            __global const int *restrict map, __global const int *restrict ways,
                            __global const int *restrict limit, __global const int *restrict content,
                            __global const int *restrict image_of, cpu_upscale_args arg, const int4 group) {
    const int n = group.x, w = arg.common.w, pixels = arg.common.h * w, wide = w * 4;
    if (n >= *limit) return;
    const int2 shown = tokens_seen(content, image_of, n, arg.common.seen, (int2)(w, arg.common.h));
    const int first = group_by_turns(group.y, (pixels + arg.group_pixels - 1) / arg.group_pixels) * arg.group_pixels;
    const int last = min(shown.x * shown.y, first + arg.group_pixels);
    if (first >= last) return;
    const int columns = arg.sharing.value_columns && ways[n] ? arg.sharing.value_columns : 0;
    const int depth = arg.sharing.noted_columns, masks = arg.common.vectors;
    const int blocks = (last - first + AMX_BLOCK - 1) / AMX_BLOCK, items = blocks * 4;
    const int steps = columns ? (depth + 15) / 16 : arg.x_c / AMX_DEPTH;
    uint16 xs[2][PARTS * PLANE_X / 32], u[PARTS * PLANE_U / 32], panels[8 * 4 * PARTS * AMX_PANEL / 32];
    float16 s1[2][AMX_BLOCK * C1 / 16], s2[2][AMX_BLOCK * 4 * C2 / 16], rest[4 * 8];
    float scales[AMX_BLOCK];
    float2 factors[2][AMX_BLOCK];
    int pixel[4][AMX_BLOCK], at[4][AMX_BLOCK]; /* of blocks; at: of a pixel's first logit */
    size_t weights = (size_t)w1;
    beside_t b = {.u = (size_t)u,
                  .norm = norm + C1,
                  .eps = arg.common.eps,
                  .scales = scales,
                  .ld = arg.sharing.image_ld,
                  .x = x + (size_t)n * pixels * arg.common.x_ld + arg.common.x_c0,
                  .ldx = arg.common.x_ld,
                  .trace = columns ? trace + (size_t)n * pixels * 2 * TRACE : 0,
                  .trace2 = trace + (size_t)(n * 2 + 1) * pixels * TRACE,
                  .steps = steps,
                  .pitch = PITCH(steps * AMX_DEPTH),
                  .masks = masks,
                  .mask_step = pixels * 16,
                  .wide = wide,
                  .vectors_of = vectors + (size_t)n * masks * arg.common.vectors_ld + arg.common.vectors_c0,
                  .vectors_ld = arg.common.vectors_ld};
    if (columns) {
        shared += (size_t)map[n] * arg.sharing.image_length * arg.sharing.image_ld + arg.sharing.image_c0;
        values1 += (size_t)n * 4 * columns * C1;
        values2 += (size_t)n * 4 * columns * C1;
        sum_constants(rest, constants, values1, values2, depth, columns);
        weights = (size_t)panels;
        pack_values(weights, values1, values2, depth, columns, steps);
    }
    y += (size_t)n * masks * pixels * 16;
    amx_begin();
    /* Item i, phase i % 4 of block i / 4: its first product, and the second of the item before. Before the first block
     * and behind the last, items have no product. */
    for (int i = -4; i < items + 2; i++) {
        const int next = i >> 2, phase = i & 3, before = i - 1, done = i - 2;
        b.four = b.fours = b.row = b.rows = b.pixel = b.pixels = b.pair = b.pairs = 0;
        if (before >= 0 && before < items) { /* the first product that is to be finished */
            b.first = (float *)s1[before & 1];
            b.fours = AMX_BLOCK / 4;
            b.rows = AMX_BLOCK;
            b.image = columns ? shared + (before & 3) * C1 : 0;
            b.image_rows = pixel[before >> 2 & 3];
            b.rest = rest + (before & 3) * 8;
            b.factors = factors[(before >> 2) & 1];
        }
        if (next + 1 < blocks) { /* a quarter of the next block's pixels */
            if (phase == 0)
                place_tokens(pixel[next + 1 & 3], at[next + 1 & 3], AMX_BLOCK, first + (next + 1) * AMX_BLOCK, last - 1,
                             shown.x, w);
            b.pixel_rows = pixel[next + 1 & 3];
            b.pixel = phase * (AMX_BLOCK / 4);
            b.pixels = b.pixel + AMX_BLOCK / 4;
            b.to = (size_t)xs[(next + 1) & 1];
            b.factors_to = factors[(next + 1) & 1];
        }
        if (i >= 0 && i < items) {
            product(&b, (size_t)s1[i & 1], C1, (size_t)(columns ? constants + (phase * 3 + 2) * C1 : norm), C1,
                    (size_t)xs[next & 1], b.pitch, PLANE_X, weights + phase * 2 * steps * STEP_BYTES, steps);
        } else {
            beside_all(&b);
        }
        if (done >= 0) { /* logits of the second product before */
            const int p = first + (done >> 2) * AMX_BLOCK, quarter = done & 3;
            b.pairs = AMX_BLOCK;
            b.second = (const float *)s2[done & 1];
            b.at = at[done >> 2 & 3];
            b.here = min(AMX_BLOCK, last - p);
            b.y = y + (quarter >> 1) * 2 * wide + (quarter & 1) * 2;
        }
        if (before >= 0 && before < items) {
            product(&b, (size_t)s2[before & 1], 4 * C2, (size_t)b2, C2, (size_t)u, PITCH_U, PLANE_U, (size_t)w2,
                    C1 / AMX_DEPTH);
        } else {
            beside_all(&b);
        }
    }
    amx_end();
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
upscale(__global float *restrict y, __global const T *restrict x, __global const ushort *restrict w1,
        __global const float *restrict norm, __global const ushort *restrict w2, __global const float *restrict b2,
        __global const T *restrict vectors, __global const float *restrict shared, __global const float *restrict trace,
        __global const float *restrict values1, __global const float *restrict values2,
        __global const float *restrict constants, __global const int *restrict map, __global const int *restrict ways,
        __global const int *restrict limit, __global const int *restrict content, __global const int *restrict image_of,
        cpu_upscale_args arg) {
    upscale_group(y, x, w1, norm, w2, b2, vectors, shared, trace, values1, values2, constants, map, ways, limit,
                  content, image_of, arg, THIS_GROUP);
}
