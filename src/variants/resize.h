/* The launch of a resampling. */
#ifndef IST_VARIANTS_RESIZE_H
#define IST_VARIANTS_RESIZE_H

#include "core/plan.h"
#include "graph/nodes.h"

/* Groups of `items` work-items make tiles of `rows` by `columns`. */
void ist_resize_launch(ist_plan *p, ist_resize *q, const char *op, int rows, int columns, int items);

#endif
