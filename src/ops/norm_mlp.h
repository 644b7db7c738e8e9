/* The transformer's norm and the linear layers behind it. */
#ifndef IST_OPS_NORM_MLP_H
#define IST_OPS_NORM_MLP_H

#include "ops/ops.h"

/* z = spread(x), a depthwise 3x3 convolution that keeps the extents, or x without one (spread.out 0). u = LN(z) over
 * channels; y = act(fc1 u), or, with fc2.out > 0, y = fc2(act(fc1 u)) + z. Host arrays. */
typedef struct ist_norm_mlp {
    const float *gamma, *beta;
    float eps;
    ist_filter spread, fc1, fc2;
    ist_act act;
} ist_norm_mlp;
/* One launch on CPUs and on matrix instructions where the layers fill its tiles; else up to four. */
ist_tensor ist_op_norm_mlp(ist_plan *p, ist_tensor x, const ist_norm_mlp *layer, const char *label);

#endif
