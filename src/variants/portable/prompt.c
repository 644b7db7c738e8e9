/* Prompt tokens of the segmenter. One kernel each serves every device: they are a percent of a frame
 * (cl/portable/prompt). */
#include "variants/defines.h"
#include "variants/portable/prompt_args.h"
#include "variants/variant.h"

#include <string.h>

enum { GROUP = 64, HALF = IST_POINT_DIM / 2 };

/* The embeddings of the labels as one table. */
static ist_tensor table_of(ist_plan *p, const ist_point_tokens *q) {
    float all[IST_POINT_LABELS * IST_POINT_DIM];
    for (int i = 0; i < IST_POINT_LABELS; i++)
        memcpy(all + i * IST_POINT_DIM, q->table[i].v, IST_POINT_DIM * sizeof *all);
    return ist_plan_const(p, all, 1, 1, IST_POINT_LABELS, IST_POINT_DIM, IST_ELEM_F32, q->label);
}

static void emit_points(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_point_tokens *q = node;
    ist_tensor points = q->points, labels = q->labels, own = q->own;
    ist_tensor gauss = ist_plan_const(p, q->gauss.v, 1, 1, 2, HALF, IST_ELEM_F32, q->label), table = table_of(p, q);
    ist_defines defines = ist_defines_of(p, "%s", "");
    const ist_point_tokens_args by_value = {.own_rows = own.w,
                                            .points = points.w,
                                            .points_ld = points.ld,
                                            .points_c0 = points.c0,
                                            .labelled = ist_has(labels),
                                            .labels_ld = labels.ld,
                                            .labels_c0 = labels.c0,
                                            .first_label = q->first_label,
                                            .most_label = ist_has(labels) && !q->corners ? 1 : 3,
                                            .side = q->side};
    (void)v, (void)way;
    ist_plan_launch(p, &(ist_launch){.label = q->label,
                                     .op = "portable/prompt",
                                     .defines = defines.text,
                                     .kernel = "point_tokens",
                                     .dims = 3,
                                     .global = {HALF, (size_t)q->y.w, (size_t)points.n},
                                     .local = {GROUP, 1, 1},
                                     .args = {IST_OUT(q->y), IST_IN(points), IST_IN(labels), IST_IN(gauss),
                                              IST_IN(table), IST_IN(own), IST_IN(ist_plan_current_limit(p)),
                                              IST_STRUCT(point_tokens_args, &by_value)},
                                     .arg_count = 8});
}

const ist_family ist_portable_point_tokens = {.emit = emit_points};

static void emit_join(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_join_tokens *q = node;
    ist_tensor a = q->a, b = q->b, y = q->y;
    ist_defines defines = ist_defines_of(p, "%s", "");
    const ist_join_tokens_args by_value = {.c = a.c,
                                           .a_tokens = a.w,
                                           .a_ld = a.ld,
                                           .a_c0 = a.c0,
                                           .a_items = a.n,
                                           .b_tokens = b.w,
                                           .b_ld = b.ld,
                                           .b_c0 = b.c0};
    (void)v, (void)way;
    ist_plan_launch(p, &(ist_launch){.label = q->label,
                                     .op = "portable/prompt",
                                     .defines = defines.text,
                                     .kernel = "join_tokens",
                                     .dims = 3,
                                     .global = {ist_round_up((size_t)a.c, GROUP), (size_t)y.w, (size_t)y.n},
                                     .local = {GROUP, 1, 1},
                                     .args = {IST_OUT(y), IST_IN(a), IST_IN(b), IST_IN(ist_plan_current_limit(p)),
                                              IST_STRUCT(join_tokens_args, &by_value)},
                                     .arg_count = 5});
}

const ist_family ist_portable_join_tokens = {.emit = emit_join};

static void emit_dense(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_dense_prompt *q = node;
    ist_tensor x = q->x, y = q->y;
    ist_tensor none = ist_plan_const(p, q->none.v, 1, 1, 1, x.c, IST_ELEM_F32, q->label);
    ist_defines defines = ist_defines_of(p, "%s", "");
    const ist_dense_prompt_args by_value = {.pixels = x.h * x.w, .c = x.c, .x_ld = x.ld, .x_c0 = x.c0};
    (void)v, (void)way;
    ist_plan_launch(p,
                    &(ist_launch){.label = q->label,
                                  .op = "portable/prompt",
                                  .defines = defines.text,
                                  .kernel = "dense_prompt",
                                  .dims = 3,
                                  .global = {ist_round_up((size_t)x.c, GROUP), (size_t)(x.h * x.w), (size_t)x.n},
                                  .local = {GROUP, 1, 1},
                                  .args = {IST_OUT(y), IST_IN(x), IST_IN(q->given), IST_IN(none),
                                           IST_IN(ist_plan_current_limit(p)), IST_STRUCT(dense_prompt_args, &by_value)},
                                  .arg_count = 6});
}

const ist_family ist_portable_dense_prompt = {.emit = emit_dense};
