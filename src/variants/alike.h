/* Padding reuse: layers near the input of a letterboxed picture make the same row over and over below it (ist_alike of
 * graph/nodes.h). Kernels that know where copy such rows. */
#ifndef IST_VARIANTS_ALIKE_H
#define IST_VARIANTS_ALIKE_H

#include "core/plan.h"
#include "graph/nodes.h"

/* Rows of what an operator that treats all rows in the same way makes of a map with `h` rows of which those of `in` are
 * alike: of windows of three rows, `stride` apart, with a row of zeros above. No more than these, perhaps fewer. */
ist_alike ist_alike_behind(ist_alike in, int h, int stride);
/* For cpu/repeated_rows: {ints from item to item, first int, step, above, end} of a map with `h` rows. */
ist_arg ist_alike_ints(ist_alike a, int h);

#endif
