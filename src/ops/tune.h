/* What tuning needs of the families that have several rows for a problem: how a problem is written down, which ways
 * there are to do it, and a plan with nothing else in it. pipeline/tune.c measures. */
#ifndef IST_OPS_TUNE_H
#define IST_OPS_TUNE_H

#include "ops/ops.h"

#define IST_TUNE_CONV   "conv"
#define IST_TUNE_DWCONV "dwconv"

/* A convolution as one word: extents, filter, padding, activation, storage. Problems with one text are one problem to
 * every row. */
typedef struct ist_tune_shape {
    char text[88];
} ist_tune_shape;
ist_tune_shape ist_tune_shape_of(const ist_plan *p, ist_tensor x, ist_tensor y, ist_filter f, const ist_conv_opts *o);

/* One way to do a problem. */
typedef struct ist_tune_way {
    const char *row;
    int param;
} ist_tune_way;

/* Whether the text is a problem of the family for plans of p's storage. */
bool ist_tune_known(const ist_plan *p, const char *family, const char *shape);

/* The ways that p's device and precision have and that the heuristic does not hold for twice as slow as its
 * own, which comes first; the portable row last. At most `capacity` are stored, the portable one among them. Returns
 * how many. */
int ist_tune_ways(ist_plan *p, const char *family, const char *shape, ist_tune_way *ways, int capacity);

/* Records the problem alone in the empty plan p, with fixed random weights; lines are left out until it has at most
 * `most_flops`. *x is the input to fill, *y the result. */
void ist_tune_record(ist_plan *p, const char *family, const char *shape, ist_tune_way way, double most_flops,
                     ist_tensor *x, ist_tensor *y);

#endif
