/* Deformable attention on CPUs: some queries for each group (cl/portable/deform). */
#include "variants/deform.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

enum { VEC = 16 };

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_deform *d = node;
    int queries = d->offsets.h * d->offsets.w, pad = (int)ist_round_up((size_t)ist_deform_points(d), VEC);
    (void)v, (void)way;
    ist_deform_launch(p, d, pad, (size_t)ist_div_up(queries, IST_DEFORM_QUERIES), 1, " -DWIDE");
}

const ist_family ist_cpu_deform = {.emit = emit};
