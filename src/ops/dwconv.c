/* Depthwise convolutions: checks shapes, chooses a row, packs weights and records the launch. */
#include "ops/dwconv.h"
#include "ops/epilogue.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdlib.h>

/* Vectors of 16 channels that a work-item of the CPU row keeps: 28 KiB, inside a first-level cache. */
enum { RING = 448, MAX_COLS = 64, MAX_BLOCKS = 4 };

typedef struct dwconv_row {
    const char *name, *op;
    unsigned needs;
} dwconv_row;

static const dwconv_row rows[] = {
#define ROW(name, op, needs) {#name, op, needs},
#include "ops/rows/dwconv.inc"
#undef ROW
};

const char *ist_dwconv_row_name(ist_dwconv_row r) {
    return rows[r].name;
}

bool ist_dwconv_row_runs(const ist_plan *p, ist_dwconv_row r) {
    return (ist_plan_caps(p) & rows[r].needs) == rows[r].needs;
}

/* Largest multiple of 4 columns whose lines fit the ring for `blocks` of 16 channels; 0 when none does. */
static int ring_cols(int k, int stride, int blocks) {
    int cols = 0;
    while (cols + 4 <= MAX_COLS && blocks * k * ((cols + 3) * stride + k) <= RING) cols += 4;
    return cols;
}

/* Most blocks of 16 channels a work-item may take and still have 12 columns. */
static int ring_blocks(int k, int stride, int channels) {
    int blocks = ist_div_up(channels, 16);
    if (blocks > MAX_BLOCKS) blocks = MAX_BLOCKS;
    while (blocks > 1 && ring_cols(k, stride, blocks) < 12) blocks--;
    return blocks;
}

typedef struct problem {
    ist_tensor x, y;
    ist_filter f;
    const ist_conv_opts *o;
    const char *label;
    int stride;
} problem;

static bool setup(ist_plan *p, problem *q) {
    const ist_conv_opts *o = q->o;
    const ist_filter *f = &q->f;
    int h = q->x.h + o->top + o->bottom, w = q->x.w + o->left + o->right;
    q->stride = o->stride ? o->stride : 1;
    if (f->out != q->x.c || f->in != 1 || f->kh != f->kw || f->kh % 2 == 0 || q->stride < 1 || h < f->kh || w < f->kw ||
        (q->x.elem != IST_ELEM_T && q->x.elem != IST_ELEM_F32)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: depthwise filter [%d,%d,%d,%d] with stride %d on [%d,%d,%d,%d]", q->label,
                      f->out, f->in, f->kh, f->kw, q->stride, q->x.n, q->x.h, q->x.w, q->x.c);
        return false;
    }
    ist_elem elem = ist_has(o->into) ? o->into.elem : IST_ELEM_T;
    q->y = ist_plan_into(p, o->into, q->x.n, (h - f->kh) / q->stride + 1, (w - f->kw) / q->stride + 1, f->out, elem,
                         q->label);
    if (ist_plan_status(p)) return false;
    if (q->y.elem != IST_ELEM_T && q->y.elem != IST_ELEM_F32) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: the place for the result holds no activations", q->label);
        return false;
    }
    return ist_epilogue_check(p, &o->epi, q->y, q->label);
}

