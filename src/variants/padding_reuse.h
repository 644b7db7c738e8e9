/* Padding reuse: layers near the input of a letterboxed picture make the same rows over and over below it (ist_padding_reuse of
 * graph/nodes.h). Kernels that know where copy such rows (CPUs), or leave them out and read those that they repeat (GPUs). */
#ifndef IST_VARIANTS_PADDING_REUSE_H
#define IST_VARIANTS_PADDING_REUSE_H

#include "core/plan.h"
#include "graph/kinds.h"
#include "variants/defines.h"
#include "variants/padding_reuse_args.h"

/* Rows of what an operator that treats all rows in the same way makes of a map with `h` rows of which those of `in` are
 * alike: of windows of three rows, `stride` apart, with a row of zeros above. No more than these, perhaps fewer. */
ist_padding_reuse ist_padding_reuse_behind(ist_padding_reuse in, int h, int stride);
/* The same of a convolution, dense or depthwise: nothing is known behind others than 1x1 ones and such windows. */
ist_padding_reuse ist_padding_reuse_conv(ist_padding_reuse in, const ist_conv *q);
/* The same of what treats each pixel alone and reads no row for another: it keeps no rows that its operand has not. */
ist_padding_reuse ist_padding_reuse_points(ist_padding_reuse in, int h);
/* The same of windows of ws rows that see nothing beyond themselves. */
ist_padding_reuse ist_padding_reuse_windows(ist_padding_reuse in, int h, int ws);
/* Whether a map of h rows with those of `b` has all rows that one with those of `a` has. */
bool ist_padding_reuse_covers(const ist_padding_reuse *b, const ist_padding_reuse *a, int h);

/* That of a node and the operand whose rows it tells of; NULL where the kind has none. */
ist_padding_reuse *ist_padding_reuse_of(ist_node_kind kind, void *node, ist_tensor **x);

/* For kernels that make a map of h rows with those of `a`; for kernels that read one. */
ist_padding_reuse_args ist_padding_reuse_args_of(ist_padding_reuse a, int h);
ist_padding_reuse_args ist_padding_reuse_read(ist_padding_reuse a, int h);

/* The first of these, of a kernel that leaves out the rows of its result that repeat others: *reuse, its operand's until
 * then, becomes `result`, what is known of the result. */
ist_padding_reuse_args ist_padding_reuse_leave_out(ist_padding_reuse *reuse, ist_padding_reuse result, int h);

/* -D LEFT_OUT for a kernel of an operand, if anything is known of its rows: its period. */
void ist_padding_reuse_define(ist_defines *d, const ist_padding_reuse *operand);

/* Makes the rows that were left out: a launch. Nothing where there are none. */
void ist_padding_reuse_fill(ist_plan *p, ist_tensor x, ist_padding_reuse *a, const char *label);

#endif
