/* Fused sequences: operators on the same rows (queries, tokens) gathered into few launches, on GPUs because a launch
 * costs more than its work where rows are few, on CPUs so that what lies between stays in a core's cache.
 *
 * Between ist_sequence_begin and ist_sequence_end nodes become steps. The sequence is cut only where a step reads rows
 * that other groups make, and at every attention, which is a launch of its own. Tensors made and used up inside one
 * piece never leave local memory or cache. Variants of spans begin and end sequences (lower.h), in one of the forms
 * below. */
#ifndef IST_VARIANTS_SEQUENCE_H
#define IST_VARIANTS_SEQUENCE_H

#include "variants/variant.h"

struct ist_sequence_form; /* sequence_steps.h */

/* Begins a sequence over `rows` rows of n items. With map_width > 0 the rows are the pixels of n maps of that width,
 * and the last operator is the depthwise 3x3 convolution of stride 2 that reads them. */
void ist_sequence_begin(ist_plan *p, const struct ist_sequence_form *form, int n, int rows, int map_width);
/* Makes the node, which has its places, a step; the plan fails where no sequence has such steps. */
void ist_sequence_take(ist_plan *p, ist_node_kind kind, const void *node);
/* Launches what was gathered. Of the tensors made since the beginning only `results` (and taps) can be read later.
 * `label` names the launches. To be called also when the plan has failed. */
void ist_sequence_end(ist_plan *p, const ist_tensor *results, int count, const char *label);

#endif
