/* A 1x1 convolution and the depthwise convolution behind it: HGNetv2's light blocks, D-FINE's downsampling. */
#ifndef IST_OPS_SEPARABLE_H
#define IST_OPS_SEPARABLE_H

#include "ops/ops.h"

/* depth(point x): point [mid][in][1][1] without activation, then depth [mid][1][k][k] with `opts`. One launch on matrix
 * instructions where that pays, else two. x [n,h,w,in] -> [n,oh,ow,mid], into opts->into when that is a tensor. */
ist_tensor ist_op_separable(ist_plan *p, ist_tensor x, ist_filter point, ist_filter depth, const ist_conv_opts *opts,
                            const char *label);

/* ---- the one launch, for tests ---- */

/* Whether the device and the shapes suit it. */
bool ist_separable_takes(const ist_plan *p, ist_tensor x, ist_filter point, ist_filter depth,
                         const ist_conv_opts *opts);
/* ist_op_separable by it. */
ist_tensor ist_separable_one(ist_plan *p, ist_tensor x, ist_filter point, ist_filter depth, const ist_conv_opts *opts,
                             const char *label);

#endif
