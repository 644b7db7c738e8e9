/* Element-wise nodes: a vector of channels for each work-item (cl/portable/eltwise). */
#include "variants/eltwise.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

enum { GROUP = 64 };

/* Rows that begin at multiples of eight elements. */
static bool aligned(ist_tensor t) {
    return !ist_has(t) || (t.ld % 8 == 0 && t.c0 % 8 == 0);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_eltwise e = ist_eltwise_of(v->kind, node);
    int pixels = e.y.h * e.y.w, c = e.y.c;
    int width = c % 8 == 0 && aligned(e.a) && aligned(e.b) && aligned(e.y) ? 8 : 4;
    size_t items = (size_t)pixels * (size_t)ist_div_up(c, width);
    (void)way;
    ist_launch l = {.dims = 2, .global = {ist_round_up(items, GROUP), (size_t)e.y.n}, .local = {GROUP, 1}};
    ist_eltwise_launch(p, &e, &l, width, 1, width, (ist_tensor){0});
}

const ist_family ist_portable_eltwise = {.emit = emit};
