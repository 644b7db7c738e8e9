/* What norm_mlp.c and the rows on matrix instructions, norm_mlp_mma.c and norm_mlp_amx.c, share. */
#ifndef IST_OPS_NORM_MLP_ROWS_H
#define IST_OPS_NORM_MLP_ROWS_H

#include "ops/norm_mlp.h"

/* Whether norm and both layers can be one launch on matrix instructions. */
bool ist_norm_mlp_takes(const ist_plan *p, ist_tensor x, const ist_norm_mlp *layer);
/* Where they can; arguments are checked. */
ist_tensor ist_norm_mlp_mma(ist_plan *p, ist_tensor x, const ist_norm_mlp *layer, const char *label);

/* The same on AMX, for layers without `spread`. */
bool ist_norm_mlp_takes_amx(const ist_plan *p, ist_tensor x, const ist_norm_mlp *layer);
ist_tensor ist_norm_mlp_amx(ist_plan *p, ist_tensor x, const ist_norm_mlp *layer, const char *label);

/* A constant of floats: `count` values of v, or zeros, then `more` of w. */
ist_tensor ist_norm_mlp_values(ist_plan *p, const float *v, int count, const float *w, int more, const char *label);

#endif
