/* Makes rows that were left out (cl/portable/repeat_rows). */
#include "variants/padding_reuse.h"
#include "variants/variant.h"

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    enum { ITEMS = 64 };
    ist_repeat_rows *q = node;
    const ist_tensor x = q->x;
    (void)v, (void)way;
    const ist_repeat_rows_args by_value = {.h = x.h,
                                           .w = x.w,
                                           .ld = x.ld,
                                           .c0 = x.c0,
                                           .c = x.c,
                                           .reuse = ist_padding_reuse_read(q->reuse, x.h)};
    ist_defines defines = ist_defines_of(p, "%s", "");
    ist_padding_reuse_define(&defines, &q->reuse);
    q->y = x; /* in place */
    ist_plan_launch(p, &(ist_launch){.label = q->label,
                                     .op = "portable/repeat_rows",
                                     .isa = "portable/left_out",
                                     .defines = defines.text,
                                     .kernel = "repeat_rows",
                                     .dims = 3,
                                     .global = {ist_round_up((size_t)x.w * (size_t)x.c, ITEMS), (size_t)x.h, (size_t)x.n},
                                     .local = {ITEMS, 1, 1},
                                     .args = {IST_INOUT(x), IST_IN(q->reuse.content), IST_IN(ist_plan_current_limit(p)),
                                              IST_STRUCT(repeat_rows_args, &by_value)},
                                     .arg_count = 4,
                                     .bytes = (ist_plan_half(p) ? 4.0 : 8.0) * (double)ist_pixels(x) * x.c});
}

const ist_family ist_portable_repeat_rows = {.emit = emit};

void ist_padding_reuse_fill(ist_plan *p, ist_tensor x, ist_padding_reuse *a, const char *label) {
    if (!a->left_out || ist_plan_status(p)) return;
    ist_emit(p, IST_NODE_REPEAT_ROWS, &(ist_repeat_rows){.label = label, .x = x, .reuse = *a});
    a->left_out = false;
}
