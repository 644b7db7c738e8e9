/* The operators models are written in. Each records one or a few launches into a plan and returns its result.
 *
 * Layout is NHWC; token sequences are [n, 1, tokens, c]. Float pointers are host arrays that the op packs and copies
 * while recording. `label` is the upstream weight name; it appears in errors and profiles. Every op honours
 * ist_plan_limit (items n >= count are skipped) and channel slices (ld, c0) on inputs and outputs. An op that fails
 * marks the plan as failed and returns an empty tensor; inputs that are empty because the plan already failed are fine.
 * tests/ref.h holds the scalar definition of each op. */
#ifndef IST_OPS_OPS_H
#define IST_OPS_OPS_H

#include "core/plan.h"

/* The numbers are those of cl/prelude.cl. */
typedef enum ist_act { IST_ACT_NONE, IST_ACT_RELU, IST_ACT_SILU, IST_ACT_GELU, IST_ACT_SIGMOID } ist_act;

/* What happens to a result before it is stored: v = acc + bias; v += add_before; v = act(v); v = lab_scale * v +
 * lab_bias (with has_lab); v += add_after. Addends have the extents of the result; add_before with up2 has half the
 * height and width and is upsampled by nearest; an addend with n = 1 serves every n. */
typedef struct ist_epilogue {
    ist_act act;
    bool has_lab;
    float lab_scale, lab_bias;
    ist_tensor add_before, add_after;
    bool up2;
} ist_epilogue;

/* ---- convolution family: src/ops/conv.c ---- */

/* w [out][in][kh][kw] (depthwise: [out][1][kh][kw]), b [out] or NULL. */
typedef struct ist_filter {
    int out, in, kh, kw;
    const float *w, *b;
} ist_filter;

typedef struct ist_conv_opts {
    int stride;                        /* 0 means 1 */
    int top, left, bottom, right;      /* zero padding */
    ist_epilogue epi;
    ist_tensor into;                   /* write here (a slice) instead of a new tensor */
    ist_tensor pool;                   /* ist_op_conv: its input's ist_op_maxpool2x2 goes here, too */
} ist_conv_opts;

/* Channels, at least `channels`, for maps between dense convolutions: where the device's kernels read whole groups of
 * channels, a number that fills them. Filters then have zeros for what is added. */
int ist_conv_channels(const ist_plan *p, int channels);
/* Dense convolution; the input's c must equal filter.in. Output height (h + top + bottom - kh) / stride + 1. */
ist_tensor ist_op_conv(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label);
/* y = x W^T + b on every pixel: a 1x1 convolution; filter.kh = kw = 1. */
ist_tensor ist_op_linear(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label);
/* Depthwise convolution, 3x3 or 5x5 (any odd size works). */
ist_tensor ist_op_dwconv(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label);
/* Max over a 2x2 window, stride 1, after padding one zero column right and one zero row below (HGNetv2 stem): same
 * extents as x. */
ist_tensor ist_op_maxpool2x2(ist_plan *p, ist_tensor x, ist_tensor into, const char *label);

/* ---- rows: src/ops/norm.c, src/ops/eltwise.c ---- */

typedef struct ist_norm_opts {
    ist_tensor add;     /* v = x + add before the statistics (n = 1 serves every n) */
    float clamp;        /* > 0: v clamped to +-clamp before the statistics */
    ist_act act;        /* after scale and shift */
    ist_tensor into;
} ist_norm_opts;

/* LayerNorm over c of every pixel: biased variance, y = act((v - mean) / sqrt(var + eps) * gamma + beta). On a map this
 * is SAM's LayerNorm2d. */
ist_tensor ist_op_layernorm(ist_plan *p, ist_tensor x, const float *gamma, const float *beta, float eps,
                            const ist_norm_opts *opts, const char *label);
/* a + b; b may have n = 1 and/or one pixel and is then repeated. */
ist_tensor ist_op_add(ist_plan *p, ist_tensor a, ist_tensor b, ist_tensor into, const char *label);
/* Copies x (a slice, another layout) into a new or given tensor of the same extents; an x with n = 1 fills every item.
 */
ist_tensor ist_op_copy(ist_plan *p, ist_tensor x, ist_tensor into, const char *label);
/* Copies the pixels of each item of x [n,h,w,c] to rows first to first + h * w - 1 of that item of into [n,1,rows,c].
 */
void ist_op_copy_rows(ist_plan *p, ist_tensor x, ist_tensor into, int first, const char *label);
/* y[i] = x[map[i]] over n: map is an I32 tensor of `count` indices ([1,1,count,1]); result n = count. */
ist_tensor ist_op_expand(ist_plan *p, ist_tensor x, ist_tensor map, int count, const char *label);
/* Clamps to [lo, hi]. */
ist_tensor ist_op_clamp(ist_plan *p, ist_tensor x, float lo, float hi, const char *label);
/* In place: pixel rows[i] (counted within each item, I32 [1,1,count,1]) of every item of x becomes value[c]. */
void ist_op_fill_rows(ist_plan *p, ist_tensor x, ist_tensor rows, const float *value, const char *label);
/* D-FINE's gateway: LN(sigmoid(g[0:D]) * x + sigmoid(g[D:2D]) * y), eps 1e-5; g [.., 2D]. */
ist_tensor ist_op_gate(ist_plan *p, ist_tensor g, ist_tensor x, ist_tensor y, const float *gamma, const float *beta,
                       const char *label);

