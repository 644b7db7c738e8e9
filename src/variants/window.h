/* TinyViT's window attention (Attention of MobileSAM's modeling/tiny_vit_sam.py): the map is cut into windows without
 * being copied; tokens beyond the map are never stored anywhere. */
#ifndef IST_VARIANTS_WINDOW_H
#define IST_VARIANTS_WINDOW_H

#include "core/plan.h"
#include "graph/nodes.h"
#include "variants/window_args.h"

enum { IST_WINDOW_HEAD = 32, IST_WINDOW_SIDE_MAX = 16 };
#define IST_WINDOW_SCALE 0.17677669529663688f /* 1/sqrt(32) */

static inline int ist_windows_across(const ist_window_attention *a) {
    return (a->qkv.w + a->ws - 1) / a->ws;
}
static inline int ist_windows(const ist_window_attention *a) {
    return ist_windows_across(a) * ((a->qkv.h + a->ws - 1) / a->ws);
}

/* What all machines' kernels take by value. */
ist_window_args ist_window_args_of(const ist_window_attention *a);
/* Operands (result, qkv, pad, biases, limit); further arguments, grid and program are the machine's. */
ist_launch ist_window_launch(ist_plan *p, const ist_window_attention *a, ist_tensor pad, ist_tensor table);

/* What a token of zeros behind the norm is projected to, in row `row` of the projection. */
float ist_window_shift(const ist_norm_window *a, int row);

#endif
