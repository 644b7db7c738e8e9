/* What mbconv.c and the rows on matrix instructions, mbconv_wgmma.c and mbconv_amx.c, share; and norm_mlp_mma.c. */
#ifndef IST_OPS_MBCONV_ROWS_H
#define IST_OPS_MBCONV_ROWS_H

#include "ops/mbconv.h"

/* Whether a block's depthwise convolution and projection can be one launch; u is what the expansion made of x. */
bool ist_mbconv_takes_half(const ist_plan *p, ist_tensor u, ist_tensor x, const ist_mbconv *block);
/* Where they can. */
ist_tensor ist_mbconv_half(ist_plan *p, ist_tensor u, ist_tensor x, const ist_mbconv *block, const char *label);

/* Weights [tap][channels] of a depthwise 3x3 convolution, then its biases or zeros, as floats. */
ist_tensor ist_pack_taps(ist_plan *p, const ist_filter *spread, const char *label);

/* A whole block on AMX. */
bool ist_mbconv_takes_amx(const ist_plan *p, ist_tensor x, const ist_mbconv *block);
ist_tensor ist_mbconv_amx(ist_plan *p, ist_tensor x, const ist_mbconv *block, ist_alike *alike, const char *label);

/* For CPUs: weights of a matrix as panels (ist_panel_columns), of a depthwise filter [c / 16][9][16]; biases or zeros.
 */
ist_tensor ist_mbconv_pack(ist_plan *p, const ist_filter *f, const char *label);
ist_tensor ist_mbconv_bias(ist_plan *p, const ist_filter *f, const char *label);
/* Bands of rows: enough for every compute unit, of rows enough that the two extra ones cost little. */
int ist_mbconv_bands(const ist_plan *p, int rows, int segments, int groups_per_unit);

#endif
