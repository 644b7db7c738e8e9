/* Portable convolutions in fp32: a work-group owns a tile, its inputs and weights go through local memory
 * (cl/portable/conv_any); 1x1 convolutions of very few inputs do not (cl/portable/conv_few). */
#include "variants/panels.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include <stdio.h>

/* An addend for every pixel. */
static bool straight(ist_tensor addend, const ist_conv_problem *q) {
    return !ist_has(addend) || addend.n == q->y.n;
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_conv_tile *r = v->config;
    ist_conv_problem q = ist_conv_problem_of(node);
    const ist_epilogue *e = &q.o->epi;
    (void)p;
    if (q.norm_eps > 0) return false;
    if (!r->bk) return true;
    return ist_conv_is_point(&q) && q.f.in <= r->bk && !e->up2 && straight(e->add_before, &q) &&
           straight(e->add_after, &q);
}

/* Nanoseconds, from what the tiles reached on one GPU (perf/NOTES.md); a CPU's core gets a twentieth of what its own
 * variants give it, in their cycles. */
static double cost(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    const double rate = 909, cycle = 27.2, store = 4.0 / 16;
    const ist_conv_tile *r = v->config;
    const double start = r->bk ? 2650 : 6900; /* conv_few; conv_any, whose groups first fill local memory */
    ist_conv_problem q = ist_conv_problem_of(node);
    double work = ist_conv_panels_work(p, r, &q) * q.f.in * q.taps / r->speed;
    (void)way;
    if (ist_device_facts(ist_plan_device(p))->type == IST_DEVICE_CPU) return work / cycle + store * (double)ist_pixels(q.y) * q.y.c;
    return start + work / (rate * ist_plan_units(p));
}

/* Halves that a work-item stores at a time begin at a multiple of their size. */
static bool aligned(const ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r) {
    const ist_epilogue *e = &q->o->epi;
    return r->bk && ist_plan_half(p) && q->x.elem == IST_ELEM_F32 && q->y.elem == IST_ELEM_T && q->y.ld % r->vl == 0 &&
           q->y.c0 % r->vl == 0 && !ist_has(e->add_before) && !ist_has(e->add_after);
}

static void launch(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r, const ist_conv_panel *w) {
    const ist_conv_opts *o = q->o;
    bool half = ist_plan_half(p);
    int row_tiles = ist_div_up(q->x.n * q->oh * q->ow, r->mr);
    size_t items = (size_t)r->items;
    const ist_conv_args by_value = {ist_conv_shape_of(q), ist_conv_epilogue_of(q)};
    ist_arg no_scratch = IST_IN((ist_tensor){0});
    char most[16] = "";
    if (r->bk) snprintf(most, sizeof most, " -DMOST=%d", r->bk);
    ist_defines defines =
        ist_defines_of(p, "-DMR=%d -DNV=%d -DVL=%d%s%s%s%s", r->mr, r->nv, r->vl,
                       half && q->x.elem == IST_ELEM_F32 ? " -DX32" : "",
                       half && q->y.elem == IST_ELEM_F32 ? " -DY32" : "", most, aligned(p, q, r) ? " -DALIGNED" : "");
    ist_launch l = {
        .label = q->label,
        .op = r->op,
        .isa = "portable/vector",
        .defines = defines.text,
        .kernel = "conv",
        .dims = 3,
        .global = {(size_t)row_tiles * items, (size_t)ist_div_up(q->f.out, r->nv * r->vl), 1},
        .local = {items, 1, 1},
        .args = {IST_IN(q->x), IST_IN(w->weights), IST_IN(w->bias), no_scratch, IST_OUT(q->y),
                 IST_IN(o->epi.add_before), IST_IN(o->epi.add_after), IST_IN(ist_plan_current_limit(p)),
                 IST_STRUCT(conv_args, &by_value)},
        .arg_count = 9,
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

const ist_family ist_portable_conv = {.takes = takes, .cost = cost, .emit = emit, .rows = IST_REPEATS_POINTS};
