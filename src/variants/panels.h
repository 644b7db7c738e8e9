/* Convolutions in fp32 on register tiles or local memory: weights in panels, for CPUs and for the portable variants. */
#ifndef IST_VARIANTS_PANELS_H
#define IST_VARIANTS_PANELS_H

#include "base/mem.h"
#include "variants/conv.h"

/* Weights [column tile][tap][in][nr] and bias [column tile][nr], zeros beyond the last channel; with a norm in front the
 * sums of each output's weights [column tile][nr] follow the biases. False, and the plan failed, when they are too
 * large. */
typedef struct ist_conv_panel {
    ist_tensor weights, bias;
} ist_conv_panel;
bool ist_conv_panels_pack(ist_plan *p, const ist_conv_problem *q, int nr, ist_conv_panel *out);

/* Multiply-adds per input that the tiles really do (whole tiles of pixels and channels), by the compute units that find
 * no tile. */
static inline double ist_conv_panels_work(const ist_plan *p, const ist_conv_tile *r, const ist_conv_problem *q) {
    int units = ist_plan_units(p);
    double tiles = (double)ist_div_up(q->x.n * q->oh * q->ow, r->mr) * ist_div_up(q->f.out, r->nv * r->vl);
    return tiles * r->mr * r->nv * r->vl * (tiles < units ? units / tiles : 1);
}

#endif
