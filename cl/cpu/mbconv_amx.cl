/* Inverted bottleneck for CPUs with AMX (graph/nodes.h): 1x1 expansion, 3x3 depthwise, 1x1 projection in one pass,
 * so that the wide map between them never leaves the second-level cache. One work-item per group; needs cpu/tile,
 * cpu/repeated_rows, cpu/amx.
 *
 * A piece of work is a band of output rows of one column segment. The last three rows of the expanded map, columns of
 * padding included, lie in the group's part of `scratch` as a ring of lines [step][pixel][32]. Of rows of the
 * result that are alike a piece makes its first and copies it.
 *
 * The vector units work while the matrix unit does: a task is what they do to eight vectors, 4 rows of 32 channels, and
 * each pause of a product takes its share of those that are due.
 *
 * Sizes are arguments: one kernel does all blocks. -D MOST: channels that come in, or of the expanded map, at most. */
#define ROWS       4                  /* of a task */
#define TASKS      (AMX_BLOCK / ROWS) /* of a block of sums */
#define LAG        3                  /* tasks before the first of these, where there are others */
#define PART       (AMX_BLOCK * AMX_DEPTH) /* [32 rows][32]: a part of a step's rows */
#define STEP_ROWS  (PARTS * PART)
#define STEP_LINES (PARTS * AMX_BLOCK) /* the same in cache lines */
#define MOST_LINES (MOST / AMX_DEPTH * STEP_LINES)

typedef struct {
    int steps, deep, stride, act;                         /* x's and the expanded map's channels / 32; of the block */
    int lines;                                            /* pixels of 32 channels of a line, with those past its end */
    int split, splits, finish, finishes, spread, spreads; /* tasks: done, and to be done with the next product */
    int done;                                             /* of all these, with this one */
    size_t near, near_end;                                /* memory to ask for, a line a pause */
    /* x, split to `u`: its rows, the last of which stands for those after it */
    __global const float *x;
    int ldx, x_rows;
    ushort *u;
    /* sums [32][32], which get bias, residual or 0, and activation; where the next ones go */
    float *sums, *free;
    int rows, ldy, ld_add;
    bool result; /* or the expansion's */
    __global const float *bias, *add;
    __global float *y;
    /* the depthwise filter: its lines at 32 output pixels, weights [channel / 16][9][16], biases, where it goes split */
    __global const float *e[3], *w2, *b2;
    ushort *d;
} bottleneck_t;

NOINLINE void split_task(const bottleneck_t *b, int task) {
    const int step = task / TASKS, first = task % TASKS * ROWS, last = b->x_rows - 1, ld = b->ldx;
    __global const float *x = b->x + step * AMX_DEPTH;
    ushort *to = b->u + step * STEP_ROWS + first * AMX_DEPTH;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        __global const float *row = x + min(first + r, last) * (size_t)ld;
        amx_split(vload16(0, row), vload16(1, row), (size_t)(to + r * AMX_DEPTH), PART);
    }
}

/* Task `task` of the sums that wait: y is where the first of their 32 columns goes. */
#define FINISH_ROWS(activate)                                                                                          \
    const int first = task * ROWS, last = b->rows - 1;                                                                 \
    const size_t ldy = b->ldy, ld_add = b->ld_add;                                                                     \
    const float16 bias0 = vload16(0, b->bias), bias1 = vload16(1, b->bias);                                            \
    const float *sums = b->sums;                                                                                       \
    __global float *y = b->y;                                                                                          \
    _Pragma("unroll") for (int i = 0; i < ROWS; i++) {                                                                 \
        const int r = min(first + i, last);                                                                            \
        float16 v0 = vload16(0, sums + r * AMX_BLOCK) + bias0, v1 = vload16(1, sums + r * AMX_BLOCK) + bias1;          \
        if (add) {                                                                                                     \
            v0 += vload16(0, add + r * ld_add);                                                                        \
            v1 += vload16(1, add + r * ld_add);                                                                        \
        }                                                                                                              \
        vstore16(activate(v0), 0, y + r * ldy);                                                                        \
        vstore16(activate(v1), 1, y + r * ldy);                                                                        \
    }
