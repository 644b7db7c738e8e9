/* What the variants of an MLP with its norm have in common. */
#ifndef IST_VARIANTS_NVIDIA_NORM_MLP_H
#define IST_VARIANTS_NVIDIA_NORM_MLP_H

#include "core/plan.h"
#include "graph/nodes.h"

enum { IST_MLP_ROOM = 226 << 10 }; /* bytes of local memory that cl/probe/ptx_wgmma.cl has found */

/* scaled[hidden][channels]: W1 with the norm's scale in it. */
void ist_mlp_scale(const ist_norm_mlp *l, float *scaled);
/* Floats {b1 + W1 beta [hidden], b2 [channels], p [channels]}, p: biases of the linear layer in front, if there is
 * one. */
ist_tensor ist_mlp_table(ist_plan *p, const ist_norm_mlp *l, const ist_conv *in_front, const char *label);
/* Whether rows of half storage begin at multiples of eight channels. */
bool ist_mlp_reads(ist_tensor t);

#endif
