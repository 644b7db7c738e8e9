/* What mbconv.c and mbconv_wgmma.c, the row on matrix instructions of warpgroups, share; and norm_mlp_mma.c. */
#ifndef IST_OPS_MBCONV_ROWS_H
#define IST_OPS_MBCONV_ROWS_H

#include "ops/mbconv.h"

/* Whether a block's depthwise convolution and projection can be one launch; u is what the expansion made of x. */
bool ist_mbconv_takes_half(const ist_plan *p, ist_tensor u, ist_tensor x, const ist_mbconv *block);
/* Where they can. */
ist_tensor ist_mbconv_half(ist_plan *p, ist_tensor u, ist_tensor x, const ist_mbconv *block, const char *label);

/* Weights [tap][channels] of a depthwise 3x3 convolution, then its biases or zeros, as floats. */
ist_tensor ist_pack_taps(ist_plan *p, const ist_filter *spread, const char *label);

#endif