/* Weights [block][tap][width] and bias [block][width], zeros beyond the last channel. */
static bool pack(ist_plan *p, const problem *q, int width, ist_tensor *weights, ist_tensor *bias) {
    int c = q->f.out, taps = q->f.kh * q->f.kw, blocks = ist_div_up(c, width);
    size_t size = (size_t)blocks * (size_t)width;
    float *w = calloc(size * (size_t)taps, sizeof *w), *b = calloc(size, sizeof *b);
    if (w && b) {
        for (int o = 0; o < c; o++) {
            int block = o / width, lane = o % width;
            for (int t = 0; t < taps; t++) w[((size_t)block * taps + t) * width + lane] = q->f.w[(size_t)o * taps + t];
            if (q->f.b) b[o] = q->f.b[o];
        }
        *weights = ist_plan_const_bytes(p, w, size * (size_t)taps * sizeof *w, q->label);
        *bias = ist_plan_const_bytes(p, b, size * sizeof *b, q->label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", q->label, size * (size_t)taps);
    }
    free(w);
    free(b);
    return !ist_plan_status(p);
}

static int at_least_one(int v) {
    return v > 1 ? v : 1;
}

typedef struct pieces {
    int blocks, chunks, cols, segments, rows, bands;
} pieces;

/* Channel chunks, even column segments and row bands of the CPU row: some eight groups for every compute unit as long
 * as a band keeps at least eight rows. */
static pieces cut(const ist_plan *p, const problem *q) {
    int k = q->f.kh, units = at_least_one(ist_device_facts(ist_plan_device((ist_plan *)p))->compute_units);
    pieces c = {.blocks = ring_blocks(k, q->stride, q->x.c)};
    c.chunks = ist_div_up(ist_div_up(q->x.c, 16), c.blocks);
    c.segments = ist_div_up(q->y.w, ring_cols(k, q->stride, c.blocks));
    c.cols = (ist_div_up(q->y.w, c.segments) + 3) / 4 * 4;
    c.segments = ist_div_up(q->y.w, c.cols);
    c.bands = ist_div_up(8 * units, c.segments * c.chunks * q->x.n);
    if (c.bands > q->y.h / 8) c.bands = at_least_one(q->y.h / 8);
    c.rows = ist_div_up(q->y.h, c.bands);
    c.bands = ist_div_up(q->y.h, c.rows);
    return c;
}

static void record(ist_plan *p, const problem *q, ist_dwconv_row r, ist_tensor weights, ist_tensor bias) {
    const ist_conv_opts *o = q->o;
    bool half = ist_plan_half(p);
    pieces c = r == IST_DWCONV_cpu ? cut(p, q) : (pieces){0};
    ist_defines defines = ist_defines_of(p, "-DVL=%d -DRING=%d%s%s", r == IST_DWCONV_cpu ? 16 : 4, RING,
                                         half && q->x.elem == IST_ELEM_F32 ? " -DX32" : "",
                                         half && q->y.elem == IST_ELEM_F32 ? " -DY32" : "");
    ist_launch l = {.label = q->label,
                    .op = rows[r].op,
                    .isa = "isa/vector",
                    .defines = defines.text,
                    .kernel = "dwconv",
                    .dims = 3};
    if (r == IST_DWCONV_cpu) {
        l.global[0] = (size_t)c.segments * (size_t)c.bands;
        l.global[1] = (size_t)c.chunks;
        l.local[0] = l.local[1] = 1;
    } else {
        l.local[0] = 16;
        l.local[1] = 4;
        l.global[0] = ist_round_up((size_t)ist_div_up(q->x.c, 4), l.local[0]);
        l.global[1] = ist_round_up((size_t)q->y.h * (size_t)q->y.w, l.local[1]);
    }
    l.global[2] = (size_t)q->x.n;
    l.local[2] = 1;
    const ist_arg args[] = {IST_IN(q->x),
                            IST_IN(weights),
                            IST_IN(bias),
                            IST_OUT(q->y),
                            IST_IN(o->epi.add_before),
                            IST_IN(o->epi.add_after),
                            IST_IN(ist_plan_current_limit(p)),
                            IST_INT8(q->x.h, q->x.w, q->x.ld, q->x.c0, q->x.c, 0, 0, 0),
                            IST_INT8(q->f.kh, q->stride, o->top, o->left, c.cols, c.rows, c.segments, c.blocks),
                            IST_INT8(q->y.n, q->y.h, q->y.w, q->y.ld, q->y.c0, 0, 0, 0),
                            ist_epilogue_ints(&o->epi, q->y),
                            ist_epilogue_lab(&o->epi)};
    l.arg_count = (int)(sizeof args / sizeof args[0]);
    for (int i = 0; i < l.arg_count; i++) l.args[i] = args[i];
    double elem = half ? 2 : 4, out = (double)ist_pixels(q->y) * q->y.c;
    l.flops = 2.0 * out * q->f.kh * q->f.kw;
    l.bytes = elem * ((double)ist_pixels(q->x) * q->x.c + out);
    ist_plan_launch(p, &l);
}

ist_tensor ist_op_dwconv_row(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, ist_dwconv_row row,
                             const char *label) {
    ist_tensor none = {0}, weights, bias;
    ist_conv_opts plain = {0};
    problem q = {.x = x, .f = f, .o = opts ? opts : &plain, .label = label};
    if (ist_plan_status(p) || !setup(p, &q)) return none;
    if (!ist_plan_representable(p, f.w, (size_t)f.out * (size_t)f.kh * (size_t)f.kw, label)) return none;
    int width = row == IST_DWCONV_cpu ? 16 : 4;
    if (!pack(p, &q, width, &weights, &bias)) return none;
    record(p, &q, row, weights, bias);
    return ist_plan_status(p) ? none : q.y;
}

ist_tensor ist_op_dwconv(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label) {
    int stride = opts && opts->stride ? opts->stride : 1;
    bool cpu = ist_dwconv_row_runs(p, IST_DWCONV_cpu) && stride > 0 && f.kh > 0 && ring_cols(f.kh, stride, 1) > 0;
    return ist_op_dwconv_row(p, x, f, opts, cpu ? IST_DWCONV_cpu : IST_DWCONV_any, label);
}
