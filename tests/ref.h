/* Scalar definitions of the operators: what every kernel is compared with.
 *
 * Each function is the textbook formula in plain C with double accumulation, on dense NHWC maps. One source per family:
 * ref_conv.c (convolutions, pooling, activations) and further ref_*.c beside it. Nothing here sees the engine. */
#ifndef IST_TESTS_REF_H
#define IST_TESTS_REF_H

#include <stdbool.h>
#include <stddef.h>

/* Dense NHWC map; v[((n * h + y) * w + x) * c + ch]. The maker of a map owns v. */
typedef struct ref_map {
    int n, h, w, c;
    float *v;
} ref_map;

static inline size_t ref_size(ref_map m) {
    return (size_t)m.n * m.h * m.w * m.c;
}
static inline float *ref_at(ref_map m, int n, int y, int x) {
    return m.v + (((size_t)n * m.h + y) * m.w + x) * m.c;
}

/* ---- convolution family: ref_conv.c ---- */

/* 0 none, 1 relu, 2 silu, 3 gelu (erf), 4 sigmoid */
double ref_act(double v, int act);

/* v = acc; v += add_before (nearest upsampled x2 when up2); v = act(v); v = scale v + bias when has_lab; v +=
 * add_after. An addend with v = NULL is absent; one with n = 1 serves every item. */
typedef struct ref_epilogue {
    int act;
    bool has_lab, up2;
    float lab_scale, lab_bias;
    ref_map add_before, add_after;
} ref_epilogue;
double ref_finish(double acc, const ref_epilogue *e, int n, int y, int x, int ch);

/* The nearest bfloat16, ties to even. */
float ref_bf16(float v);

typedef struct ref_window {
    int kh, kw, stride, top, left;
} ref_window;
/* w [y.c][x.c][kh][kw], b [y.c] or NULL; y's extents are given. */
void ref_conv(ref_map x, const float *w, const float *b, ref_window k, const ref_epilogue *e, ref_map y);
/* w [c][kh][kw]. */
void ref_dwconv(ref_map x, const float *w, const float *b, ref_window k, const ref_epilogue *e, ref_map y);
/* Max over 2x2, stride 1, zeros beyond the right and lower edge. */
void ref_maxpool2x2(ref_map x, ref_map y);

/* ---- rows and attention: ref_rows.c ---- */

/* Maps with v = NULL are absent; addends with n = 1 serve every item, with one pixel every pixel. */
void ref_add(ref_map a, ref_map b, ref_map y);
void ref_expand(ref_map x, const int *map, ref_map y);
void ref_clamp(ref_map x, float lo, float hi, ref_map y);
/* v = clamp(x + add) (clamp 0: not), y = act((v - mean) / sqrt(var + eps) * gamma + beta). */
void ref_layernorm(ref_map x, ref_map add, float clamp, const float *gamma, const float *beta, float eps, int act,
                   ref_map y);
/* LN(sigmoid(g[0:c]) x + sigmoid(g[c:2c]) y), eps 1e-5. */
void ref_gate(ref_map g, ref_map x, ref_map y, const float *gamma, const float *beta, ref_map out);
/* softmax(q k^T scale) v per head; maps may be NULL. */
void ref_attention(ref_map q, ref_map k, ref_map v, int heads, float scale, const int *q_map, const int *kv_map,
                   ref_map out);
/* TinyViT: qkv [..,heads * 96], pad [heads * 96] outside the map, bias [heads][ws * ws]. */
void ref_window_attention(ref_map qkv, const float *pad, const float *bias, int heads, int ws, ref_map out);
/* SAM's: qkv [..,3 heads d], pad [3 heads d] outside the map, windows of wh x ww, rel_h [2 wh - 1][d], rel_w
 * [2 ww - 1][d]. */
void ref_relative_attention(ref_map qkv, const float *rel_h, int wh, const float *rel_w, int ww, const float *pad,
                            int heads, ref_map out);
typedef struct ref_level {
    int h, w, start, points;
} ref_level;
/* As ist_op_deform_attention; boxes cxcywh; memory with n = 1 serves every item. */
void ref_deform_attention(ref_map offsets, ref_map weights, ref_map boxes, ref_map memory, const ref_level *levels,
                          int level_count, int heads, ref_map out);

/* ---- two-way attention, mask upscaling: ref_two_way.c ---- */

/* variants/absorbed.h's folded tokens: q = w (x + add) + b, y of (t, h) = scale * m_h^T q_h; columns when told, else panels.
 */
void ref_fold_heads(ref_map x, ref_map add, int d, const float *w, const float *b, const float *m, const float *mb,
                    double scale, bool columns, ref_map y);
/* One item of x per prompt; position has one item. */
void ref_image_update(ref_map x, ref_map position, ref_map keys, ref_map values, const float *bias, const float *gamma,
                      const float *beta, double eps, ref_map y);
