/* Portable convolutions on register tiles (cl/portable/conv_tile), for GPUs: a tile of local memory feeds many
 * products, and where tiles are few their sums are split among groups, which a second launch adds up. */
#include "variants/panels.h"
#include "variants/padding_reuse.h"
#include "variants/defines.h"
#include "variants/portable/conv_tile_args.h"
#include "variants/variant.h"

#include <math.h>

enum { MOST_SPLITS = 8, LEAST_STEPS = 4, MOST_PARTS = 16 << 20 /* values of all parts */ };

/* Steps of the whole sum. */
static int steps_of(const ist_conv_tile *r, const ist_conv_problem *q) {
    return q->taps * ist_div_up(q->f.in, r->bk);
}

/* Of a group's work-items, which take a part of the steps each. */
static int slices_of(const ist_conv_tile *r) {
    return r->warps_k > 1 ? r->warps_k : 1;
}

static int local_bytes(const ist_conv_tile *r) {
    return slices_of(r) * 2 * r->bk * (r->mr + 4 + r->nv * r->vl) * (int)sizeof(float);
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_conv *q = node;
    return !(q->norm_eps > 0) && ist_device_local_bytes(ist_plan_device(p)) >= (size_t)local_bytes(v->config);
}

static int ways(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_conv_problem q = ist_conv_problem_of(node);
    const ist_conv_tile *r = v->config;
    const double whole = (double)q.x.n * q.oh * q.ow * ist_div_up(q.f.out, r->nv * r->vl) * r->nv * r->vl;
    int parts = steps_of(r, &q) / (LEAST_STEPS * slices_of(r));
    (void)p;
    if (parts > MOST_SPLITS) parts = MOST_SPLITS;
    if (parts > MOST_PARTS / whole) parts = (int)(MOST_PARTS / whole);
    return parts < 1 ? 1 : parts;
}

/* Nanoseconds on a GPU, fitted on one (perf/notes/portable_gpu.md), cycles on a CPU, for which the tiles are not meant:
 * as portable/conv.c. A second launch to add up costs as much as many steps. A compute unit has so many groups side by
 * side as their registers let it; each step takes as long as the products of its groups, and a latency that those side
 * by side share. */
static double cost(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    const double start = 7000, rate = 244, store = 0.228, second = 4600, sum = 0.0011, slice = 52, cycle = 27.2;
    enum { UNIT_ITEMS = 512 };
    const ist_conv_tile *r = v->config;
    const ist_conv_problem q = ist_conv_problem_of(node);
    const int bn = r->nv * r->vl, units = ist_plan_units(p), slices = slices_of(r);
    const int steps = ist_div_up(ist_div_up(steps_of(r, &q), way), slices);
    const double pixels = (double)q.x.n * q.oh * q.ow, tiles = ceil(pixels / r->mr) * ist_div_up(q.f.out, bn);
    const double products = (double)r->mr * bn * r->bk * slices;
    if (ist_device_facts(ist_plan_device(p))->type == IST_DEVICE_CPU)
        return 100 * tiles * products * steps * way / cycle;
    const double groups = ceil(tiles * way / units), side = UNIT_ITEMS / r->items;
    const double busy = groups > side ? tiles * way / units : groups;
    const double latency = slices > 1 ? 118 : 258;
    const double step = busy * products / (rate * r->speed) + latency * fmax(1, groups / side);
    const double end = groups * r->mr * bn * store + (slices - 1) * slice;
    return start + steps * step + (way > 1 ? second + end / 2 + (1 + way) * pixels * q.f.out * sum : end);
}

/* Pixels that begin at multiples of four elements. */
static bool whole(ist_tensor x) {
    return !ist_has(x) || (x.ld % 4 == 0 && x.c0 % 4 == 0);
}

/* For ALIGNED of portable/vector. */
static bool aligned(const ist_plan *p, const ist_conv_problem *q) {
    const ist_epilogue *e = &q->o->epi;
    const bool stored = !ist_plan_half(p) || (q->x.elem == IST_ELEM_T && q->y.elem == IST_ELEM_T);
    return stored && whole(q->x) && whole(q->y) && whole(e->add_before) && whole(e->add_after);
}

static ist_defines defines_of(const ist_plan *p, const ist_conv_problem *q) {
    const bool half = ist_plan_half(p);
    return ist_defines_of(p, "-DVL=4%s%s%s", half && q->x.elem == IST_ELEM_F32 ? " -DX32" : "",
                          half && q->y.elem == IST_ELEM_F32 ? " -DY32" : "", aligned(p, q) ? " -DALIGNED" : "");
}

/* Which rows of input and output are there. */
typedef struct rows_there {
    ist_padding_reuse operand;
    ist_padding_reuse_args in, out;
} rows_there;