#define ACTIVATE(v) activate_float16(v, b->act)
NOINLINE void finish_gelu(const bottleneck_t *b, int task, __global const float *add) {
    FINISH_ROWS(ist_gelu_float16)
}
NOINLINE void finish_other(const bottleneck_t *b, int task, __global const float *add) {
    FINISH_ROWS(ACTIVATE)
}

#define SUM_OPEN(r) float16 a##r = bias0, c##r = bias1;
#define SUM_TAP(r)                                                                                                     \
    a##r = fma(vload16(0, e + r * apart), w0, a##r);                                                             \
    c##r = fma(vload16(1, e + r * apart), w1, c##r);
#define SUM_COLUMN(kx)                                                                                                 \
    {                                                                                                                  \
        const float16 w0 = vload16(ky * 3 + kx, w), w1 = vload16(9 + ky * 3 + kx, w);                                  \
        SUM_TAP(0) SUM_TAP(1) SUM_TAP(2) SUM_TAP(3)                                                                    \
        e += AMX_DEPTH;                                                                                                \
    }
#define SUM_CLOSE(r)                                                                                                   \
    sums[2 * r] = a##r;                                                                                                \
    sums[2 * r + 1] = c##r;

/* gelu(depthwise sums) of ROWS output pixels and 32 channels, split. */
static inline __attribute__((always_inline)) void spread_rows(const bottleneck_t *b, int task, const int stride) {
    const int step = task / TASKS, first = task % TASKS * ROWS, apart = stride * AMX_DEPTH;
    const float16 bias0 = vload16(2 * step, b->b2), bias1 = vload16(2 * step + 1, b->b2);
    __global const float *w = b->w2 + step * 2 * 9 * 16;
    float16 sums[2 * ROWS];
    SUM_OPEN(0) SUM_OPEN(1) SUM_OPEN(2) SUM_OPEN(3)
    const int at = (step * b->lines + first * stride) * AMX_DEPTH;
#pragma unroll
    for (int ky = 0; ky < 3; ky++) {
        __global const float *e = b->e[ky] + at;
        SUM_COLUMN(0) SUM_COLUMN(1) SUM_COLUMN(2)
    }
    SUM_CLOSE(0) SUM_CLOSE(1) SUM_CLOSE(2) SUM_CLOSE(3)
    ushort *to = b->d + step * STEP_ROWS + first * AMX_DEPTH;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        amx_split(ist_gelu_float16(sums[2 * r]), ist_gelu_float16(sums[2 * r + 1]), (size_t)(to + r * AMX_DEPTH), PART);
}
/* Strides are constants: a load with an index register is one operation more beside each product. */
NOINLINE void spread_next(const bottleneck_t *b, int task) {
    spread_rows(b, task, 1);
}
NOINLINE void spread_other(const bottleneck_t *b, int task) {
    spread_rows(b, task, 2);
}

/* Sums are finished some time after the product that made them: the first ones would wait for its last, and the matrix
 * unit with them. */
static inline void next_task(bottleneck_t *b) {
    const bool finish = b->finish < b->finishes;
    b->done++;
    if (b->split < b->splits)
        split_task(b, b->split++);
    else if (b->spread < b->spreads && (b->done < LAG || !finish))
        b->stride == 1 ? spread_next(b, b->spread++) : spread_other(b, b->spread++);
    else if (!b->result || b->act == ACT_GELU)
        finish_gelu(b, b->finish++, b->result ? b->add : 0);
    else
        finish_other(b, b->finish++, b->add);
}

/* All of them; sums first, which the others may need. */
NOINLINE void do_tasks(bottleneck_t *b) {
    b->done = LAG;
    while (b->finish < b->finishes || b->split < b->splits || b->spread < b->spreads) next_task(b);
}

/* 32 columns' sums of 32 rows [step][part][32][32] and a panel, while tasks are done; then these sums are to be
 * finished. */
