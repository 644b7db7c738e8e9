/* What mbconv.c and mbconv_mma.c, the row on matrix instructions, share. */
#ifndef IST_OPS_MBCONV_ROWS_H
#define IST_OPS_MBCONV_ROWS_H

#include "ops/mbconv.h"

/* Whether the block can be one launch on matrix instructions. */
bool ist_mbconv_mma_takes(const ist_plan *p, ist_tensor x, const ist_mbconv *block);
/* Where it can; arguments are checked. */
ist_tensor ist_mbconv_mma(ist_plan *p, ist_tensor x, const ist_mbconv *block, const char *label);

#endif
