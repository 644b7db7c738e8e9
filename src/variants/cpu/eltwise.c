/* Element-wise nodes on CPUs: rows of pixels for each item of work (cl/portable/eltwise). */
#include "variants/eltwise.h"
#include "variants/variant.h"

#include "base/mem.h"

enum { GROUP_VALUES = 16384, VEC = 16 };

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_eltwise e = ist_eltwise_of(v->kind, node);
    int pixels = e.y.h * e.y.w, c = e.y.c, rows = ist_div_up(GROUP_VALUES, c);
    (void)way;
    ist_launch l = {.dims = 1, .global = {(size_t)ist_plan_units(p)}, .local = {1}, .shares = true};
    ist_eltwise_launch(p, &e, &l, VEC, rows < pixels ? rows : pixels, c, ist_plan_work_queue(p));
}

const ist_family ist_cpu_eltwise = {.emit = emit};