NOINLINE void product(bottleneck_t *b, const ushort *rows, __global const ushort *panel, int steps) {
    float *to = b->free;
    size_t sums = (size_t)to, a = (size_t)rows, w = (size_t)panel, near = b->near;
    const size_t lda = AMX_DEPTH, plane = PART, near_end = b->near_end;
    const int tasks = b->finishes - b->finish + b->splits - b->split + b->spreads - b->spread;
    const int rate = tasks * 256 / (steps * AMX_PAUSES);
    b->done = 0;
    amx_zero(sums, AMX_BLOCK);
    for (int i = 0, due = 0; i < steps; i++) {
        AMX_STEP(sums, AMX_BLOCK, a, lda, plane, w, PREFETCH_L2(near); near += near < near_end ? 64 : 0;
                 for (due += rate; due >= 256; due -= 256) next_task(b);)
        a += STEP_ROWS * sizeof(ushort);
        w += PARTS * AMX_PANEL * sizeof(ushort);
    }
    amx_finish(sums, AMX_BLOCK);
    do_tasks(b);
    b->near = near;
    b->free = b->sums;
    b->sums = to;
    b->finish = 0;
    b->finishes = TASKS;
}

static inline void zero_pixels(const bottleneck_t *b, __global float *line, int from, int to) {
    for (int step = 0; step < b->deep; step++)
        for (int i = from * 2; i < to * 2; i++) vstore16((float16)(0.0f), i, line + step * b->lines * AMX_DEPTH);
}

/* Input row iy, columns from ix on, expanded into `line`; zeros outside the map. With `spread`, the line is the last
 * that the first output pixels need: their depthwise sums are made as soon as they can be. */
NOINLINE void expand_line(bottleneck_t *b, __global float *line, int length, __global const float *x, int n, int iy,
                          int ix, __global const ushort *w1, __global const float *b1,
                          const cpu_mbconv_args common, bool spread) {
    const bool row = iy >= 0 && iy < common.x_h;
    const int from = row ? max(0, -ix) : length, to = row ? min(length, common.x_w - ix) : length;
    const int splits = b->steps * TASKS, spread_all = b->deep * TASKS;
    uint16 u[2 * MOST_LINES], *halves[2] = {u, u + b->steps * STEP_LINES};
    x += (((size_t)n * common.x_h + max(iy, 0)) * common.x_w + ix) * common.x_ld + common.x_c0;
    zero_pixels(b, line, 0, from);
    zero_pixels(b, line, to, length);
    b->near = (size_t)(x + ((size_t)common.x_w + from) * common.x_ld);
    b->near_end = b->near + (size_t)max(0, to - from) * common.x_ld * sizeof(float);
    b->ldx = common.x_ld;
    for (int t = from - AMX_BLOCK, half_of = 0; t < to; t += AMX_BLOCK, half_of ^= 1) {
        const int next = t + AMX_BLOCK;
        if (next < to) {
            b->x = x + (size_t)next * common.x_ld;
            b->x_rows = to - next;
            b->u = (ushort *)halves[half_of ^ 1];
            b->split = 0;
        }
        if (t < from) {
            b->splits = next < to ? splits : b->split;
            do_tasks(b);
            continue;
        }
        const bool spreads = spread && t - AMX_BLOCK >= (AMX_BLOCK - 1) * b->stride + 3;
        const int begun = b->spread, turns = (to - t + AMX_BLOCK - 1) / AMX_BLOCK * b->deep;
        for (int j = 0; j < b->deep; j++) {
            if (next < to) b->splits = splits * (j + 1) / b->deep;
            if (spreads) b->spreads = begun + (spread_all - begun) * (j + 1) / turns;
            product(b, (const ushort *)halves[half_of], w1 + j * b->steps * PARTS * AMX_PANEL, b->steps);
            b->rows = min(AMX_BLOCK, to - t);
            b->result = false;
            b->bias = b1 + j * AMX_BLOCK;
            b->y = line + (j * b->lines + t) * AMX_BLOCK;
            b->ldy = AMX_BLOCK;
        }
    }
}

/* Piece i of an item: segment i % segments, band i / segments; groups share them out by `queue` (see prelude). scratch
 * [group][3][hidden / 32][line_pixels + 31 strides][32]: pixels past a line's end are read for output pixels that
 * are not stored. w1, w3: panels (cpu/amx). content: see cpu/repeated_rows. */
