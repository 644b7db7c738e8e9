/* Overwrites chosen pixels with one vector (cl/portable/fill_rows). */
#include "variants/lanes.h"

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_fill_rows *q = node;
    size_t lanes = (size_t)ist_lanes_of(v)->lanes;
    ist_tensor x = q->x, constant = ist_plan_const(p, q->filter.b, 1, 1, 1, x.c, IST_ELEM_F32, q->label);
    ist_defines defines = ist_defines_of(p, "-DLANES=%d", (int)lanes);
    (void)way;
    q->y = x; /* in place */
    ist_plan_launch(p, &(ist_launch){.label = q->label,
                                     .op = "portable/fill_rows",
                                     .defines = defines.text,
                                     .kernel = "fill_rows",
                                     .dims = 2,
                                     .global = {(size_t)ist_pixels(q->rows) * lanes, (size_t)x.n},
                                     .local = {lanes, 1},
                                     .args = {IST_INOUT(x), IST_IN(q->rows), IST_IN(constant),
                                              IST_IN(ist_plan_current_limit(p)), IST_INT4(x.ld, x.c0, x.c, x.h * x.w)},
                                     .arg_count = 5,
                                     .bytes = 4.0 * x.n * ist_pixels(q->rows) * x.c});
}

const ist_family ist_portable_fill_rows = {.emit = emit};
