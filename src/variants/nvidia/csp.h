/* What CSP blocks in one launch have in common. */
#ifndef IST_VARIANTS_NVIDIA_CSP_H
#define IST_VARIANTS_NVIDIA_CSP_H

#include "core/plan.h"
#include "graph/nodes.h"

/* A kernel that takes y, x, weights, bias, limit and the extents (cl/nvidia/csp): its source, and the tiles of a map. */
typedef struct ist_csp_kernel {
    const char *op, *isa, *defines;
    int across, tiles; /* of a line, in all */
} ist_csp_kernel;

/* Records it with `count` weights and `biases` biases, which are freed; either NULL: the plan fails. */
void ist_csp_launch(ist_plan *p, const ist_csp *b, const ist_csp_kernel *k, float *w, size_t count, float *bias,
                    size_t biases);

#endif
