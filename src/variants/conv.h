/* What the families of dense convolutions share: the configuration of a variant, a node as packing and launching need
 * it, and the launch whose buffers are those of cl/nvidia/conv_mma. */
#ifndef IST_VARIANTS_CONV_H
#define IST_VARIANTS_CONV_H

#include "variants/conv_args.h"
#include "variants/variant.h"
#include "core/plan.h"
#include "graph/nodes.h"

/* A variant's tile: pixels by nv * vl channels. */
typedef struct ist_conv_tile {
    const char *op;                            /* its source */
    int mr, nv, vl;
    int items;                                 /* work-items of a group */
    double speed;                              /* multiply-adds per time, relative to the family's other variants */
    int warps_m, warps_n, warps_k, bk, stages; /* nvidia/conv_mma, matrix: warps along pixels, channels and inputs; inputs
                                                  of a step; steps in local memory. Warpgroups: their number, 64 pixels of
                                                  each, batches of products under way beside the step's. Panels: bk is
                                                  the most inputs of a 1x1 convolution, 0 for any. cpu/conv_tokens: bk is
                                                  the most pixels. cpu/conv_amx: the number of parts: 3, or 1 for
                                                  bfloat16. matrix: warps_k is the lanes of a subgroup */
} ist_conv_tile;

/* A problem whose shapes have been checked: everything that packing and launching need. */
typedef struct ist_conv_problem {
    ist_tensor x, y;
    ist_filter f;
    const ist_conv_opts *o; /* of the node, borrowed */
    const char *label;
    int taps, oh, ow;
    float norm_eps;
} ist_conv_problem;
static inline ist_conv_problem ist_conv_problem_of(const ist_conv *q) {
    return (ist_conv_problem){.x = q->x,
                              .y = q->y,
                              .f = q->filter,
                              .o = &q->o,
                              .label = q->label,
                              .taps = q->filter.kh * q->filter.kw,
                              .oh = q->y.h,
                              .ow = q->y.w,
                              .norm_eps = q->norm_eps};
}

/* Weight of output o, input i, tap t, in PyTorch's order. */
static inline float ist_conv_weight(const ist_conv_problem *q, int o, int i, int t) {
    return q->f.w[((size_t)o * (size_t)q->f.in + (size_t)i) * (size_t)q->taps + (size_t)t];
}

/* 1x1 with stride 1 on the pixels themselves; 3x3 with stride 1 that keeps the extents. */
static inline bool ist_filter_keeps_pixels(const ist_filter *f, const ist_conv_opts *o) {
    return f->kh == 1 && f->kw == 1 && o->stride <= 1 && !o->top && !o->left && !o->bottom && !o->right;
}
static inline bool ist_conv_keeps_pixels(const ist_conv *q) {
    return ist_filter_keeps_pixels(&q->filter, &q->o);
}
static inline bool ist_conv_is_point(const ist_conv_problem *q) {
    return ist_filter_keeps_pixels(&q->f, q->o);
}
static inline bool ist_conv_keeps_extents(const ist_conv_problem *q) {
    const ist_conv_opts *o = q->o;
    return q->f.kh == 3 && q->f.kw == 3 && q->taps == 9 && o->stride <= 1 && o->top == 1 && o->left == 1 &&
           q->oh == q->x.h && q->ow == q->x.w;
}

/* What every kernel takes by value. */
ist_conv_shape ist_conv_shape_of(const ist_conv_problem *q);
ist_epilogue_args ist_conv_epilogue_of(const ist_conv_problem *q);

/* Bytes of the activations and of weights of `weight_bytes` each: for profiles. */
double ist_conv_bytes(const ist_plan *p, const ist_conv_problem *q, int weight_bytes);

/* What a family says of a launch whose buffers are nvidia/conv_mma's. */
typedef struct ist_conv_launch {
    const char *isa, *defines;
    int groups, items, splits; /* of a split; work-items of a group; splits, 0 for 1 */
    ist_tensor weights, bias;
    ist_tensor partial, arrived; /* where splits share sums; partial alone: another result */
    ist_tensor content;          /* in the place of `arrived`, for kernels that leave rows out (padding_reuse.h) */
    ist_arg by_value;            /* IST_STRUCT */
} ist_conv_launch;

void ist_conv_record(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r, const ist_conv_launch *l);

#endif
