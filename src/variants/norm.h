/* The gate's launch, for all machines. */
#ifndef IST_VARIANTS_NORM_H
#define IST_VARIANTS_NORM_H

#include "core/plan.h"
#include "graph/nodes.h"

/* `grid` has the options, groups and work-items; a group takes `rows` pixels. */
void ist_gate_launch(ist_plan *p, const ist_gate *q, const ist_launch *grid, int rows);

#endif
