/* What tuning needs of the kinds that have several variants for a problem: how a problem is written down, which ways
 * there are to do it, and a plan with nothing else in it. pipeline/tune.c measures. */
#ifndef IST_VARIANTS_TUNE_H
#define IST_VARIANTS_TUNE_H

#include "variants/variant.h"

/* What the plan's tuning record says of the node; no variant where it says nothing, or nothing that can be done. With
 * options.notes the plan notes the problem. */
ist_variant_choice ist_tuned_choice(ist_plan *p, ist_node_kind kind, const void *node);

/* One way to do a problem: the name of a variant and which of its ways. */
typedef struct ist_tune_way {
    const char *variant;
    int way;
} ist_tune_way;

/* Whether the text is a problem of the family ("conv", "dwconv") for plans of p's storage. */
bool ist_tune_known(const ist_plan *p, const char *family, const char *shape);

/* The ways that p's device and precision have and that are not estimated to take twice as long as the cheapest, which
 * comes first; the portable one last. At most `capacity` are stored, the portable one among them. Returns how many. */
int ist_tune_ways(ist_plan *p, const char *family, const char *shape, ist_tune_way *ways, int capacity);

/* Records the problem alone in the empty plan p, with fixed random weights; lines are left out until it has at most
 * `most_flops`. *x is the input to fill, *y the result. */
void ist_tune_record(ist_plan *p, const char *family, const char *shape, ist_tune_way way, double most_flops,
                     ist_tensor *x, ist_tensor *y);

#endif
