/* The position code of a grid on the host. */
#ifndef IST_VARIANTS_GRID_CODE_H
#define IST_VARIANTS_GRID_CODE_H

#include "core/plan.h"
#include "graph/nodes.h"

/* [grid * grid][2 f], the caller's to free; NULL, and the plan failed, without memory. */
float *ist_grid_code_values(ist_plan *p, const ist_grid_code *code);

#endif
