/* Dense convolutions and linear layers: checks shapes and chooses a row, whose family's file packs the weights and
 * records the launch. */
#include "ops/conv_rows.h"
#include "ops/chain.h"
#include "ops/epilogue.h"
#include "ops/rows.h"
#include "ops/tune.h"
#include "ops/winograd.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define TOKENS_CAPS (IST_CAP_CPU | IST_CAP_VEC16 | IST_CAP_SIMD16)
#define BF16_CAPS   (IST_CAP_CPU | IST_CAP_VEC16 | IST_CAP_X86_BF16)
#define AMX_CAPS    (TOKENS_CAPS | IST_CAP_X86_AMX)

static const ist_conv_row conv_rows[] = {
#define ROW(name, op, needs, mr, nv, vl, items, speed)                                                                 \
    {#name, op, IST_CONV_PANELS, needs, mr, nv, vl, items, speed, 0, 0, 0, 0, 0},
#define FEW(name, mr, nv, most, speed)                                                                                 \
    {#name, "op/conv_few", IST_CONV_PANELS, IST_CAP_LOCAL, mr, nv, 4, nv, speed, 0, 0, 0, most, 0},
#define TOKENS(name, mr, nv, most)                                                                                     \
    {#name, "op/conv_tokens", IST_CONV_TOKENS, TOKENS_CAPS, mr, nv, 16, 1, 1, 0, 0, 0, most, 0},
#define MMA(name, bm, bn, wm, wn, wk, bk, stages, speed)                                                               \
    {#name, "op/conv_mma", IST_CONV_MMA, IST_CAP_PTX_MMA, bm, (bn) / 8, 8, 32 * (wm) * (wn) * (wk), speed, wm, wn, wk, \
     bk,    stages},
#define WARPGROUPS(name, op, family, groups, each, bn, stages, flight, speed)                                          \
    {#name,                                                                                                            \
     op,                                                                                                               \
     family,                                                                                                           \
     IST_CAP_PTX_MMA | IST_CAP_PTX_WGMMA,                                                                              \
     64 * (groups) * (each),                                                                                           \
     (bn) / 8,                                                                                                         \
     8,                                                                                                                \
     128 * (groups),                                                                                                   \
     speed,                                                                                                            \
     groups,                                                                                                           \
     each,                                                                                                             \
     flight,                                                                                                           \
     64,                                                                                                               \
     stages},
#define WGMMA(name, groups, each, bn, stages, flight, speed)                                                           \
    WARPGROUPS(name, "op/conv_wgmma", IST_CONV_WGMMA, groups, each, bn, stages, flight, speed)
#define WALK(name, groups, each, bn, stages, speed)                                                                    \
    WARPGROUPS(name, "op/conv_walk", IST_CONV_WALK, groups, each, bn, stages, 1, speed)
#define RESIDENT(name, bn, speed)                                                                                      \
    {#name,                                                                                                            \
     "op/conv_resident",                                                                                               \
     IST_CONV_RESIDENT,                                                                                                \
     IST_CAP_PTX_MMA | IST_CAP_PTX_WGMMA,                                                                              \
     64,                                                                                                               \
     (bn) / 8,                                                                                                         \
     8,                                                                                                                \
     512,                                                                                                              \
     speed,                                                                                                            \
     0,                                                                                                                \
     0,                                                                                                                \
     0,                                                                                                                \
     64,                                                                                                               \
     0},
#define DIRECT(name) {#name, "op/conv_direct", IST_CONV_DIRECT, IST_CAP_PTX_MMA, 16, 1, 8, 128, 1, 0, 0, 0, 16, 0},
#define MATRIX(name, cap, lanes, bm, bn, wm, wn, bk)                                                                   \
    {                                                                                                                  \
        #name,                                                                                                         \
        "op/conv_matrix",                                                                                              \
        IST_CONV_MATRIX,                                                                                               \
        IST_CAP_##cap,                                                                                                 \
        bm,                                                                                                            \
        (bn) / 8,                                                                                                      \
        8,                                                                                                             \
        (lanes) * (wm) * (wn),                                                                                         \
        1,                                                                                                             \
        wm,                                                                                                            \
        wn,                                                                                                            \
        1,                                                                                                             \
        bk,                                                                                                            \
        0},
#define BF16(name, mr, nv, speed)                                                                                      \
    {#name, "op/conv_bf16", IST_CONV_BF16, BF16_CAPS, mr, nv, 16, 1, speed, 0, 0, 0, 0, 0},
#define AMX(name, parts) {#name, "op/conv_amx", IST_CONV_AMX, AMX_CAPS, 32, 2, 16, 1, 1, 0, 0, 0, parts, 0},
#include "ops/rows/conv.inc"
#undef ROW
#undef FEW
#undef TOKENS
#undef MMA
#undef WGMMA
#undef WALK
#undef WARPGROUPS
#undef RESIDENT
#undef DIRECT
#undef MATRIX
#undef BF16
#undef AMX
};

int ist_conv_row_count(void) {
    return (int)(sizeof conv_rows / sizeof conv_rows[0]);
}

const ist_conv_row *ist_conv_row_at(int index) {
    return &conv_rows[index];
}

double ist_conv_bytes(const ist_plan *p, const ist_conv_problem *q, int weight_bytes) {
    double elem = ist_plan_half(p) ? 2 : 4;
    return elem * ((double)ist_pixels(q->x) * q->x.c + (double)ist_pixels(q->y) * q->y.c) +
           (double)weight_bytes * q->taps * q->f.in * q->f.out;
}

void ist_conv_record(ist_plan *p, const ist_conv_problem *q, const ist_conv_row *row, const ist_conv_launch *l) {
    const ist_conv_opts *o = q->o;
    ist_divider columns = ist_divider_of(l->col_tiles);
    ist_arg partial = IST_IN(l->partial), arrived = IST_IN(l->arrived);
    if (ist_has(l->partial)) partial = (ist_arg)IST_OUT(l->partial);
    if (ist_has(l->arrived)) arrived = (ist_arg)IST_INOUT(l->arrived);
    const int *t = l->tiles;
    const ist_divider *d = l->div;
    ist_plan_launch(
        p,
        &(ist_launch){
            .label = q->label,
            .op = row->op,
            .row = row->name,
            .isa = l->isa,
            .defines = l->defines,
            .kernel = "conv",
            .dims = 3,
            .global = {(size_t)l->groups * (size_t)l->items, 1, (size_t)(l->splits > 1 ? l->splits : 1)},
            .local = {(size_t)l->items, 1, 1},
            .args = {IST_IN(q->x), IST_IN(l->weights), IST_IN(l->bias), partial, arrived, IST_OUT(q->y),
                     IST_IN(o->epi.add_before), IST_IN(o->epi.add_after), IST_IN(ist_plan_current_limit(p)),
                     IST_INT8(q->x.h, q->x.w, q->x.ld, q->x.c0, q->x.c, l->in5, columns.multiplier, columns.shift),
                     IST_INT8(q->f.kh, q->f.kw, o->stride ? o->stride : 1, o->top, o->left, l->col_tiles, l->win6,
                              l->win7),
                     IST_INT8(q->y.n, q->oh, q->ow, q->y.ld, q->y.c0, q->y.c, 0, 0), ist_epilogue_ints(&o->epi, q->y),
                     IST_FLOAT4(o->epi.lab_scale, o->epi.lab_bias, l->norm_eps, 0.0f),
                     IST_INT8(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7]),
                     IST_INT8(d[0].multiplier, d[0].shift, d[1].multiplier, d[1].shift, d[2].multiplier, d[2].shift,
                              d[3].multiplier, d[3].shift)},
            .arg_count = 16,
            .flops = 2.0 * q->x.n * q->oh * q->ow * q->taps * q->f.in * q->f.out,
            .bytes = ist_conv_bytes(p, q, 2),
        });
}

static bool half_family(const ist_conv_row *row) {
    return row->family == IST_CONV_MMA || row->family == IST_CONV_WGMMA || row->family == IST_CONV_WALK ||
           row->family == IST_CONV_RESIDENT || row->family == IST_CONV_DIRECT || row->family == IST_CONV_MATRIX;
}

/* Rows that round what they multiply to bfloat16: where the plan lets them. */
static bool rounds(const ist_conv_row *row) {
    return row->family == IST_CONV_BF16 || (row->family == IST_CONV_AMX && row->bk == 1);
}

bool ist_conv_row_runs(const ist_plan *p, const ist_conv_row *row) {
    bool half = ist_plan_half(p), precision = true;
    if (half_family(row)) precision = half;
    if (row->family == IST_CONV_BF16 || row->family == IST_CONV_TOKENS || row->family == IST_CONV_AMX)
        precision = ist_plan_bf16(p) == rounds(row) && !half;
    if (row->family == IST_CONV_PANELS && row->bk && ist_plan_caps(p) & IST_CAP_CPU) return false;
    return (ist_plan_caps(p) & row->needs) == row->needs && precision;
}

bool ist_conv_row_takes(const ist_plan *p, const ist_conv_row *row, const ist_conv_problem *q) {
    bool matrix = half_family(row);
    return ist_conv_row_runs(p, row) && (!matrix || q->x.elem == IST_ELEM_T) &&
           (row->family == IST_CONV_MMA || q->norm_eps <= 0) &&
           (row->family != IST_CONV_PANELS || ist_conv_panels_takes(row, q)) &&
           (row->family != IST_CONV_TOKENS || ist_conv_tokens_takes(row, q)) &&
           (row->family != IST_CONV_WGMMA || ist_conv_wgmma_takes(q)) &&
           (row->family != IST_CONV_WALK || ist_conv_walk_takes(row, q)) &&
           (row->family != IST_CONV_RESIDENT || ist_conv_resident_takes(p, row, q)) &&
           (row->family != IST_CONV_DIRECT || ist_conv_direct_takes(q));
}

int ist_conv_most_splits(const ist_conv_row *row, const ist_conv_problem *q) {
    return row->family == IST_CONV_MMA ? ist_conv_mma_most_splits(row, q) : 1;
}

double ist_conv_cost(const ist_plan *p, ist_conv_choice c, const ist_conv_problem *q) {
    switch (c.row->family) {
    case IST_CONV_MMA:
        return ist_conv_mma_cost(p, c, q);
    case IST_CONV_WGMMA:
        return ist_conv_wgmma_cost(p, c.row, q);
    case IST_CONV_WALK:
        return ist_conv_walk_cost(p, c.row, q);
    case IST_CONV_RESIDENT:
        return ist_conv_resident_cost(p, c.row, q);
    case IST_CONV_DIRECT:
        return ist_conv_direct_cost(p, c.row, q);
    case IST_CONV_MATRIX:
        return ist_conv_matrix_cost(p, c.row, q);
    case IST_CONV_BF16:
        return ist_conv_bf16_cost(p, c.row, q);
    case IST_CONV_AMX:
        return ist_conv_amx_cost(p, c.row, q);
    default:
        return ist_conv_panels_cost(p, c.row, q);
    }
}

/* Panels are there for what matrix instructions and pairs of bfloat16 do not take; their costs have another unit. So
 * has what takes few pixels only, in place of panels. */
static int rank(const ist_conv_row *r) {
    return r->family == IST_CONV_PANELS ? 0 : r->family == IST_CONV_TOKENS ? 1 : 2;
}

static bool better(const ist_plan *p, ist_conv_choice a, ist_conv_choice b, const ist_conv_problem *q) {
    int first = rank(a.row), second = rank(b.row);
    return first != second ? first > second : ist_conv_cost(p, a, q) < ist_conv_cost(p, b, q);
}

/* A core's cycles for all of a problem in fp32 panels on CPUs with vectors of 16 floats: two products of such vectors a
 * cycle, of which 85 % are reached; four cycles for what each vector of results costs besides. */
static double panels_cycles(const ist_plan *p, const ist_conv_row *r, const ist_conv_problem *q) {
    double results = (double)q->x.n * q->oh * q->ow * q->f.out;
    return ist_conv_panels_cost(p, r, q) * q->f.in * q->taps / (2 * 16 * 0.85) + 4 * results / 16;
}

/* Whether floats in three parts on the matrix unit of CPUs take fewer cycles than any panels, or not many more: panels
 * for a layer or two are a kernel more for the first start to compile. Chosen for one item: the two sum in another
 * order, and an item's result does not depend on those beside it. */
static bool parts_win(const ist_plan *p, const ist_conv_row *r, const ist_conv_problem *q) {
    const double more = 1.25;
    ist_conv_problem one = *q;
    one.x.n = one.y.n = 1;
    double cost = ist_conv_amx_cost(p, r, &one);
    for (int i = 0; i < ist_conv_row_count(); i++) {
        const ist_conv_row *other = &conv_rows[i];
        bool panels = other->family == IST_CONV_PANELS && ist_conv_row_takes(p, other, &one);
        if (panels && more * panels_cycles(p, other, &one) <= cost) return false;
    }
    return true;
}

ist_conv_choice ist_conv_choose(const ist_plan *p, const ist_conv_problem *q) {
    ist_conv_choice best = {NULL, 1};
    for (int i = 0; i < ist_conv_row_count(); i++) {
        const ist_conv_row *r = &conv_rows[i];
        if (!ist_conv_row_takes(p, r, q)) continue;
        if (rounds(r) && q->f.in < 16) continue; /* images: little to gain, and all rests on them */
        if (r->family == IST_CONV_AMX && !rounds(r) && !parts_win(p, r, q)) continue;
        int most = ist_conv_most_splits(r, q);
        for (int splits = 1; splits <= most; splits++) {
            ist_conv_choice c = {r, splits};
            if (!best.row || better(p, c, best, q)) best = c;
        }
    }
    return best;
}

int ist_conv_channels(const ist_plan *p, int channels) {
    enum { CHUNK = 8 }; /* halves of one copy */
    for (int i = 0; i < ist_conv_row_count(); i++)
        if (conv_rows[i].family == IST_CONV_MMA && ist_conv_row_runs(p, &conv_rows[i]))
            return ist_div_up(channels, CHUNK) * CHUNK;
    return channels;
}

/* What a tuning record says; no row when it says nothing, or nothing that can be done here. */
static ist_conv_choice tuned(ist_plan *p, const ist_conv_problem *q) {
    ist_conv_choice none = {NULL, 0};
    if (ist_plan_bf16(p)) return none; /* what was measured are rows in fp32 */
    ist_tune_shape shape = ist_tune_shape_of(p, q->x, q->y, q->f, q->o);
    const ist_tuned *t = ist_plan_tuned(p, IST_TUNE_CONV, shape.text);
    for (int i = 0; t && i < ist_conv_row_count(); i++) {
        const ist_conv_row *r = &conv_rows[i];
        if (strcmp(r->name, t->row)) continue;
        int most = ist_conv_most_splits(r, q);
        if (!ist_conv_row_takes(p, r, q) || t->param < 1 || t->param > most) return none;
        return (ist_conv_choice){r, t->param};
    }
    return none;
}

/* ---- checks ---- */

static bool storage_elem(ist_elem e) {
    return e == IST_ELEM_T || e == IST_ELEM_F32;
}

static bool setup(ist_plan *p, ist_conv_problem *q) {
    const ist_filter *f = &q->f;
    const ist_conv_opts *o = q->o;
    int stride = o->stride ? o->stride : 1, h = q->x.h + o->top + o->bottom, w = q->x.w + o->left + o->right;
    if (f->in != q->x.c || f->out < 1 || f->kh < 1 || f->kw < 1 || stride < 1 || h < f->kh || w < f->kw ||
        !storage_elem(q->x.elem)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: filter [%d,%d,%d,%d] with stride %d on [%d,%d,%d,%d]", q->label, f->out,
                      f->in, f->kh, f->kw, stride, q->x.n, q->x.h, q->x.w, q->x.c);
        return false;
    }
    q->taps = f->kh * f->kw;
    q->oh = (h - f->kh) / stride + 1;
    q->ow = (w - f->kw) / stride + 1;
    ist_elem elem = ist_has(o->into) ? o->into.elem : IST_ELEM_T;
    q->y = ist_plan_into(p, o->into, q->x.n, q->oh, q->ow, f->out, elem, q->label);
    if (ist_plan_status(p)) return false;
    if (!storage_elem(q->y.elem)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: the place for the result holds no activations", q->label);
        return false;
    }
    return ist_epilogue_check(p, &o->epi, q->y, q->label);
}

/* Chooses a row unless `choice` has one, and records the problem, of which setup finds the extents. */
static ist_tensor record(ist_plan *p, ist_conv_problem q, ist_conv_choice choice) {
    ist_tensor none = {0};
    const char *label = q.label;
    if (ist_plan_status(p) || !setup(p, &q)) return none;
    if (!choice.row) choice = tuned(p, &q);
    if (!choice.row) choice = ist_conv_choose(p, &q);
    if (!choice.row) {
        ist_plan_fail(p, IST_E_UNSUPPORTED, "%s: this device can run no kernel for dense convolutions", label);
        return none;
    }
    if (!ist_conv_row_takes(p, choice.row, &q)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: row %s cannot do this convolution", label, choice.row->name);
        return none;
    }
    if (choice.row->family == IST_CONV_MMA)
        ist_conv_mma(p, &q, choice);
    else if (choice.row->family == IST_CONV_WGMMA)
        ist_conv_wgmma(p, &q, choice.row);
    else if (choice.row->family == IST_CONV_WALK)
        ist_conv_walk(p, &q, choice.row);
    else if (choice.row->family == IST_CONV_RESIDENT)
        ist_conv_resident(p, &q, choice.row);
    else if (choice.row->family == IST_CONV_DIRECT)
        ist_conv_direct(p, &q, choice.row);
    else if (choice.row->family == IST_CONV_MATRIX)
        ist_conv_matrix(p, &q, choice.row);
    else if (choice.row->family == IST_CONV_BF16)
        ist_conv_bf16(p, &q, choice.row);
    else if (choice.row->family == IST_CONV_TOKENS)
        ist_conv_tokens(p, &q, choice.row);
    else if (choice.row->family == IST_CONV_AMX)
        ist_conv_amx(p, &q, choice.row);
    else
        ist_conv_panels(p, &q, choice.row);
    bool pooled = choice.row->family == IST_CONV_DIRECT && ist_conv_direct_pools(&q);
    if (ist_has(q.o->pool) && !pooled) ist_op_maxpool2x2(p, q.x, q.o->pool, label);
    return ist_plan_status(p) ? none : q.y;
}

ist_tensor ist_op_conv_row(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, ist_conv_choice choice,
                           const char *label) {
    const ist_conv_opts plain = {0};
    return record(p, (ist_conv_problem){.x = x, .f = f, .o = opts ? opts : &plain, .label = label}, choice);
}

static const ist_conv_choice heuristic = {NULL, 0}; /* or what was measured */

/* ---- a norm in front ---- */

bool ist_conv_takes_norm(const ist_plan *p, ist_tensor x) {
    /* Channels, of which a work-item holds an eighth; pixels, beyond which a launch less is not worth that each column
     * of tiles reads its rows twice. Where instructions of warpgroups run, a norm of its own and these are faster. */
    enum { MOST = 512, CHUNK = 8, MOST_PIXELS = 16384 };
    bool whole =
        x.c % CHUNK == 0 && x.ld % CHUNK == 0 && x.c0 % CHUNK == 0 && x.c <= MOST && ist_pixels(x) <= MOST_PIXELS;
    bool runs = false;
    for (int i = 0; whole && x.elem == IST_ELEM_T && i < ist_conv_row_count(); i++) {
        if (conv_rows[i].family == IST_CONV_WGMMA && ist_conv_row_runs(p, &conv_rows[i])) return false;
        runs = runs || (conv_rows[i].family == IST_CONV_MMA && ist_conv_row_runs(p, &conv_rows[i]));
    }
    return runs;
}

ist_tensor ist_conv_of_norm(ist_plan *p, ist_tensor x, const float *gamma, const float *beta, float eps, ist_filter f,
                            const ist_conv_opts *opts, const char *label) {
    ist_tensor y = {0};
    if (ist_plan_status(p)) return y;
    size_t in = (size_t)f.in, out = (size_t)f.out;
    float *w = malloc(in * out * sizeof *w), *b = malloc(out * sizeof *b);
    for (size_t o = 0; w && b && o < out; o++) {
        double sum = f.b ? f.b[o] : 0;
        for (size_t i = 0; i < in; i++) {
            sum += (double)beta[i] * f.w[o * in + i];
            w[o * in + i] = gamma[i] * f.w[o * in + i];
        }
        b[o] = (float)sum;
    }
    if (w && b)
        y = record(p,
                   (ist_conv_problem){.x = x,
                                      .f = {.out = f.out, .in = f.in, .kh = 1, .kw = 1, .w = w, .b = b},
                                      .o = opts,
                                      .label = label,
                                      .norm_eps = eps},
                   heuristic);
    else
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for %d x %d weights", label, f.out, f.in);
    free(w);
    free(b);
    return y;
}

/* ---- operators ---- */

/* Whether a row on the matrix unit of CPUs does in fewer cycles what Winograd's kernel would do. */
static bool matrix_unit_wins(const ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *o) {
    ist_conv_problem q = {.x = x, .f = f, .o = o, .taps = f.kh * f.kw};
    q.x.n = x.n = 1; /* see parts_win */
    q.oh = x.h + o->top + o->bottom - f.kh + 1;
    q.ow = x.w + o->left + o->right - f.kw + 1;
    ist_conv_choice c = ist_conv_choose(p, &q);
    return c.row && c.row->family == IST_CONV_AMX && ist_conv_cost(p, c, &q) < ist_winograd_cycles(p, x, &f, o);
}

ist_tensor ist_op_conv(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label) {
    const ist_conv_opts plain = {0};
    const ist_conv_opts *o = opts ? opts : &plain;
    if (!ist_plan_bf16(p) && !ist_has(o->pool) && ist_winograd_wins(p, x, &f, o) && !matrix_unit_wins(p, x, f, o))
        return ist_op_winograd(p, x, f, opts, label);
    return ist_op_conv_row(p, x, f, opts, heuristic, label);
}

ist_tensor ist_op_linear(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label) {
    if (!ist_plan_status(p) && (f.kh != 1 || f.kw != 1)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: a linear layer with a %dx%d kernel", label, f.kh, f.kw);
        return (ist_tensor){0};
    }
    if (ist_plan_chain(p)) return ist_chain_linear(p, x, f, opts, label);
    return ist_op_conv_row(p, x, f, opts, heuristic, label);
}
