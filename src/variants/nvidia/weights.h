/* Weights that several kernels on matrix instructions read. */
#ifndef IST_VARIANTS_NVIDIA_WEIGHTS_H
#define IST_VARIANTS_NVIDIA_WEIGHTS_H

#include "core/plan.h"
#include "graph/nodes.h"

/* Weights [tap][channels] of a depthwise 3x3 convolution, then its biases or zeros, as floats. */
ist_tensor ist_pack_taps(ist_plan *p, const ist_filter *spread, const char *label);

#endif
