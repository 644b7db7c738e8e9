/* The CSP block of D-FINE's encoder (RT-DETR's CSPRepLayer, with a residual from the other half) and the 3x3
 * convolution behind it. */
#ifndef IST_OPS_CSP_H
#define IST_OPS_CSP_H

#include "ops/ops.h"

enum { IST_CSP_NECKS = 8 };

/* l and r: the halves of silu(first x), a 1x1 layer of 2c outputs; l = silu(neck l) for each of `necks`; the result is
 * silu(last (l + r)). Necks and last are 3x3, c -> c, with padding 1. */
typedef struct ist_csp {
    ist_filter first, neck[IST_CSP_NECKS], last;
    int necks; /* at least 1 */
} ist_csp;

/* x [n,h,w,in] -> [n,h,w,c], into `into` when that is a tensor. One launch on CPUs when c lies between 16 and 32, so
 * that vectors of channels would be half empty, and on matrix instructions when c is at most 64, bottlenecks are one or
 * two and pixels few; else one for each layer. */
ist_tensor ist_op_csp(ist_plan *p, ist_tensor x, const ist_csp *block, ist_tensor into, const char *label);

#endif