__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
mbconv(__global float *restrict y, __global const float *restrict x, __global float *restrict scratch,
       __global const ushort *restrict w1, __global const float *restrict b1, __global const float *restrict w2,
       __global const float *restrict b2, __global const ushort *restrict w3, __global const float *restrict b3,
       __global const int *restrict limit, __global const int *restrict content, mbconv_amx_args arg,
       __global int *queue) {
    const cpu_mbconv_args common = arg.common;
    const int segments = common.segments, pieces = common.pieces, x_ld = common.x_ld, y_ld = common.y_ld;
    const int deep = arg.hidden / AMX_DEPTH, stride = arg.stride, spreads = deep * TASKS, panels = arg.y_c / AMX_BLOCK;
    const int lines = common.line_pixels + (AMX_BLOCK - 1) * stride, line = lines * arg.hidden;
    uint16 d[2 * MOST_LINES], *halves[2] = {d, d + deep * STEP_LINES};
    float16 sums[2][AMX_BLOCK * 2];
    bottleneck_t work = {.steps = arg.x_c / AMX_DEPTH,
                         .deep = deep,
                         .stride = stride,
                         .act = arg.act,
                         .lines = lines,
                         .w2 = w2,
                         .b2 = b2,
                         .sums = (float *)sums[0],
                         .free = (float *)sums[1]};
    scratch += get_global_id(0) * (size_t)3 * line;
    amx_begin();
    work_t share = work_begin(get_global_size(0), min(common.items, *limit) * pieces, common.backwards);
    for (int item; (item = work_next(&share, queue)) >= 0;) {
        const int n = item / pieces, piece = item - n * pieces, band = piece / segments;
        const int x0 = (piece - band * segments) * common.segment_w, cols = min(common.segment_w, common.y_w - x0);
        const int2 same = alike_rows(content, common.same, n);
        const int y0 = alike_band(band, common.bands, common.y_h, same);
        const int y1 = alike_band(band + 1, common.bands, common.y_h, same);
        const int length = (cols - 1) * stride + 3;
        int filled = y0 * stride - 1;
        for (int oy = y0; oy < y1; oy++) {
            const int top = oy * stride - 1;
            if (oy > max(y0, same.x) && oy < same.y) {
                do_tasks(&work);
                __global float *to = y + (((size_t)n * common.y_h + oy) * common.y_w + x0) * y_ld + common.y_c0;
                copy_pixels(to, to - (size_t)common.y_w * y_ld, cols, y_ld, arg.y_c);
                continue;
            }
            for (int ky = 0; ky < 3; ky++) work.e[ky] = scratch + (top + 3 + ky) % 3 * line;
            work.d = (ushort *)halves[0];
            for (work.spread = work.spreads = 0, filled = max(filled, top); filled < top + 3; filled++)
                expand_line(&work, scratch + (filled + 3) % 3 * line, length, x, n, filled, x0 * stride - 1, w1, b1,
                            common, filled == top + 2);
            work.spreads = spreads;
            do_tasks(&work);
            for (int t = 0, half_of = 0; t < cols; t += AMX_BLOCK, half_of ^= 1) {
                const size_t pixel = ((size_t)n * common.y_h + oy) * common.y_w + x0 + t;
                work.d = (ushort *)halves[half_of ^ 1];
                work.spread = work.spreads = 0;
                for (int ky = 0; ky < 3; ky++) work.e[ky] += AMX_BLOCK * stride * AMX_DEPTH;
                for (int j = 0; j < panels; j++) {
                    if (t + AMX_BLOCK < cols) work.spreads = spreads * (j + 1) / panels;
                    product(&work, (const ushort *)halves[half_of], w3 + j * deep * PARTS * AMX_PANEL, deep);
                    work.rows = min(AMX_BLOCK, cols - t);
                    work.result = true;
                    work.bias = b3 + j * AMX_BLOCK;
                    work.y = y + pixel * y_ld + common.y_c0 + j * AMX_BLOCK;
                    work.ldy = y_ld;
                    work.add = common.residual ? x + pixel * x_ld + common.x_c0 + j * AMX_BLOCK : 0;
                    work.ld_add = x_ld;
                }
            }
            work.spread = work.spreads = 0;
        }
        do_tasks(&work);
    }
    work_end(&share, queue);
    amx_end();
}