void ref_image_read(ref_map x, ref_map position, ref_map queries, int d, const float *w, const float *b, ref_map y);
void ref_upscale(ref_map x, const float *w1, const float *b1, const float *gamma, const float *beta, double eps,
                 const float *w2, const float *b2, ref_map vectors, ref_map y);

/* ---- layers of SAM's mask decoder: ref_sam.c ---- */

/* w [out][in], b [out] or NULL. */
typedef struct ref_linear {
    int out, in;
    const float *w, *b;
} ref_linear;
typedef struct ref_attention_weights {
    int heads;
    ref_linear query, key, value, out;
    const float *gamma, *beta;
    double eps;
} ref_attention_weights;
/* gamma and beta of the norm behind both layers. */
typedef struct ref_mlp_weights {
    ref_linear lin1, lin2;
    const float *gamma, *beta;
    double eps;
} ref_mlp_weights;
/* y = LN(add + out(softmax(query(q + q_pos) key(k + k_pos)^T / sqrt(d)) value(k))); q_pos, k_pos and add may be absent,
 * positions may have n = 1. y may be q or add. */
void ref_attention_layer(ref_map q, ref_map q_pos, ref_map k, ref_map k_pos, ref_map add,
                         const ref_attention_weights *w, ref_map y);
/* y = LN(x + lin2(act(lin1 x))); y may be x. */
void ref_mlp_layer(ref_map x, const ref_mlp_weights *w, int act, ref_map y);
/* gauss [2][f] -> y [1,1,grid * grid,2 f]. */
void ref_grid_code(const float *gauss, int grid, ref_map y);
/* One token v [mlp[0].in] through three layers with relu between: y [mlp[2].out]. */
void ref_token_mlp(const float *v, const ref_linear mlp[3], float *y);
typedef struct ref_two_way_weights {
    ref_attention_weights self[2], read[2], update[2], last;
    ref_mlp_weights mlp[2];
} ref_two_way_weights;
/* The transformer: image [P,1,L,C] in and out, tokens [P,1,N,C], code [1,1,L,C], y [P,1,N,C]. */
void ref_two_way(ref_map tokens, ref_map code, const ref_two_way_weights *w, ref_map image, ref_map y);

/* ---- selection, boxes, masks, matching: ref_vision.c ---- */

/* y[n,t,0] = max over channels. */
void ref_row_max(ref_map x, ref_map y);
/* Indices of the k largest of `count` values in falling order, equal values by rising index, NaN as -inf. */
void ref_topk(const float *v, int count, int k, int *index);
/* torchvision's nms (with group != NULL: batched_nms) of count boxes [4] x0 y0 x1 y1, to index[count]: the kept by falling
 * score, equal ones by rising index, NaN as -inf. Returns how many. */
int ref_nms(const float *boxes, const float *scores, const int *group, int count, double iou, int *index);
/* sigmoid(a + b); sigmoid(a + logit(b)); b with n = 1 serves every item. */
void ref_box_init(ref_map a, ref_map b, ref_map y);
void ref_box_refine(ref_map a, ref_map b, ref_map y);
/* corners = a + previous (v = NULL: 0), box = box of the integrals around ref_init; project [33]. */
void ref_fdr(ref_map a, ref_map previous, ref_map ref_init, const float *project, double scale, ref_map corners,
             ref_map box);
void ref_lqe(ref_map corners, ref_map y);
/* logits [..,c] + quality [..,1]. */
void ref_add_quality(ref_map logits, ref_map quality, ref_map y);
/* Pillow's BILINEAR on interleaved 8-bit RGB, in the order of Pillow 11 and 12. */
void ref_resize(const unsigned char *in, int h, int w, unsigned char *out, int oh, int ow);
/* The same, columns before rows. */
void ref_resize_vertical_first(const unsigned char *in, int h, int w, unsigned char *out, int oh, int ow);
/* Mask logits size x size -> four times that -> the first h rows and w columns -> out [height][width], in float as
 * PyTorch. */
void ref_upsample(const float *low, int size, int w, int h, float *out, int width, int height);
/* Least total cost of min(rows, cols) pairs in double; row_to_col -1 where free. +inf forbids. False when there is no
 * complete assignment. */
bool ref_assign(const float *cost, int rows, int cols, int ld, int *row_to_col, double *total);
double ref_iou(const float a[4], const float b[4]);

/* SAM's prompt tokens: points [P,1,k,2] in pixels of a square of `side`; labels [P][k], of which those up to `most`
 * mean something, or NULL: point j is corner j of a box. gauss [2][c / 2], table [5][c]: not_a_point, background,
 * object, first and second corner. Tokens beyond the points are padding. */
void ref_point_tokens(ref_map points, const int *labels, int most, const float *gauss, const float *table, double side,
                      ref_map y);

#endif
