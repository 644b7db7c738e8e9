/* The transformer's norm and the window attention behind it. */
#ifndef IST_OPS_NORM_WINDOW_H
#define IST_OPS_NORM_WINDOW_H

#include "ops/ops.h"

/* y = attention(qkv LN(x)) within windows of ws x ws tokens: x [n,h,w,c], c = 32 heads, qkv [3 c][c], per head 32
 * queries, 32 keys, 32 values; bias [heads][ws * ws] by the distances of line and column. A token of a window beyond
 * the map is zero in front of the norm. Host arrays. */
typedef struct ist_norm_window {
    const float *gamma, *beta, *bias;
    float eps;
    ist_filter qkv;
    int heads, ws;
} ist_norm_window;
/* One launch on matrix instructions where the window fits, else as ist_op_norm_mlp, with ".qkv" behind the label, and
 * ist_op_window_attention. Result [n,h,w,c]. */
ist_tensor ist_op_norm_window(ist_plan *p, ist_tensor x, const ist_norm_window *layer, const char *label);

#endif
