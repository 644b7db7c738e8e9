/* Sums, copies, clamps and expansions are one kernel with optional parts (portable/eltwise); machines differ in its grid. */
#ifndef IST_VARIANTS_ELTWISE_H
#define IST_VARIANTS_ELTWISE_H

#include "core/plan.h"
#include "graph/kinds.h"
#include "variants/eltwise_args.h"

typedef struct ist_eltwise {
    const char *label;
    ist_tensor y, a, b, map;
    int mode, stride; /* stride: pixels from an item of y to the next; 0: y.h * y.w */
    float lo, hi;
} ist_eltwise;

/* A node of kind ADD, COPY, COPY_ROWS, CLAMP or EXPAND. */
ist_eltwise ist_eltwise_of(ist_node_kind kind, const void *node);
/* Its operands, sizes and options for vectors of `width`; the launch's grid, and rows and span of a work-item, are the
 * machine's. `queue` is empty or its queue. */
void ist_eltwise_launch(ist_plan *p, const ist_eltwise *e, ist_launch *grid, int width, int rows, int span,
                        ist_tensor queue);

#endif
