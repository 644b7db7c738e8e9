/* What the launches of several families of convolutions have in common. */
#include "variants/conv.h"
#include "variants/epilogue.h"

double ist_conv_bytes(const ist_plan *p, const ist_conv_problem *q, int weight_bytes) {
    double elem = ist_plan_half(p) ? 2 : 4;
    return elem * ((double)ist_pixels(q->x) * q->x.c + (double)ist_pixels(q->y) * q->y.c) +
           (double)weight_bytes * q->taps * q->f.in * q->f.out;
}

void ist_conv_record(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r, const ist_conv_launch *l) {
    const ist_conv_opts *o = q->o;
    ist_divider columns = ist_divider_of(l->col_tiles);
    ist_arg partial = IST_IN(l->partial), arrived = IST_IN(l->arrived);
    if (ist_has(l->partial)) partial = (ist_arg)IST_OUT(l->partial);
    if (ist_has(l->arrived)) arrived = (ist_arg)IST_INOUT(l->arrived);
    const int *t = l->tiles;
    const ist_divider *d = l->div;
    ist_plan_launch(
        p,
        &(ist_launch){
            .label = q->label,
            .op = r->op,
            .isa = l->isa,
            .defines = l->defines,
            .kernel = "conv",
            .dims = 3,
            .global = {(size_t)l->groups * (size_t)l->items, 1, (size_t)(l->splits > 1 ? l->splits : 1)},
            .local = {(size_t)l->items, 1, 1},
            .args = {IST_IN(q->x), IST_IN(l->weights), IST_IN(l->bias), partial, arrived, IST_OUT(q->y),
                     IST_IN(o->epi.add_before), IST_IN(o->epi.add_after), IST_IN(ist_plan_current_limit(p)),
                     IST_INT8(q->x.h, q->x.w, q->x.ld, q->x.c0, q->x.c, l->in5, columns.multiplier, columns.shift),
                     IST_INT8(q->f.kh, q->f.kw, o->stride ? o->stride : 1, o->top, o->left, l->col_tiles, l->win6,
                              l->win7),
                     IST_INT8(q->y.n, q->oh, q->ow, q->y.ld, q->y.c0, q->y.c, 0, 0), ist_epilogue_ints(&o->epi, q->y),
                     IST_FLOAT4(o->epi.lab_scale, o->epi.lab_bias, l->norm_eps, 0.0f),
                     IST_INT8(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7]),
                     IST_INT8(d[0].multiplier, d[0].shift, d[1].multiplier, d[1].shift, d[2].multiplier, d[2].shift,
                              d[3].multiplier, d[3].shift)},
            .arg_count = 16,
            .flops = 2.0 * q->x.n * q->oh * q->ow * q->taps * q->f.in * q->f.out,
            .bytes = ist_conv_bytes(p, q, 2),
        });
}
