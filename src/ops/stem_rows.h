/* The row of the stem on matrix instructions (stem_mma.c), for stem.c. */
#ifndef IST_OPS_STEM_ROWS_H
#define IST_OPS_STEM_ROWS_H

#include "ops/stem.h"

/* Whether the plan's device and the shapes suit it; the layers are a stem's. */
bool ist_stem_matrix_fits(const ist_plan *p, ist_tensor image, const ist_stem_layer layers[5]);
/* Records it: image -> y. */
void ist_stem_matrix(ist_plan *p, ist_tensor image, const ist_stem_layer layers[5], ist_tensor y, double flops,
                     const char *label);

#endif
