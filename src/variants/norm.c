/* See norm.h. */
#include "variants/norm.h"

static const float EPS = 1e-5f;

void ist_gate_launch(ist_plan *p, const ist_gate *q, const ist_launch *grid, int rows) {
    ist_tensor g = q->g, a = q->a, b = q->b, y = q->y;
    ist_tensor gamma = ist_plan_const(p, q->norm.gamma, 1, 1, 1, a.c, IST_ELEM_F32, q->label);
    ist_tensor beta = ist_plan_const(p, q->norm.beta, 1, 1, 1, a.c, IST_ELEM_F32, q->label);
    ist_launch l = *grid;
    const ist_arg args[] = {IST_OUT(y), IST_IN(g), IST_IN(a), IST_IN(b), IST_IN(gamma), IST_IN(beta),
                            IST_IN(ist_plan_current_limit(p)), IST_INT4(g.ld, a.ld, b.ld, y.ld),
                            IST_INT4(g.c0, a.c0, b.c0, y.c0), IST_INT4(a.h * a.w, a.c, rows, 0), IST_FLOAT(EPS)};
    l.label = q->label;
    l.op = "portable/norm";
    l.kernel = "gate";
    l.dims = 2;
    l.arg_count = sizeof args / sizeof *args;
    for (int i = 0; i < l.arg_count; i++) l.args[i] = args[i];
    l.bytes = (double)ist_pixels(a) * a.c * 5 * (ist_plan_half(p) ? 2 : 4);
    ist_plan_launch(p, &l);
}
