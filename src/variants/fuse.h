/* What the variants of top-down fusion have in common. */
#ifndef IST_VARIANTS_FUSE_H
#define IST_VARIANTS_FUSE_H

#include "core/plan.h"
#include "graph/nodes.h"
#include "weights/matrix.h"

/* The filter's halves, for the top and for *side, and what the latter reads: what is to be projected itself, when
 * projecting it first is not less work, else its projection, which is recorded. The halves are the caller's to free,
 * also after false: the plan has failed. */
bool ist_fuse_halves(ist_plan *p, const ist_fuse *q, ist_conv_weights *top_half, ist_conv_weights *side_half,
                     ist_tensor *side);
/* Channels of what is read as side. */
int ist_fuse_side_channels(const ist_fuse *q);

#endif
