/* The inverted bottleneck of MobileNetV2 (Sandler et al., arXiv 1801.04381) as TinyViT uses it. */
#ifndef IST_OPS_MBCONV_H
#define IST_OPS_MBCONV_H

#include "ops/alike.h"
#include "ops/ops.h"

/* y = act(project(gelu(spread(gelu(expand(x))))) + residual): expand and project are 1x1, spread is a depthwise 3x3
 * with `stride` and padding 1; the residual is x (stride 1, as many channels out as in). */
typedef struct ist_mbconv {
    ist_filter expand, spread, project;
    int stride;
    bool residual;
    ist_act act;
} ist_mbconv;
/* One launch on CPUs when the channels fill its tiles, two on matrix instructions of warpgroups, else three. `alike`:
 * of x, becomes what is known of the result. */
ist_tensor ist_op_mbconv(ist_plan *p, ist_tensor x, const ist_mbconv *block, ist_alike *alike, const char *label);

#endif
