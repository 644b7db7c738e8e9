/* Padding reuse: layers near the input of a letterboxed picture make the same row over and over below it (ist_padding_reuse of
 * graph/nodes.h). Kernels that know where copy such rows. */
#ifndef IST_VARIANTS_PADDING_REUSE_H
#define IST_VARIANTS_PADDING_REUSE_H

#include "core/plan.h"
#include "graph/nodes.h"
#include "variants/padding_reuse_args.h"

/* Rows of what an operator that treats all rows in the same way makes of a map with `h` rows of which those of `in` are
 * alike: of windows of three rows, `stride` apart, with a row of zeros above. No more than these, perhaps fewer. */
ist_padding_reuse ist_padding_reuse_behind(ist_padding_reuse in, int h, int stride);
/* For cpu/repeated_rows, of a map with `h` rows. */
ist_padding_reuse_args ist_padding_reuse_args_of(ist_padding_reuse a, int h);

#endif
