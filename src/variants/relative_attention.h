/* Self-attention with decomposed relative positions (SAM's ViT): the map is cut into windows without being copied. */
#ifndef IST_VARIANTS_RELATIVE_ATTENTION_H
#define IST_VARIANTS_RELATIVE_ATTENTION_H

#include "core/plan.h"
#include "graph/nodes.h"
#include "variants/window_args.h"

/* Tokens of a window, and windows of a map. */
typedef struct ist_relative_windows {
    int d, h, w, down, across;
    float scale; /* 1/sqrt(d) */
} ist_relative_windows;
ist_relative_windows ist_relative_windows_of(const ist_relative_attention *a);

/* What all machines' kernels take by value. */
ist_relative_args ist_relative_args_of(const ist_relative_attention *a);

/* Operands (result, qkv, rel_h, rel_w, pad, limit) and flops; grid, program and further arguments are the machine's.
 * Relative positions are of the type `positions`, pad is as activations are. */
ist_launch ist_relative_launch(ist_plan *p, const ist_relative_attention *a, ist_elem positions);

#endif
