/* What the launches of several families of convolutions have in common. */
#include "variants/conv.h"
#include "variants/epilogue.h"

ist_conv_shape ist_conv_shape_of(const ist_conv_problem *q) {
    const ist_conv_opts *o = q->o;
    return (ist_conv_shape){.x_h = q->x.h,
                            .x_w = q->x.w,
                            .x_ld = q->x.ld,
                            .x_c0 = q->x.c0,
                            .x_c = q->x.c,
                            .kh = q->f.kh,
                            .kw = q->f.kw,
                            .stride = o->stride ? o->stride : 1,
                            .top = o->top,
                            .left = o->left,
                            .items = q->y.n,
                            .y_h = q->oh,
                            .y_w = q->ow,
                            .y_ld = q->y.ld,
                            .y_c0 = q->y.c0,
                            .y_c = q->y.c};
}

ist_epilogue_args ist_conv_epilogue_of(const ist_conv_problem *q) {
    return ist_epilogue_args_of(&q->o->epi, q->y);
}

double ist_conv_bytes(const ist_plan *p, const ist_conv_problem *q, int weight_bytes) {
    double elem = ist_plan_half(p) ? 2 : 4;
    return elem * ((double)ist_pixels(q->x) * q->x.c + (double)ist_pixels(q->y) * q->y.c) +
           (double)weight_bytes * q->taps * q->f.in * q->f.out;
}

void ist_conv_record(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r, const ist_conv_launch *l) {
    const ist_conv_opts *o = q->o;
    ist_arg partial = IST_IN(l->partial), arrived = IST_IN(l->arrived);
    if (ist_has(l->partial)) partial = (ist_arg)IST_OUT(l->partial);
    if (ist_has(l->arrived)) arrived = (ist_arg)IST_INOUT(l->arrived);
    if (ist_has(l->content)) arrived = (ist_arg)IST_IN(l->content);
    ist_plan_launch(p, &(ist_launch){
                           .label = q->label,
                           .op = r->op,
                           .isa = l->isa,
                           .defines = l->defines,
                           .kernel = "conv",
                           .dims = 3,
                           .global = {(size_t)l->groups * (size_t)l->items, 1, (size_t)(l->splits > 1 ? l->splits : 1)},
                           .local = {(size_t)l->items, 1, 1},
                           .args = {IST_IN(q->x), IST_IN(l->weights), IST_IN(l->bias), partial, arrived, IST_OUT(q->y),
                                    IST_IN(o->epi.add_before), IST_IN(o->epi.add_after),
                                    IST_IN(ist_plan_current_limit(p)), l->by_value},
                           .arg_count = 10,
                           .flops = 2.0 * q->x.n * q->oh * q->ow * q->taps * q->f.in * q->f.out,
                           .bytes = ist_conv_bytes(p, q, 2),
                       });
}
