/* See norm.h. */
#include "variants/norm.h"

static const float EPS = 1e-5f;

ist_layernorm_args ist_layernorm_args_of(const ist_layer_norm *q, int rows) {
    ist_tensor x = q->x, add = q->add, out = q->y;
    return (ist_layernorm_args){.x_ld = x.ld,
                                .add_ld = add.ld,
                                .out_ld = out.ld,
                                .x_c0 = x.c0,
                                .add_c0 = add.c0,
                                .out_c0 = out.c0,
                                .items = x.n,
                                .pixels = x.h * x.w,
                                .c = x.c,
                                .rows = rows,
                                .adds = !ist_has(add)    ? IST_NORM_ADD_NONE
                                        : add.n == x.n ? IST_NORM_ADD_EACH
                                                       : IST_NORM_ADD_ONE,
                                .act = (int)q->act,
                                .eps = q->eps,
                                .bound = q->clamp,
                                .inverse_c = 1.0f / (float)x.c};
}

void ist_gate_launch(ist_plan *p, const ist_gate *q, const ist_launch *grid, int rows) {
    ist_tensor g = q->g, a = q->a, b = q->b, y = q->y;
    ist_tensor gamma = ist_plan_const(p, q->norm.gamma, 1, 1, 1, a.c, IST_ELEM_F32, q->label);
    ist_tensor beta = ist_plan_const(p, q->norm.beta, 1, 1, 1, a.c, IST_ELEM_F32, q->label);
    ist_launch l = *grid;
    const ist_gate_args by_value = {.g_ld = g.ld,
                                    .x_ld = a.ld,
                                    .y_ld = b.ld,
                                    .out_ld = y.ld,
                                    .g_c0 = g.c0,
                                    .x_c0 = a.c0,
                                    .y_c0 = b.c0,
                                    .out_c0 = y.c0,
                                    .pixels = a.h * a.w,
                                    .c = a.c,
                                    .rows = rows,
                                    .eps = EPS};
    const ist_arg args[] = {IST_OUT(y), IST_IN(g), IST_IN(a), IST_IN(b), IST_IN(gamma), IST_IN(beta),
                            IST_IN(ist_plan_current_limit(p)), IST_STRUCT(gate_args, &by_value)};
    l.label = q->label;
    l.op = "portable/norm";
    l.kernel = "gate";
    l.dims = 2;
    l.arg_count = sizeof args / sizeof *args;
    for (int i = 0; i < l.arg_count; i++) l.args[i] = args[i];
    l.bytes = (double)ist_pixels(a) * a.c * 5 * (ist_plan_half(p) ? 2 : 4);
    ist_plan_launch(p, &l);
}
