/* Depthwise convolutions with the layer norm of what they make (cl/portable/dwconv_strip). */
#ifndef IST_VARIANTS_PORTABLE_DWCONV_H
#define IST_VARIANTS_PORTABLE_DWCONV_H

#include "core/plan.h"
#include "graph/nodes.h"

/* Whether a group has room for a pixel's channels. */
bool ist_dwconv_norm_takes(const ist_plan *p, const ist_conv *q);
/* q->y and `normed` [n,h,w,c] of it, in one launch; both have the rows that q->reuse then tells of. */
void ist_dwconv_norm_emit(ist_plan *p, ist_conv *q, const ist_affine *norm, float eps, ist_tensor normed);

#endif
