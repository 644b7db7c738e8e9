/* Convolutions of CPUs on register tiles: one work-item per group, float16 accumulators, packed weights; work-groups
 * share out the work by a queue on the device (cl/cpu/conv). */
#include "variants/cpu/conv.h"
#include "variants/cpu/conv_args.h"
#include "variants/panels.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <math.h>

/* 64 and 32 channels of vectors of 16 floats serve nearly every layer where there are such. Every further tile makes the first start half a
 * second longer, so that it must save multiply-adds worth a tenth of a millisecond. */
static bool common(const ist_conv_tile *r) {
    return r->vl < 16 || r->nv == 2 || r->nv == 4;
}

static double cycles_of(const ist_plan *p, const ist_conv_tile *r, const ist_conv_problem *q) {
    /* Two products of vectors of 16 floats a cycle, of which 85 % are reached; four cycles for what each vector of
     * results costs besides. */
    const double rate = 2 * 16 * 0.85, store = 4.0 / 16, first_start = 20e6;
    double work = ist_conv_panels_work(p, r, q) / r->speed;
    return (work * q->f.in * q->taps + (common(r) ? 0 : first_start)) / rate +
           store * (double)q->x.n * q->oh * q->ow * q->f.out;
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_conv *q = node;
    (void)p, (void)v;
    return q->norm_eps <= 0;
}

static double cost(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    ist_conv_problem q = ist_conv_problem_of(node);
    (void)way;
    return cycles_of(p, v->config, &q);
}

/* The cheapest of those that run. */
static double least_cycles(const ist_plan *p, const ist_conv_problem *q) {
    double least = HUGE_VAL;
    int count;
    const ist_variant *v = ist_variants_of(IST_NODE_CONV, &count);
    for (int i = 0; i < count; i++)
        if (v[i].family == &ist_cpu_conv && ist_variant_runs(p, &v[i])) least = fmin(least, cycles_of(p, v[i].config, q));
    return least;
}

double ist_conv_panels_cycles(const ist_plan *p, const ist_conv *q) {
    ist_conv_problem one = ist_conv_problem_of(q);
    one.x.n = one.y.n = 1;
    return least_cycles(p, &one);
}

double ist_conv_below_panels(const ist_plan *p, const ist_conv *q, double cycles) {
    ist_conv_problem all = ist_conv_problem_of(q);
    double least = 0.999 * least_cycles(p, &all);
    return cycles < HUGE_VAL ? least * cycles / (cycles + least) : least;
}

/* ---- launch ---- */

/* An item of work: row and column tiles, and whether items of the same columns follow each other. */
typedef struct pieces {
    int rows, cols;
    bool by_columns;
} pieces;

/* Each unit reads either all weights and its share of the pixels, or its share of the weights and all pixels: whichever
 * is less, since both come from beyond its own cache. Then some sixteen items for every unit: by pixels, rows whose
 * pixels fill a part of the second-level cache and all columns, then smaller pieces; by columns, few columns, whose
 * weights stay in that cache, and all rows, then smaller pieces. */
static pieces cut(const ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r) {
    enum { CHUNK_BYTES = 192 << 10, ITEMS_PER_UNIT = 16 };
    int all_rows = ist_div_up(q->x.n * q->oh * q->ow, r->mr), all_cols = ist_div_up(q->f.out, r->nv * r->vl);
    int units = ist_plan_units(p), want = ITEMS_PER_UNIT * units;
    double weights = (double)q->f.out * q->f.in * q->taps, pixels = (double)ist_pixels(q->x) * q->x.c;
    if (weights > pixels && all_cols >= 2 * units) {
        int cols = ist_div_up(all_cols, want), groups = ist_div_up(all_cols, cols);
        return (pieces){ist_div_up(all_rows, ist_div_up(want, groups)), cols, true};
    }
    double tile_bytes = 4.0 * r->mr * q->f.in;
    int fit = (int)(CHUNK_BYTES / tile_bytes), most = ist_div_up(all_rows, want);
    int rows = fit < 1 ? 1 : fit > all_rows ? all_rows : fit;
    if (rows > most) rows = most < 4 ? 4 : most;
    int groups = ist_div_up(all_rows, rows), split = ist_div_up(want, groups);
    int cols = ist_div_up(all_cols, split > all_cols ? all_cols : split);
    groups *= ist_div_up(all_cols, cols);
    if (groups < want && rows > 1) rows = (int)((long)rows * groups / want);
    return (pieces){rows > 1 ? rows : 1, cols, false};
}

/* Scratch: floats per row of a tile, for pixels that have to be gathered. */
enum { SCRATCH_FLOATS = 64 };

static void launch(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r, const ist_conv_panel *w) {
    const ist_conv_opts *o = q->o;
    bool half = ist_plan_half(p);
    int units = ist_plan_units(p);
    pieces c = cut(p, q, r);
    ist_tensor scratch = ist_plan_tensor(p, 1, 1, units * r->mr, SCRATCH_FLOATS, IST_ELEM_F32);
    ist_defines defines = ist_defines_of(p, "-DMR=%d -DNV=%d -DVL=%d -DCHUNK=%d%s%s", r->mr, r->nv, r->vl,
                                         SCRATCH_FLOATS, half && q->x.elem == IST_ELEM_F32 ? " -DX32" : "",
                                         half && q->y.elem == IST_ELEM_F32 ? " -DY32" : "");
    const ist_conv_panels_args by_value = {.shape = ist_conv_shape_of(q),
                                           .epi = ist_conv_epilogue_of(q),
                                           .row_tiles = c.rows,
                                           .col_tiles = c.cols,
                                           .by_columns = c.by_columns,
                                           .backwards = ist_plan_work_turn(p)};
    ist_launch l = {
        .label = q->label,
        .op = r->op,
        .isa = "portable/vector",
        .defines = defines.text,
        .kernel = "conv",
        .dims = 3,
        .global = {(size_t)units, 1, 1},
        .local = {1, 1, 1},
        .args = {IST_IN(q->x), IST_IN(w->weights), IST_IN(w->bias), IST_OUT(scratch), IST_OUT(q->y),
                 IST_IN(o->epi.add_before), IST_IN(o->epi.add_after), IST_IN(ist_plan_current_limit(p)),
                 IST_STRUCT(conv_panels_args, &by_value), IST_INOUT(ist_plan_work_queue(p))},
        .arg_count = 10,
        .shares = true,
        .flops = 2.0 * q->x.n * q->oh * q->ow * q->taps * q->f.in * q->f.out,
        .bytes = ist_conv_bytes(p, q, sizeof(float)),
    };
    ist_plan_launch(p, &l);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_conv_tile *r = v->config;
    ist_conv_problem q = ist_conv_problem_of(node);
    ist_conv_panel w;
    (void)way;
    if (ist_conv_panels_pack(p, &q, r->nv * r->vl, &w)) launch(p, &q, r, &w);
}

const ist_family ist_cpu_conv = {.takes = takes, .cost = cost, .emit = emit};
