/* What patch.c and the row for CPUs, patch_cpu.c, share. */
#ifndef IST_OPS_PATCH_ROWS_H
#define IST_OPS_PATCH_ROWS_H

#include "ops/patch.h"

bool ist_patch_takes_cpu(const ist_plan *p, ist_tensor image, const ist_filter *first, const ist_filter *second);
/* Where it does. */
ist_tensor ist_patch_cpu(ist_plan *p, ist_tensor image, const ist_filter *first, const ist_filter *second,
                         ist_alike *alike, const char *label);

#endif