/* ---- attention: src/ops/attention.c, window.c, deform.c ---- */

/* softmax(q k^T * scale) v per head: q [n,1,nq,C], k [nk_n,1,nk,C], v likewise, C = heads * d; any d that is a multiple
 * of 4 up to 64. q_map / kv_map (I32, [1,1,n,1]) say which item of q / of k and v serves result item i; empty: item i
 * itself. `count` is the n of the result (0: q.n). Statistics in fp32. */
typedef struct ist_attention_opts {
    int heads;
    float scale;
    ist_tensor q_map, kv_map;
    int count;
} ist_attention_opts;
ist_tensor ist_op_attention(ist_plan *p, ist_tensor q, ist_tensor k, ist_tensor v, const ist_attention_opts *opts,
                            const char *label);

/* TinyViT window attention. qkv [n,H,W,3*dim], per head 32 q, 32 k, 32 v channels; tokens outside the map are `pad_qkv`
 * [3*dim] (the projection of the LN bias) and take part as keys and values. bias [heads][ws*ws]. Result [n,H,W,dim];
 * scale 1/sqrt(32). */
ist_tensor ist_op_window_attention(ist_plan *p, ist_tensor qkv, const float *pad_qkv, const float *bias, int heads,
                                   int ws, const char *label);

/* One level of the deformable attention's memory: h x w pixels starting at token `start`, `points` per head. */
typedef struct ist_level {
    int h, w, start, points;
} ist_level;
/* D-FINE's deformable attention: a point lies at (cx, cy) + offset / points of its level * (w, h) / 2, memory is read
 * there bilinearly, zero outside of the map. offsets [n,1,q,heads*P*2] and weights [n,1,q,heads*P], both T or both F32,
 * are the raw linear outputs (the softmax over all P points happens here), ref [n,1,q,4] F32 cxcywh, memory [n,1,T,D];
 * result [n,1,q,D], written into `into` when that is a tensor. */
ist_tensor ist_op_deform_attention(ist_plan *p, ist_tensor offsets, ist_tensor weights, ist_tensor ref,
                                   ist_tensor memory, const ist_level *levels, int level_count, int heads,
                                   ist_tensor into, const char *label);

/* ---- selection and boxes: src/ops/topk.c, src/ops/box.c (coordinates are F32 tensors) ---- */

/* Largest value over channels: x [n,1,T,c] -> F32 [n,1,T,1]. */
ist_tensor ist_op_row_max(ist_plan *p, ist_tensor x, const char *label);
/* Indices of the k largest of x [n,1,T,1] F32 in falling order, equal values by rising index; I32 [n,1,k,1]. */
ist_tensor ist_op_topk(ist_plan *p, ist_tensor x, int k, const char *label);
/* Indices of the k rows of x [n,1,T,c] whose largest values are largest: topk of row_max; I32 [n,1,k,1]. */
ist_tensor ist_op_top_rows(ist_plan *p, ist_tensor x, int k, const char *label);
/* The sigmoids of x [n,1,T,c] as one list [n,1,1,T c] per item and the indices of the k largest of them, as topk gives
 * them, in one launch. False where the device has no such launch; nothing is recorded then. */
bool ist_op_top_scores(ist_plan *p, ist_tensor x, int k, ist_tensor *scores, ist_tensor *index, const char *label);
/* y[i] = x[index[i]] over tokens of each item: x [n or 1,1,T,c], index [n,1,k,1] -> [n,1,k,c] of x.elem. */
ist_tensor ist_op_gather(ist_plan *p, ist_tensor x, ist_tensor index, const char *label);
/* sigmoid(a + b) into F32: the first reference boxes; +inf gives 1. */
ist_tensor ist_op_box_init(ist_plan *p, ist_tensor delta, ist_tensor anchor_logit, const char *label);
/* sigmoid(delta + log(max(r, 1e-5) / max(1 - r, 1e-5))), r = ref clamped to [0, 1]; F32. */
ist_tensor ist_op_box_refine(ist_plan *p, ist_tensor delta, ist_tensor ref, const char *label);
/* corners = increment + previous (empty: 0) [n,1,q,132] F32, 33 bins for each of left, top, right, bottom; d of a side
 * = sum of softmax(corners) * project[33]; the result, F32 [n,1,q,4] cxcywh, is the box whose sides lie (reg_scale / 2
 * + d) (w, h) / reg_scale from ref_init's centre. *corners_out gets the corners; NULL when nobody reads them later. */
ist_tensor ist_op_fdr(ist_plan *p, ist_tensor increment, ist_tensor previous, ist_tensor ref_init, const float *project,
                      float reg_scale, ist_tensor *corners_out, const char *label);
/* LQE statistics: per side the 4 largest probabilities and their mean -> F32 [n,1,q,20]. */
ist_tensor ist_op_lqe(ist_plan *p, ist_tensor corners, const char *label);
/* quality [n,1,q,1] added to every class of logits, result F32 [n,1,q,c]. */
ist_tensor ist_op_add_quality(ist_plan *p, ist_tensor logits, ist_tensor quality, const char *label);

#endif
