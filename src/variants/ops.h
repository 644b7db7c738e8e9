/* Nodes recorded one at a time, without a graph: for tests and tools. Each call fills in the node, records it as the plan
 * chooses and returns its result; floats are host arrays that are copied now. A call that fails marks the plan as failed
 * and returns an empty tensor. nodes.h defines what each computes. */
#ifndef IST_VARIANTS_OPS_H
#define IST_VARIANTS_OPS_H

#include "variants/variant.h"

ist_tensor ist_op_conv(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label);
/* ist_op_conv with kh = kw = 1. */
ist_tensor ist_op_linear(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label);
ist_tensor ist_op_dwconv(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label);
ist_tensor ist_op_maxpool2x2(ist_plan *p, ist_tensor x, ist_tensor into, const char *label);

typedef struct ist_norm_opts {
    ist_tensor add; /* v = x + add before the statistics (n = 1 serves every n) */
    float clamp;    /* > 0: v clamped to +-clamp before the statistics */
    ist_act act;    /* after scale and shift */
    ist_tensor into;
} ist_norm_opts;
ist_tensor ist_op_layernorm(ist_plan *p, ist_tensor x, const float *gamma, const float *beta, float eps,
                            const ist_norm_opts *opts, const char *label);
ist_tensor ist_op_add(ist_plan *p, ist_tensor a, ist_tensor b, ist_tensor into, const char *label);
ist_tensor ist_op_copy(ist_plan *p, ist_tensor x, ist_tensor into, const char *label);
void ist_op_copy_rows(ist_plan *p, ist_tensor x, ist_tensor into, int first, const char *label);
ist_tensor ist_op_expand(ist_plan *p, ist_tensor x, ist_tensor map, int count, const char *label);
ist_tensor ist_op_clamp(ist_plan *p, ist_tensor x, float lo, float hi, const char *label);
void ist_op_fill_rows(ist_plan *p, ist_tensor x, ist_tensor rows, const float *value, const char *label);
ist_tensor ist_op_gate(ist_plan *p, ist_tensor g, ist_tensor x, ist_tensor y, const float *gamma, const float *beta,
                       const char *label);

typedef struct ist_attention_opts {
    int heads;
    float scale;
    ist_tensor q_map, kv_map, k_count;
    int count;
} ist_attention_opts;
ist_tensor ist_op_attention(ist_plan *p, ist_tensor q, ist_tensor k, ist_tensor v, const ist_attention_opts *opts,
                            const char *label);
ist_tensor ist_op_window_attention(ist_plan *p, ist_tensor qkv, const float *pad_qkv, const float *bias, int heads,
                                   int ws, const char *label);
/* rel_h [2 wh - 1][d], rel_w [2 ww - 1][d], pad [3 heads d]. */
ist_tensor ist_op_relative_attention(ist_plan *p, ist_tensor qkv, const float *rel_h, int wh, const float *rel_w, int ww,
                                     const float *pad, int heads, const char *label);
ist_tensor ist_op_deform_attention(ist_plan *p, ist_tensor offsets, ist_tensor weights, ist_tensor ref,
                                   ist_tensor memory, const ist_level *levels, int level_count, int heads,
                                   ist_tensor into, const char *label);

ist_tensor ist_op_row_max(ist_plan *p, ist_tensor x, const char *label);
ist_tensor ist_op_topk(ist_plan *p, ist_tensor x, int k, const char *label);
ist_tensor ist_op_top_rows(ist_plan *p, ist_tensor x, int k, const char *label);
/* group and count may be empty. */
ist_tensor ist_op_nms(ist_plan *p, ist_tensor boxes, ist_tensor scores, ist_tensor group, ist_tensor count, double iou,
                      ist_tensor *kept, const char *label);
ist_tensor ist_op_gather(ist_plan *p, ist_tensor x, ist_tensor index, const char *label);
ist_tensor ist_op_box_init(ist_plan *p, ist_tensor delta, ist_tensor anchor_logit, const char *label);
ist_tensor ist_op_box_refine(ist_plan *p, ist_tensor delta, ist_tensor ref, const char *label);
ist_tensor ist_op_fdr(ist_plan *p, ist_tensor increment, ist_tensor previous, ist_tensor ref_init, const float *project,
                      float reg_scale, ist_tensor *corners_out, const char *label);
ist_tensor ist_op_lqe(ist_plan *p, ist_tensor corners, const char *label);
ist_tensor ist_op_add_quality(ist_plan *p, ist_tensor logits, ist_tensor quality, const char *label);
ist_tensor ist_op_assign(ist_plan *p, ist_tensor cost, ist_tensor dims, int bits, ist_tensor *complete,
                         const char *label);

#endif
