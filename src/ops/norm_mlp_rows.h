/* What norm_mlp.c and norm_mlp_mma.c, the row on matrix instructions, share. */
#ifndef IST_OPS_NORM_MLP_ROWS_H
#define IST_OPS_NORM_MLP_ROWS_H

#include "ops/norm_mlp.h"

/* Whether norm and both layers can be one launch on matrix instructions. */
bool ist_norm_mlp_takes(const ist_plan *p, ist_tensor x, const ist_norm_mlp *layer);
/* Where they can; arguments are checked. */
ist_tensor ist_norm_mlp_mma(ist_plan *p, ist_tensor x, const ist_norm_mlp *layer, const char *label);

#endif
