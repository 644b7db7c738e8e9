/* What the depthwise convolutions of all machines share. */
#ifndef IST_VARIANTS_DWCONV_H
#define IST_VARIANTS_DWCONV_H

#include "core/plan.h"
#include "graph/nodes.h"
#include "variants/conv_args.h"

#define IST_DWCONV_K_MAX 5 /* larger filters are not unrolled */

static inline int ist_dwconv_stride(const ist_conv *q) {
    return q->o.stride ? q->o.stride : 1;
}

/* Weights [block][tap][width] and bias [block][width], zeros beyond the last channel; false, and the plan failed, when
 * there is no memory or a weight is beyond what the plan can store. */
bool ist_dwconv_pack(ist_plan *p, const ist_conv *q, int width, ist_tensor *weights, ist_tensor *bias);

/* Tensors of T whose vectors of `width` channels all lie at multiples of their size. */
bool ist_dwconv_aligned(const ist_conv *q, int width);

/* What every kernel takes by value. */
ist_conv_shape ist_dwconv_shape_of(const ist_conv *q);
ist_epilogue_args ist_dwconv_epilogue_of(const ist_conv *q);

/* Adds what is the same for all kernels: operands, counts; `by_value` is an IST_STRUCT, `last` the `count` arguments that
 * a kernel takes behind it. */
void ist_dwconv_launch(ist_plan *p, const ist_conv *q, ist_launch *l, ist_tensor weights, ist_tensor bias,
                       ist_arg by_value, const ist_arg *last, int count);

#endif