/* Sums whose parts lie in `parts`, [splits,1,pixels,width]. */
static void launch_sum(ist_plan *p, const ist_conv_problem *q, ist_tensor bias, ist_tensor parts,
                       const rows_there *rows) {
    const ist_conv_opts *o = q->o;
    const ist_conv_sum_args arg = {.shape = ist_conv_shape_of(q),
                                   .epi = ist_conv_epilogue_of(q),
                                   .splits = parts.n,
                                   .width = parts.c,
                                   .out = rows->out};
    const ist_defines defines = defines_of(p, q);
    ist_plan_launch(
        p,
        &(ist_launch){
            .label = q->label,
            .op = "portable/conv_sum",
            .isa = "portable/vector+portable/left_out+portable/conv_store",
            .defines = defines.text,
            .kernel = "conv_sum",
            .dims = 2,
            .global = {ist_round_up((size_t)ist_div_up(q->f.out, 4), 16), ist_round_up((size_t)parts.w, 4)},
            .local = {16, 4},
            .args = {IST_OUT(q->y), IST_IN(parts), IST_IN(bias), IST_IN(o->epi.add_before), IST_IN(o->epi.add_after),
                     IST_IN(ist_plan_current_limit(p)), IST_IN(rows->operand.content), IST_STRUCT(conv_sum_args, &arg)},
            .arg_count = 8,
            .bytes = sizeof(float) * (double)parts.n * parts.w * q->f.out,
        });
}

static void launch(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r, const ist_conv_panel *w, int splits,
                   const rows_there *rows) {
    const ist_conv_opts *o = q->o;
    const int bn = r->nv * r->vl, pixels = q->x.n * q->oh * q->ow, col_tiles = ist_div_up(q->f.out, bn);
    const int split_steps = ist_div_up(steps_of(r, q), splits);
    splits = ist_div_up(steps_of(r, q), split_steps); /* none without a step */
    const bool split = splits > 1;
    const ist_conv_tile_args arg = {.shape = ist_conv_shape_of(q),
                                    .epi = ist_conv_epilogue_of(q),
                                    .col_tiles = col_tiles,
                                    .split_steps = split_steps,
                                    .in = rows->in,
                                    .out = rows->out};
    const ist_tensor none = {0};
    const ist_tensor parts = split ? ist_plan_tensor(p, splits, 1, pixels, col_tiles * bn, IST_ELEM_F32) : none;
    ist_defines defines = defines_of(p, q);
    ist_defines_add(&defines, " -DBM=%d -DBN=%d -DTM=%d -DTN=%d -DBK=%d -DACT=%d%s%s", r->mr, bn, r->warps_m,
                    r->warps_n, r->bk, split ? 0 : (int)o->epi.act, q->f.in % 4 == 0 && whole(q->x) ? " -DWHOLE" : "",
                    split ? " -DPARTS" : "");
    ist_padding_reuse_define(&defines, &rows->operand);
    if (slices_of(r) > 1) ist_defines_add(&defines, " -DSLICES=%d", slices_of(r));
    ist_plan_launch(
        p, &(ist_launch){
               .label = q->label,
               .op = r->op,
               .isa = "portable/vector+portable/left_out+portable/conv_store",
               .defines = defines.text,
               .kernel = "conv",
               .dims = 2,
               .global = {(size_t)ist_div_up(pixels, r->mr) * (size_t)col_tiles * (size_t)r->items, (size_t)splits},
               .local = {(size_t)r->items, 1},
               .args = {IST_IN(q->x), IST_IN(w->weights), IST_IN(w->bias), IST_OUT(parts), IST_OUT(split ? none : q->y),
                        IST_IN(split ? none : o->epi.add_before), IST_IN(split ? none : o->epi.add_after),
                        IST_IN(ist_plan_current_limit(p)), IST_IN(rows->operand.content),
                        IST_STRUCT(conv_tile_args, &arg)},
               .arg_count = 10,
               .flops = 2.0 * pixels * q->taps * q->f.in * q->f.out,
               .bytes = ist_conv_bytes(p, q, sizeof(float)),
           });
    if (split) launch_sum(p, q, w->bias, parts, rows);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_conv_tile *r = v->config;
    ist_conv_problem q = ist_conv_problem_of(node);
    ist_conv *of = node;
    ist_conv_panel w;
    rows_there rows = {.operand = of->reuse, .in = ist_padding_reuse_read(of->reuse, of->x.h)};
    rows.out = ist_padding_reuse_leave_out(&of->reuse, ist_padding_reuse_conv(of->reuse, of), of->y.h);
    if (ist_conv_panels_pack(p, &q, r->nv * r->vl, &w)) launch(p, &q, r, &w, way < 1 ? 1 : way, &rows);
}

const ist_family ist_portable_conv_tile = {
    .takes = takes, .ways = ways, .cost = cost, .emit = emit, .rows = IST_REPEATS_LEFT_OUT};
