/* Mask upscaling by work-groups with local memory (cl/portable/upscale). */
#include "variants/upscale.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>

enum { PIXELS = 8 /* of a group of 256 work-items */ };

/* The configuration is the number of work-items of a group (an int). */

static void launch(ist_plan *p, const ist_upscale *q, int items) {
    ist_tensor x = q->x, vectors = q->vectors;
    ist_upscale_packed c;
    if (!ist_upscale_pack(p, q, &c)) return;
    int masks = vectors.h * vectors.w, pixels = x.h * x.w, take = items == 256 ? PIXELS : PIXELS / 2;
    ist_defines defines = ist_defines_of(p, "-DK=%d -DGROUP=%d", x.c, items);
    const ist_upscale_args by_value = ist_upscale_args_of(q);
    ist_plan_launch(p, &(ist_launch){.label = q->label,
                                     .op = "portable/upscale",
                                     .defines = defines.text,
                                     .kernel = "upscale",
                                     .dims = 2,
                                     .global = {(size_t)ist_div_up(pixels, take) * (size_t)items, (size_t)x.n},
                                     .local = {(size_t)items, 1},
                                     .args = {IST_OUT(q->y), IST_IN(x), IST_IN(c.w1), IST_IN(c.norm), IST_IN(c.w2),
                                              IST_IN(c.b2), IST_IN(vectors), IST_IN(ist_plan_current_limit(p)),
                                              IST_STRUCT(upscale_args, &by_value)},
                                     .arg_count = 9,
                                     .flops = ist_upscale_flops(q, x.c),
                                     .bytes = 4.0 * x.n * pixels * (x.c + 16.0 * masks)});
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_upscale centred;
    float *room;
    (void)way;
    if (ist_upscale_centred(p, node, &centred, &room)) launch(p, &centred, *(const int *)v->config);
    free(room);
}

const ist_family ist_portable_upscale = {.emit = emit};
