/* What infer functions say of a result. */
#ifndef IST_GRAPH_SHAPES_RESULT_H
#define IST_GRAPH_SHAPES_RESULT_H

#include "graph/shapes.h"

#define EXTENTS(t) (t).n, (t).h, (t).w, (t).c

static inline ist_tensor extents(int n, int h, int w, int c, ist_elem elem) {
    return (ist_tensor){.n = n, .h = h, .w = w, .c = c, .elem = elem};
}

/* The result becomes one of these extents; where it has a place, that stays, and with it the place's element type when
 * `any` float will do. A place of other extents is refused. */
static inline ist_status result(ist_tensor *y, ist_tensor want, bool any, const char *label, ist_error *err) {
    if (!ist_has(*y)) {
        *y = want;
        return IST_OK;
    }
    bool floats = y->elem == IST_ELEM_T || y->elem == IST_ELEM_F32;
    if (y->n == want.n && y->h == want.h && y->w == want.w && y->c == want.c &&
        (y->elem == want.elem || (any && floats)))
        return IST_OK;
    return ist_fail(err, IST_E_ARGUMENT, "%s: makes [%d,%d,%d,%d], the place for it is [%d,%d,%d,%d]", label,
                    EXTENTS(want), EXTENTS(*y));
}

#endif
