/* The 2x2 maximum of HGNetv2's stem on CPUs: a line for each work-item (cl/portable/pool). */
#include "variants/defines.h"
#include "variants/variant.h"

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_maxpool *q = node;
    ist_tensor x = q->x, y = q->y;
    ist_defines defines = ist_defines_of(p, "%s", "");
    (void)v, (void)way;
    ist_plan_launch(p, &(ist_launch){.label = q->label,
                                     .op = "portable/pool",
                                     .defines = defines.text,
                                     .kernel = "maxpool2x2",
                                     .dims = 1,
                                     .global = {(size_t)(x.n * x.h)},
                                     .local = {1},
                                     .args = {IST_IN(x), IST_OUT(y), IST_IN(ist_plan_current_limit(p)),
                                              IST_INT4(x.h, x.w, x.ld, x.c0), IST_INT4(y.ld, y.c0, y.c, x.w)},
                                     .arg_count = 5,
                                     .bytes = 2.0 * (ist_plan_half(p) ? 2 : 4) * ist_pixels(x) * x.c});
}

const ist_family ist_cpu_pool = {.emit = emit};
