/* Selection: row maxima, exact top-k, scores, gather (cl/portable/topk). One work-item per problem on CPUs, elsewhere
 * groups of 64 or, for top-k, 256. */
#include "variants/lanes.h"
#include "variants/portable/detect_args.h"

#include "base/mem.h"

enum { K_MAX = 512, RUN = 32 /* of tokens, where one work-item is a group */, SPAN = 2048 };

/* Where T is half: whether x is float all the same. */
static const char *x_define(const ist_plan *p, ist_tensor x) {
    return ist_plan_half(p) && x.elem == IST_ELEM_F32 ? " -DX_F32" : "";
}

/* The same for all kernels of a frame on a CPU: one program has them. */
static ist_defines defines_of(const ist_plan *p, int lanes, ist_tensor x) {
    return ist_defines_of(p, "-DLANES=%d -DK_MAX=%d%s", lanes, K_MAX, x_define(p, x));
}

static void emit_row_max(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_row_max *q = node;
    ist_tensor x = q->x;
    int lanes = ist_lanes_of(v)->lanes, tokens = x.h * x.w, run = lanes == 1 ? RUN : 1;
    ist_defines defines = defines_of(p, lanes, x);
    (void)way;
    ist_plan_launch(
        p, &(ist_launch){
               .label = q->label,
               .op = "portable/topk",
               .defines = defines.text,
               .kernel = "row_max",
               .dims = 2,
               .global = {ist_round_up((size_t)ist_div_up(tokens, run), (size_t)lanes), (size_t)x.n},
               .local = {(size_t)lanes, 1},
               .args = {IST_OUT(q->y), IST_IN(x), IST_IN(ist_plan_current_limit(p)), IST_INT4(tokens, x.c, x.ld, x.c0)},
               .arg_count = 4,
               .bytes = 4.0 * x.n * tokens * x.c});
}

const ist_family ist_portable_row_max = {.emit = emit_row_max};

/* The k best of each run of `span` of the entries, which are values of x or what `list` names, to y. */
static void best_of(ist_plan *p, int lanes, ist_tensor x, ist_tensor list, int entries, int k, int span, ist_tensor y,
                    const char *label) {
    ist_defines defines = defines_of(p, lanes, (ist_tensor){0});
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "portable/topk",
                                     .defines = defines.text,
                                     .kernel = "topk",
                                     .dims = 2,
                                     .global = {(size_t)lanes * (size_t)ist_div_up(entries, span), (size_t)x.n},
                                     .local = {(size_t)lanes, 1},
                                     .args = {IST_OUT(y), IST_IN(x), IST_IN(list), IST_IN(ist_plan_current_limit(p)),
                                              IST_INT4(entries, k, x.ld, x.c0),
                                              IST_INT4(span, ist_has(list), x.h * x.w, 0)},
                                     .arg_count = 6,
                                     .bytes = 4.0 * x.n * entries});
}

/* Groups share a long list, then one of them takes the best of their best. */
static void emit_topk(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_top_rows *q = node;
    int lanes = ist_lanes_of(v)->wide, total = q->x.h * q->x.w, k = q->k;
    ist_tensor some = {0};
    (void)way;
    if (lanes > 1 && total > 2 * SPAN && k <= SPAN / 2) {
        some = ist_plan_tensor(p, q->x.n, 1, ist_div_up(total, SPAN) * k, 1, IST_ELEM_I32);
        best_of(p, lanes, q->x, (ist_tensor){0}, total, k, SPAN, some, q->label);
        total = some.w;
    }
    best_of(p, lanes, q->x, some, total, k, total, q->y, q->label);
}

const ist_family ist_portable_topk = {.emit = emit_topk};

static void emit_top_rows(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_top_rows *q = node;
    ist_row_max most = {.label = q->label, .x = q->x};
    (void)v, (void)way;
    ist_emit(p, IST_NODE_ROW_MAX, &most);
    ist_top_rows best = {.label = q->label, .x = most.y, .y = q->y, .k = q->k};
    ist_emit(p, IST_NODE_TOPK, &best);
}

const ist_family ist_portable_top_rows = {.emit = emit_top_rows};

static void emit_top_scores(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_top_scores *q = node;
    ist_tensor x = q->x;
    int tokens = x.h * x.w;
    size_t lanes = (size_t)ist_lanes_of(v)->lanes;
    ist_defines defines = ist_defines_of(p, "-DLANES=%d", (int)lanes);
    (void)way;
    const ist_scores_args by_value = {.queries = tokens, .classes = x.c, .logits_ld = x.ld, .logits_c0 = x.c0};
    q->scores = ist_plan_tensor(p, x.n, 1, tokens * x.c, 1, IST_ELEM_F32);
    ist_plan_launch(
        p, &(ist_launch){.label = q->label,
                         .op = "portable/detect",
                         .isa = "codes/frame+portable/frame",
                         .defines = defines.text,
                         .kernel = "scores",
                         .dims = 2,
                         .global = {ist_round_up((size_t)(lanes == 1 ? tokens : tokens * x.c), lanes), (size_t)x.n},
                         .local = {lanes, 1},
                         .args = {IST_OUT(q->scores), IST_IN(x), IST_IN(ist_plan_current_limit(p)),
                                  IST_STRUCT(scores_args, &by_value)},
                         .arg_count = 4});
    ist_top_rows best = {.label = q->label, .x = q->scores, .k = q->k};
    ist_emit(p, IST_NODE_TOPK, &best);
    q->index = best.y;
}

const ist_family ist_portable_top_scores = {.emit = emit_top_scores};

static void emit_gather(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_gather *q = node;
    ist_tensor x = q->x, index = q->index;
    int lanes = ist_lanes_of(v)->lanes, k = index.h * index.w, run = lanes == 1 ? RUN : 1;
    ist_defines defines = defines_of(p, lanes, x);
    (void)way;
    ist_plan_launch(p, &(ist_launch){.label = q->label,
                                     .op = "portable/topk",
                                     .defines = defines.text,
                                     .kernel = "gather",
                                     .dims = 3,
                                     .global = {(size_t)lanes, (size_t)ist_div_up(k, run), (size_t)index.n},
                                     .local = {(size_t)lanes, 1, 1},
                                     .args = {IST_OUT(q->y), IST_IN(x), IST_IN(index),
                                              IST_IN(ist_plan_current_limit(p)),
                                              IST_INT4(x.h * x.w, k, x.c, x.n == 1), IST_INT4(x.ld, x.c0, 0, 0)},
                                     .arg_count = 6,
                                     .bytes = 8.0 * index.n * k * x.c});
}

const ist_family ist_portable_gather = {.emit = emit_gather};
