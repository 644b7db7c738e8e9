/* The convolution row for linear layers on few pixels, on CPUs: packs weights in panels and records the launch of
 * cpu/conv_tokens. Its results have the bits of cpu/conv's, so that how many items there are may decide between them. */
#include "variants/cpu/conv.h"
#include "variants/cpu/conv_args.h"
#include "variants/panels.h"
#include "variants/defines.h"

#include <math.h>

enum { ROWS = 64 }; /* whose sums lie in the first-level cache with what is multiplied */

static bool can(const ist_conv_tile *r, const ist_conv_problem *q) {
    const ist_epilogue *e = &q->o->epi;
    bool plain = e->act <= IST_ACT_RELU && !e->has_lab && !ist_has(e->add_before) && !ist_has(e->add_after);
    return ist_conv_is_point(q) && q->norm_eps <= 0 && plain && (long)q->x.n * q->oh * q->ow <= r->bk;
}

static void record(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r) {
    ist_conv_panel w;
    if (!ist_conv_panels_pack(p, q, r->nv * r->vl, &w)) return;
    ist_defines defines = ist_defines_of(p, "-DROWS_MAX=%d", ROWS);
    const ist_conv_tokens_args by_value = {.x_ld = q->x.ld,
                                           .x_c0 = q->x.c0,
                                           .x_c = q->x.c,
                                           .items = q->y.n,
                                           .pixels = q->oh * q->ow,
                                           .y_ld = q->y.ld,
                                           .y_c0 = q->y.c0,
                                           .y_c = q->y.c,
                                           .act = (int)q->o->epi.act};
    ist_plan_launch(p,
                    &(ist_launch){.label = q->label,
                                  .op = r->op,
                                  .defines = defines.text,
                                  .kernel = "conv",
                                  .dims = 1,
                                  .global = {(size_t)ist_plan_units(p)},
                                  .local = {1},
                                  .args = {IST_IN(q->x), IST_IN(w.weights), IST_IN(w.bias), IST_OUT(q->y),
                                           IST_IN(ist_plan_current_limit(p)), IST_STRUCT(conv_tokens_args, &by_value),
                                           IST_INOUT(ist_plan_work_queue(p))},
                                  .arg_count = 7,
                                  .shares = true,
                                  .flops = 2.0 * q->x.n * q->oh * q->ow * q->f.in * q->f.out,
                                  .bytes = ist_conv_bytes(p, q, sizeof(float))});
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    ist_conv_problem q = ist_conv_problem_of(node);
    (void)p;
    return can(v->config, &q);
}

/* Weights, which are most of what such a layer waits for, pass once. */
static double cost(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    (void)v, (void)way;
    return ist_conv_below_panels(p, node, HUGE_VAL);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_conv_problem q = ist_conv_problem_of(node);
    (void)way;
    record(p, &q, v->config);
}

const ist_family ist_cpu_conv_tokens = {.takes = takes, .cost = cost, .emit = emit};
