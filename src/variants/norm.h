/* What the norm and the gate of all machines have in common. */
#ifndef IST_VARIANTS_NORM_H
#define IST_VARIANTS_NORM_H

#include "core/plan.h"
#include "graph/nodes.h"
#include "variants/norm_args.h"

/* What the norm's kernels take by value; an item of work has `rows` pixels. */
ist_layernorm_args ist_layernorm_args_of(const ist_layer_norm *q, int rows);

/* `grid` has the options, groups and work-items; a group takes `rows` pixels. */
void ist_gate_launch(ist_plan *p, const ist_gate *q, const ist_launch *grid, int rows);

#endif
