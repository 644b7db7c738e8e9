/* D-FINE's box arithmetic: reference boxes, distributions over bins, quality (Peterande/D-FINE,
 * src/zoo/dfine/dfine_decoder.py and dfine_utils.py; cl/portable/box). */
#include "variants/lanes.h"
#include "variants/portable/box_args.h"

enum { SIDES = 4, BINS = IST_FDR_BINS };

/* Options for the storage types of two operands. */
static ist_defines types_of(const ist_plan *p, ist_tensor a, ist_tensor b, int lanes) {
    return ist_defines_of(p, "-DLANES=%d %s %s", lanes, a.elem == IST_ELEM_F32 ? "-DA_F32" : "",
                          b.elem == IST_ELEM_F32 ? "-DB_F32" : "");
}

/* A kernel over the pixels of a with b beside it, named like its kind. */
static void emit_box(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_box *q = node;
    ist_tensor a = q->a, b = q->b;
    int pixels = a.h * a.w;
    size_t local = (size_t)ist_lanes_of(v)->lanes;
    const ist_box_args by_value = {.queries = pixels,
                                   .c = a.c,
                                   .one_b = b.n == 1 && a.n > 1,
                                   .a_ld = a.ld,
                                   .a_c0 = a.c0,
                                   .b_ld = b.ld,
                                   .b_c0 = b.c0};
    ist_defines defines = types_of(p, a, b, (int)local);
    (void)way;
    ist_plan_launch(p, &(ist_launch){.label = q->label,
                                     .op = "portable/box",
                                     .isa = "portable/distribution",
                                     .defines = defines.text,
                                     .kernel = ist_kind_of(v->kind)->name,
                                     .dims = 2,
                                     .global = {ist_round_up((size_t)pixels, local), (size_t)a.n},
                                     .local = {local, 1},
                                     .args = {IST_OUT(q->y), IST_IN(a), IST_IN(b), IST_IN(ist_plan_current_limit(p)),
                                              IST_STRUCT(box_args, &by_value)},
                                     .arg_count = 5,
                                     .bytes = 12.0 * a.n * pixels * a.c});
}

const ist_family ist_portable_box = {.emit = emit_box};

static void emit_fdr(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_fdr *f = node;
    ist_tensor increment = f->increment;
    int n = increment.n, q = increment.h * increment.w;
    size_t lanes = (size_t)ist_lanes_of(v)->lanes;
    ist_tensor w = ist_plan_const(p, f->project, 1, 1, 1, BINS, IST_ELEM_F32, f->label);
    const ist_fdr_args by_value = {.queries = q,
                                   .has_previous = ist_has(f->previous),
                                   .a_ld = increment.ld,
                                   .a_c0 = increment.c0,
                                   .scale = f->reg_scale};
    ist_defines defines = types_of(p, increment, (ist_tensor){0}, (int)lanes);
    (void)way;
    ist_plan_launch(
        p, &(ist_launch){.label = f->label,
                         .op = "portable/box",
                         .isa = "portable/distribution",
                         .defines = defines.text,
                         .kernel = "fdr",
                         .dims = 2,
                         .global = {lanes == 1 ? (size_t)q : ist_round_up((size_t)q * SIDES, lanes), (size_t)n},
                         .local = {lanes, 1},
                         .args = {IST_OUT(f->boxes), IST_OUT(f->corners), IST_IN(increment), IST_IN(f->previous),
                                  IST_IN(f->ref), IST_IN(w), IST_IN(ist_plan_current_limit(p)),
                                  IST_STRUCT(fdr_args, &by_value)},
                         .arg_count = 8,
                         .bytes = 12.0 * n * q * SIDES * BINS});
}

const ist_family ist_portable_fdr = {.emit = emit_fdr};

static void emit_lqe(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_lqe *l = node;
    int n = l->corners.n, q = l->corners.h * l->corners.w;
    size_t local = (size_t)ist_lanes_of(v)->lanes;
    const ist_lqe_args by_value = {.queries = q, .y_ld = l->y.ld, .y_c0 = l->y.c0};
    ist_defines defines = types_of(p, (ist_tensor){0}, (ist_tensor){0}, (int)local);
    (void)way;
    ist_plan_launch(p, &(ist_launch){.label = l->label,
                                     .op = "portable/box",
                                     .isa = "portable/distribution",
                                     .defines = defines.text,
                                     .kernel = "lqe",
                                     .dims = 2,
                                     .global = {ist_round_up((size_t)q * SIDES, local), (size_t)n},
                                     .local = {local, 1},
                                     .args = {IST_OUT(l->y), IST_IN(l->corners), IST_IN(ist_plan_current_limit(p)),
                                              IST_STRUCT(lqe_args, &by_value)},
                                     .arg_count = 4,
                                     .bytes = 4.0 * n * q * SIDES * BINS});
}

const ist_family ist_portable_lqe = {.emit = emit_lqe};
