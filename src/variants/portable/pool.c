/* The 2x2 maximum of HGNetv2's stem: fours of channels, where lines are long several pixels (cl/portable/pool). */
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

enum { GROUP = 64, RUN = 4 }; /* pixels of a work-item where lines are multiples of it */

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_maxpool *q = node;
    ist_tensor x = q->x, y = q->y;
    int quads = ist_div_up(x.c, 4), run = x.w % RUN == 0 ? RUN : 1;
    bool aligned = (x.ld | x.c0 | y.ld | y.c0) % 4 == 0;
    ist_defines defines = ist_defines_of(p, "%s", aligned ? " -DALIGNED" : "");
    (void)v, (void)way;
    if (run > 1) ist_defines_add(&defines, " -DRUN=%d", RUN);
    ist_plan_launch(p, &(ist_launch){.label = q->label,
                                     .op = "portable/pool",
                                     .defines = defines.text,
                                     .kernel = "maxpool2x2_group",
                                     .dims = 1,
                                     .global = {ist_round_up((size_t)(ist_pixels(x) / run) * (size_t)quads, GROUP)},
                                     .local = {GROUP},
                                     .args = {IST_IN(x), IST_OUT(y), IST_IN(ist_plan_current_limit(p)),
                                              IST_INT4(x.h, x.w, x.ld, x.c0), IST_INT4(y.ld, y.c0, y.c, quads),
                                              IST_INT(x.n)},
                                     .arg_count = 6,
                                     .bytes = 2.0 * (ist_plan_half(p) ? 2 : 4) * ist_pixels(x) * x.c});
}

const ist_family ist_portable_pool = {.emit = emit};
