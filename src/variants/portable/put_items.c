/* Items that take the places of others (cl/portable/put_items). */
#include "variants/portable/put_items_args.h"
#include "variants/defines.h"
#include "variants/variant.h"

enum { GROUP = 64 };

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_put_items *q = node;
    ist_tensor x = q->x, into = q->into;
    int values = x.h * x.w * x.c;
    const ist_put_items_args by_value = {.values = values,
                                         .channels = x.c,
                                         .each = x.n / ist_pixels(q->counts),
                                         .above = q->above,
                                         .x_ld = x.ld,
                                         .x_c0 = x.c0,
                                         .into_ld = into.ld,
                                         .into_c0 = into.c0};
    (void)v, (void)way;
    ist_plan_launch(p, &(ist_launch){.label = q->label,
                                     .op = "portable/put_items",
                                     .defines = "",
                                     .kernel = "put_items",
                                     .dims = 2,
                                     .global = {ist_round_up((size_t)values, GROUP), (size_t)x.n},
                                     .local = {GROUP, 1},
                                     .args = {IST_INOUT(into), IST_IN(x), IST_IN(q->counts),
                                              IST_IN(ist_plan_current_limit(p)), IST_STRUCT(put_items_args, &by_value)},
                                     .arg_count = 5,
                                     .bytes = 8.0 * x.n * values});
}

const ist_family ist_portable_put_items = {.emit = emit};
