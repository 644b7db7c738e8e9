/* See eltwise.h. */
#include "variants/eltwise.h"

#include "variants/defines.h"

#include <string.h>

static ist_eltwise of_add(const ist_add *q) {
    bool pixel = q->b.h * q->b.w == 1 && q->a.h * q->a.w != 1;
    int mode = IST_ELTWISE_B_EACH | (q->b.n == 1 ? IST_ELTWISE_B_ONE_ITEM : 0) | (pixel ? IST_ELTWISE_B_ONE_PIXEL : 0);
    return (ist_eltwise){.label = q->label, .y = q->y, .a = q->a, .b = q->b, .mode = mode};
}

ist_eltwise ist_eltwise_of(ist_node_kind kind, const void *node) {
    if (kind == IST_NODE_ADD) return of_add(node);
    if (kind == IST_NODE_CLAMP) {
        const ist_clamp *q = node;
        return (ist_eltwise){
            .label = q->label, .y = q->y, .a = q->x, .mode = IST_ELTWISE_CLAMPED, .lo = q->lo, .hi = q->hi};
    }
    if (kind == IST_NODE_EXPAND) {
        const ist_expand *q = node;
        return (ist_eltwise){.label = q->label, .y = q->y, .a = q->x, .map = q->map, .mode = IST_ELTWISE_A_MAPPED};
    }
    if (kind == IST_NODE_COPY_ROWS) {
        const ist_copy_rows *q = node;
        ist_tensor y = ist_view(q->into, q->x.n, q->x.h, q->x.w);
        y.c0 += q->first * q->into.ld;
        return (ist_eltwise){.label = q->label, .y = y, .a = q->x, .stride = q->into.h * q->into.w};
    }
    const ist_copy *q = node;
    int mode = q->x.n == 1 && q->y.n > 1 ? IST_ELTWISE_A_ONE_ITEM : 0;
    return (ist_eltwise){.label = q->label, .y = q->y, .a = q->x, .mode = mode};
}

/* Storage that is four bytes wide although T is half. */
static const char *wide(const ist_plan *p, ist_tensor t, const char *define) {
    return ist_plan_half(p) && ist_has(t) && t.elem != IST_ELEM_T ? define : "";
}

void ist_eltwise_launch(ist_plan *p, const ist_eltwise *e, ist_launch *l, int width, int rows, int span,
                        ist_tensor queue) {
    int pixels = e->y.h * e->y.w, c = e->y.c;
    ist_defines d = ist_defines_of(p, "-DVW=%d%s%s%s", width, wide(p, e->a, " -DA_F32"), wide(p, e->b, " -DB_F32"),
                                   wide(p, e->y, " -DY_F32"));
    const ist_eltwise_args by_value = {.a_ld = e->a.ld,
                                       .b_ld = e->b.ld,
                                       .y_ld = e->y.ld,
                                       .a_c0 = e->a.c0,
                                       .b_c0 = e->b.c0,
                                       .y_c0 = e->y.c0,
                                       .items = e->y.n,
                                       .pixels = pixels,
                                       .c = c,
                                       .y_stride = e->stride ? e->stride : pixels,
                                       .rows = rows,
                                       .span = span,
                                       .mode = e->mode,
                                       .lo = e->lo,
                                       .hi = e->hi};
    const ist_arg args[] = {IST_OUT(e->y),
                            IST_IN(e->a),
                            IST_IN(e->b),
                            IST_IN(e->map),
                            IST_IN(ist_plan_current_limit(p)),
                            IST_STRUCT(eltwise_args, &by_value),
                            IST_INOUT(queue)};
    l->label = e->label;
    l->op = "portable/eltwise";
    l->defines = d.text;
    l->kernel = "eltwise";
    l->arg_count = (int)(sizeof args / sizeof *args) - !ist_has(queue);
    memcpy(l->args, args, sizeof args);
    l->bytes = (double)ist_pixels(e->y) * c * (e->mode & IST_ELTWISE_B_EACH ? 3 : 2) * (ist_plan_half(p) ? 2 : 4);
    ist_plan_launch(p, l);
}
