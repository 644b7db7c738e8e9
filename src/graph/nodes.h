/* The vocabulary: what a network is written in, one struct per kind of node.
 *
 * A struct holds a node's operands (tensors), its numbers (filters, norms, arrays of the checkpoint) and its attributes,
 * and nothing about how or where it is computed. In a graph (graph.h) a tensor's `buffer` is the number of a value and
 * filters have a recipe, so that nothing is read until it is needed; in a plan the same struct has the plan's tensors
 * and the numbers themselves (variants/emit.h). The first member of each is its label, the name in the checkpoint.
 *
 * Layout is NHWC; token sequences are [n,1,tokens,c]. The comment of a struct is its definition; tests/ref.h has it as
 * code. */
#ifndef IST_GRAPH_NODES_H
#define IST_GRAPH_NODES_H

#include "base/tensor.h"
#include "graph/frame.h"

#include <stdint.h>

struct ist_recipe; /* weights/recipe.h */

/* ---- numbers of the checkpoint ---- */

/* w [out][in][kh][kw] (depthwise: in = 1), b [out] or NULL. In a graph w is NULL and `recipe` says where they are. */
typedef struct ist_filter {
    int out, in, kh, kw;
    const float *w, *b;
    const struct ist_recipe *recipe;
} ist_filter;

/* Scale and shift of a norm over n channels. */
typedef struct ist_affine {
    const float *gamma, *beta; /* [n] */
    int n;
    const struct ist_recipe *recipe;
} ist_affine;

/* Any other floats, in C order. */
typedef struct ist_array {
    const float *v;
    size_t count;
    const struct ist_recipe *recipe;
} ist_array;

/* ---- what happens to a result before it is stored ---- */

/* Kernels know them as ACT_RELU and so on (codes/act). */
typedef enum ist_act { IST_ACT_NONE, IST_ACT_RELU, IST_ACT_SILU, IST_ACT_GELU, IST_ACT_SIGMOID } ist_act;

/* v = acc + bias; v += add_before; v = act(v); v = lab_scale * v + lab_bias (with has_lab: HGNetv2's learnable affine
 * block); v += add_after. Addends have the extents of the result; add_before with up2 has half the height and width and
 * is upsampled by nearest; an addend with n = 1 serves every n. */
typedef struct ist_epilogue {
    ist_act act;
    bool has_lab;
    float lab_scale, lab_bias;
    ist_tensor add_before, add_after;
    bool up2;
} ist_epilogue;

/* ---- rows that repeat ---- */

/* Rows that a map has beside those that its own layer needs: so many at either end, and where it is a residual around
 * windows all rows that windows of so many rows make. */
typedef struct ist_rows_kept {
    int spare, windows;
} ist_rows_kept;

/* What is known of the rows of a map. A letterboxed picture fills the upper rows of a network's input; below it layers
 * near the input see nothing but padding, and make the same row, behind windows the same `period` rows, over and over:
 * of item n each row from `first` = (ceil(content[n] / step) + above, rounded up to a multiple of period) + after on has
 * the bits of that `period` rows below it, but for the last `below`. With `left_out` rows from first + period on are not
 * made but for `kept` and the last `below`: whoever reads one reads the row that it repeats. Known to whoever lowers a
 * graph, and set there: in a node that of its operand before it is recorded (ahead: what its result is to keep), that
 * of its result afterwards. */
typedef struct ist_padding_reuse {
    ist_tensor content; /* I32 [1,1,n,1]: rows of the picture in the network's input; empty: nothing is known */
    int step, above, below;
    int period, after;
    bool left_out;
    ist_rows_kept kept, ahead;
} ist_padding_reuse;

/* REPEAT_ROWS: makes the rows of x that were left out, in place. */
typedef struct ist_repeat_rows {
    const char *label;
    ist_tensor x, y;
    ist_padding_reuse reuse;
} ist_repeat_rows;

/* ---- convolutions ---- */

typedef struct ist_conv_opts {
    int stride;                   /* 0 means 1 */
    int top, left, bottom, right; /* zero padding */
    ist_epilogue epi;
    bool exact;      /* the result is kept as float also where activations are half */
    ist_tensor into; /* where the result goes, a slice of a wider map say; empty: to a tensor of its own */
    ist_tensor pool; /* empty, or where the 2x2 maximum of x goes, which the same launch may make */
} ist_conv_opts;

/* CONV: dense; filter.in = x.c. A linear layer is one with kh = kw = 1. Result [n,(h+top+bottom-kh)/stride+1,..,out].
 * DWCONV: depthwise, square and odd: filter.in = 1, filter.out = x.c. */
typedef struct ist_conv {
    const char *label;
    ist_tensor x, y;
    ist_filter filter;
    ist_conv_opts o;
    float norm_eps; /* > 0: of a norm of x in front, whose scale and shift are in the filter already */
    ist_padding_reuse reuse, addend; /* addend: of o.epi.add_before */
} ist_conv;

/* MAXPOOL: over a 2x2 window, stride 1, after one zero column right and one zero row below (HGNetv2's stem): same
 * extents as x. */
typedef struct ist_maxpool {
    const char *label;
    ist_tensor x, y;
} ist_maxpool;

/* ---- rows ---- */

/* LAYER_NORM: over c of every pixel: v = x + add, clamped to +-clamp where that is > 0; biased variance; y = act((v -
 * mean) / sqrt(var + eps) * gamma + beta). On a map this is SAM's LayerNorm2d. add may be empty or have n = 1. */
typedef struct ist_layer_norm {
    const char *label;
    ist_tensor x, add, y;
    ist_affine norm;
    float eps, clamp;
    ist_act act;
    ist_padding_reuse reuse;
} ist_layer_norm;

/* ADD: a + b; b may have n = 1 and/or one pixel and is then repeated. */
typedef struct ist_add {
    const char *label;
    ist_tensor a, b, y;
} ist_add;

/* COPY: x; with n = 1 for every item of y. CLAMP: x within [lo, hi]. */
typedef struct ist_copy {
    const char *label;
    ist_tensor x, y;
} ist_copy;
typedef struct ist_clamp {
    const char *label;
    ist_tensor x, y;
    float lo, hi;
} ist_clamp;

/* COPY_ROWS: the pixels of each item of x [n,h,w,c] become rows first to first + h w - 1 of that item of into
 * [n,1,rows,c]. */
typedef struct ist_copy_rows {
    const char *label;
    ist_tensor x, into;
    int first;
} ist_copy_rows;

/* EXPAND: y[i] = x[map[i]] over n; map I32 [1,1,count,1]. */
typedef struct ist_expand {
    const char *label;
    ist_tensor x, map, y;
} ist_expand;

/* CONCAT: the channels of x[0], x[1].. side by side. CONCAT_ROWS: per item the pixels of x[0], then those of x[1], ..:
 * [n,1,sum of h w,c]. */
enum { IST_CONCAT_MAX = 10 };
typedef struct ist_concat {
    const char *label;
    ist_tensor x[IST_CONCAT_MAX], y;
} ist_concat;

/* PUT_ITEMS: item i of x [n,h,w,c] F32 takes the place of that of `into`, of the same extents, where counts[i / each] is
 * more than `above`; counts I32 [1,1,P,1], each = n / P. A limit is of counts. */
typedef struct ist_put_items {
    const char *label;
    ist_tensor x, into, counts;
    int above;
} ist_put_items;

/* FILL_ROWS: x, but pixels rows[i] (counted within each item, I32 [1,1,count,1]) of every item are value[c]: the bias
 * of `filter`, what a linear layer makes of zeros. In place: x is gone. */
typedef struct ist_fill_rows {
    const char *label;
    ist_tensor x, rows, y;
    ist_filter filter;
} ist_fill_rows;

/* GATE: D-FINE's gateway, LN(sigmoid(g[0:D]) a + sigmoid(g[D:2D]) b), eps 1e-5; g [..,2D]. */
typedef struct ist_gate {
    const char *label;
    ist_tensor g, a, b, y;
    ist_affine norm;
} ist_gate;

/* ---- attention ---- */

/* ATTENTION: softmax(q k^T scale) v per head: q [n,1,nq,C], k [n,1,nk,C], v likewise, C = heads * d; any d that is a
 * multiple of 4 up to 64. q_map / kv_map (I32 [1,1,n,1]) say which item of q / of k and v serves result item i; empty:
 * item i itself. `count` is the n of the result (0: q.n). With k_count (I32 [1,1,n,1]) result item i sees the first
 * k_count[i] keys only, at least one. Statistics in float. */
typedef struct ist_attention {
    const char *label;
    ist_tensor q, k, v, q_map, kv_map, k_count, y;
    int heads, count;
    float scale;
} ist_attention;

/* WINDOW_ATTENTION: TinyViT's. qkv [n,H,W,3 dim], per head 32 q, 32 k, 32 v channels; tokens outside the map are
 * pad [3 dim] (the projection of the norm's bias) and take part as keys and values. bias [heads][ws*ws] by the distances
 * of line and column. Result [n,H,W,dim]; scale 1/sqrt(32). */
typedef struct ist_window_attention {
    const char *label;
    ist_tensor qkv, y;
    const float *pad, *bias;
    int heads, ws;
    ist_padding_reuse reuse;
} ist_window_attention;

/* RELATIVE_ATTENTION: self-attention of a map with decomposed relative positions (MViTv2, Li et al., arXiv 2112.01526)
 * within windows of wh x ww tokens (ViTDet, Li et al., arXiv 2203.16527), as SAM's image encoders have it. The score of
 * the query at line y and column x of a window and the key at (v, u) is
 *     q . k / sqrt(d) + q . rel_h[y - v + wh - 1] + q . rel_w[x - u + ww - 1].
 * qkv [n,h,w,3 C]: all queries, all keys, all values, each in `heads` heads of d = C / heads channels; rel_h
 * [2 wh - 1][d], rel_w [2 ww - 1][d], which have the window's extents: those of the map for attention to all of it.
 * Tokens of a window beyond the map are zeros before the projection to qkv: keys and values of its bias, pad [3 C].
 * Result [n,h,w,C]. d is a multiple of 4 up to 64, wh and ww are at most 64. */
enum { IST_RELATIVE_SIDE_MAX = 64 };
typedef struct ist_relative_attention {
    const char *label;
    ist_tensor qkv, y;
    ist_array rel_h, rel_w, pad;
    int heads;
} ist_relative_attention;

/* One level of the deformable attention's memory: h x w pixels starting at token `start`, `points` per head. */
typedef struct ist_level {
    int h, w, start, points;
} ist_level;
enum { IST_LEVELS_MAX = 4 };

/* DEFORM: D-FINE's deformable attention: a point lies at (cx, cy) + offset / points of its level * (w, h) / 2, or with
 * `point_scale` [P] at (cx, cy) + offset * its scale * (w, h) / 2; memory is read there bilinearly, zero outside of the map. offsets [n,1,q,heads*P*2] and weights [n,1,q,heads*P], both T or both
 * F32, are the raw linear outputs (the softmax over all P points happens here), ref [n,1,q,4] F32 cxcywh, memory
 * [n,1,T,D]; result [n,1,q,D]. */
typedef struct ist_deform {
    const char *label;
    ist_tensor offsets, weights, ref, memory, y;
    ist_level level[IST_LEVELS_MAX];
    int levels, heads;
    const float *point_scale; /* [P], the graph's, or NULL */
} ist_deform;

/* ---- selection and boxes (coordinates are F32) ---- */

/* TOP_ROWS: indices of the k rows of x [n,1,T,c] whose largest values are largest, in falling order, equal values by
 * rising index: I32 [n,1,k,1]. TOPK: the same of values x [n,1,T,1] F32. */
typedef struct ist_top_rows {
    const char *label;
    ist_tensor x, y;
    int k;
} ist_top_rows;

/* ROW_MAX: the largest value over channels: x [n,1,T,c] -> F32 [n,1,T,1]. */
typedef struct ist_row_max {
    const char *label;
    ist_tensor x, y;
} ist_row_max;

/* TOP_SCORES: the sigmoids of x [n,1,T,c] F32 as one list, [n,1,1,T c] or longer, and the indices of the k largest of
 * them, as TOPK gives them. */
typedef struct ist_top_scores {
    const char *label;
    ist_tensor x, scores, index;
    int k;
} ist_top_scores;

/* NMS: greedy non-maximum suppression as torchvision's nms and, with groups, batched_nms: of n lists of T boxes, boxes F32
 * [n,1,T,4] x0 y0 x1 y1 and scores F32 [n,1,T,1], the first count[i] take part (I32 [n,1,1,1]; empty: all). In order of
 * falling score, equal scores by rising index, NaN as -inf, a box is kept unless one kept before it, with an equal group
 * (I32 [n,1,T,1]; empty: one for all), has an intersection over union with it above `iou`, 0 to 1: float arithmetic, NaN
 * is above nothing. index I32 [n,1,T,1]: the kept in that order, -1 behind them; kept I32 [n,1,1,1]: how many. */
enum { IST_NMS_MAX = 4096 /* T */ };
typedef struct ist_nms {
    const char *label;
    ist_tensor boxes, scores, group, count, index, kept;
    double iou; /* torchvision compares with a double */
} ist_nms;

/* GATHER: y[i] = x[index[i]] over tokens of each item: x [n or 1,1,T,c], index I32 [n,1,k,1] -> [n,1,k,c] of x.elem. */
typedef struct ist_gather {
    const char *label;
    ist_tensor x, index, y;
} ist_gather;

/* BOX_INIT: sigmoid(a + b), the first reference boxes; +inf gives 1. BOX_REFINE: sigmoid(a + log(max(r, 1e-5) / max(1 -
 * r, 1e-5))), r = b clamped to [0, 1]. ADD_QUALITY: b [n,1,q,1] added to every class of a. F32. */
typedef struct ist_box {
    const char *label;
    ist_tensor a, b, y;
} ist_box;

/* FDR: corners = increment + previous (empty: 0) [n,1,q,132] F32, 33 bins for each of left, top, right, bottom; d of a
 * side = sum of softmax(corners) * project[33]; boxes F32 [n,1,q,4] cxcywh are those whose sides lie (reg_scale / 2 + d)
 * (w, h) / reg_scale from ref's centre. */
enum { IST_FDR_BINS = 33 };
typedef struct ist_fdr {
    const char *label;
    ist_tensor increment, previous, ref, boxes, corners;
    float project[IST_FDR_BINS], reg_scale;
} ist_fdr;

/* LQE: per side the 4 largest probabilities of the bins and their mean -> F32 [n,1,q,20]. */
typedef struct ist_lqe {
    const char *label;
    ist_tensor corners, y;
} ist_lqe;

/* ---- composite nodes: each has a portable decomposition into smaller ones ---- */

/* relu(conv), then v * lab_scale + lab_bias (1 and 0 without LAB). */
typedef struct ist_stem_layer {
    ist_filter f;
    float lab_scale, lab_bias;
} ist_stem_layer;
enum { IST_STEM_LAYERS = 5 };

/* STEM: HGNetv2's: stem1 3x3 s2 -> m; beside each other stem2a 2x2 -> m/2, stem2b 2x2 -> m, and a 2x2 maximum; stem3 3x3
 * s2 of maximum and stem2b -> m; stem4 1x1. image [n,h,w,c] -> [n,h/4,w/4,out]. The 2x2 windows see one more zero row
 * and column. */
typedef struct ist_stem {
    const char *label;
    const char *names[IST_STEM_LAYERS];
    ist_tensor image, y;
    ist_stem_layer layers[IST_STEM_LAYERS];
} ist_stem;

/* SEPARABLE: depth(point x): point [mid][in][1][1] without activation, then depth [mid][1][k][k] with `o`. */
typedef struct ist_separable {
    const char *label;
    ist_tensor x, y;
    ist_filter point, depth;
    ist_conv_opts o;
} ist_separable;

/* CSP: the block of D-FINE's encoder (RT-DETR's CSPRepLayer) and the 3x3 convolution behind it. l and r: the halves of
 * silu(first x), a 1x1 layer of 2c outputs; l = silu(neck l) for each of `necks`; the result is silu(last (l + r)).
 * Necks and last are 3x3, c -> c, with padding 1. */
enum { IST_CSP_NECKS = 8 };
typedef struct ist_csp {
    const char *label;
    ist_tensor x, y;
    ist_filter first, neck[IST_CSP_NECKS], last;
    int necks; /* at least 1 */
} ist_csp;

/* FUSE: top-down fusion: silu(filter concat(upsample2(top), side)), filter 1x1; `side` may have to be projected first
 * (side_filter.out > 0: 1x1, no activation). top [n,h/2,w/2,C]. */
typedef struct ist_fuse {
    const char *label;
    ist_tensor top, side, y;
    ist_filter filter, side_filter;
    const char *side_label;
    const char *tap; /* what a test may ask for side's projection by, where it exists */
} ist_fuse;

/* QKV: a transformer's packed projection, in_proj [3C][C]: q and k of x + the 2-D sine position embedding of a grid of
 * x.w = grid_h * grid_w tokens (temperature 10000; as the official code has it), v of x: [n,1,T,3C]. */
typedef struct ist_qkv {
    const char *label;
    ist_tensor x, y;
    ist_filter filter;
    int grid_h, grid_w;
} ist_qkv;

/* PATCH_EMBED: second(gelu(first image)), both 3x3 with stride 2 and padding 1: [n,h,w,3] -> [n,h/4,w/4,out], rounded
 * up. content I32 [1,1,n,2]: width and height of the pictures in the image, which is zero beside them; empty: not known.
 */
typedef struct ist_patch_embed {
    const char *label;
    ist_tensor image, content, y;
    ist_filter first, second;
    ist_padding_reuse reuse;
} ist_patch_embed;

/* MBCONV: the inverted bottleneck of MobileNetV2 (Sandler et al., arXiv 1801.04381) as TinyViT uses it: y =
 * act(project(gelu(spread(gelu(expand(x))))) + residual): expand and project are 1x1, spread is a depthwise 3x3 with
 * `stride` and padding 1; the residual is x (stride 1, as many channels out as in). */
typedef struct ist_mbconv {
    const char *label;
    ist_tensor x, y;
    ist_filter expand, spread, project;
    int stride;
    bool residual;
    ist_act act;
    ist_padding_reuse reuse;
} ist_mbconv;

/* NORM_WINDOW: y = attention(qkv LN(x)) within windows of ws x ws tokens: x [n,h,w,c], c = 32 heads, qkv [3 c][c], per
 * head 32 queries, 32 keys, 32 values; bias [heads][ws * ws] by the distances of line and column. A token of a window
 * beyond the map is zero in front of the norm's shift. */
typedef struct ist_norm_window {
    const char *label;
    ist_tensor x, y;
    ist_affine norm;
    ist_array bias;
    float eps;
    ist_filter qkv;
    int heads, ws;
    ist_padding_reuse reuse;
} ist_norm_window;

/* NORM_MLP: z = spread(x), a depthwise 3x3 convolution that keeps the extents, or x without one (spread.out 0). u =
 * LN(z); y = act(fc1 u), or, with fc2.out > 0, y = fc2(act(fc1 u)) + z. */
typedef struct ist_norm_mlp {
    const char *label;
    ist_tensor x, y;
    ist_affine norm;
    float eps;
    ist_filter spread, fc1, fc2;
    ist_act act;
    ist_padding_reuse reuse;
} ist_norm_mlp;

/* ---- SAM's prompt encoder and mask decoder (Kirillov et al., ICCV 2023) ---- */

/* POINT_TOKENS: points F32 [P,1,k,2] in pixels of a square input of `side`; labels I32 [P,1,k,1], or empty: point j has
 * label first_label + j. With `pad` one more token of label -1 follows. gauss [2][128]: random Fourier features, row 0
 * multiplies x; table [5][256]: what is added for the labels -1 (not_a_point) to 3. Label -1 has no position; given
 * labels other than -1, 0, 1 and, with `corners`, 2 and 3 have a position only. Tokens `own` [1,1,i,256], or none,
 * stand before those of every prompt. -> [P,1,(i+) k (+1),256] */
enum { IST_POINT_DIM = 256, IST_POINT_LABELS = 5 };
typedef struct ist_point_tokens {
    const char *label;
    ist_tensor points, labels, own, y;
    ist_array gauss, table[IST_POINT_LABELS];
    int first_label;
    bool pad, corners;
    float side;
} ist_point_tokens;

/* DENSE_PROMPT: what is added to the image of prompt i: x[i] [P,h,w,c], the code of its mask, where given[i] (I32
 * [1,1,P,1]) is not 0, else `none` [c] at every pixel. */
typedef struct ist_dense_prompt {
    const char *label;
    ist_tensor x, given, y;
    ist_array none;
} ist_dense_prompt;

/* JOIN_TOKENS: tokens of a, then those of b, per item: [1 or P,1,i,c] and [P,1,j,c] -> [P,1,i+j,c]. */
typedef struct ist_join_tokens {
    const char *label;
    ist_tensor a, b, y;
} ist_join_tokens;

/* PARAMETER: rows of the checkpoint as a constant: those of rows[0], then those of rows[1] if it has any. */
typedef struct ist_parameter {
    const char *label;
    ist_tensor y; /* its extents are given */
    ist_array rows[2];
} ist_parameter;

/* GRID_CODE: the position code of a grid, [1,1,grid * grid,2 f]: row i, column j at ((j + 0.5) / grid, (i + 0.5) / grid)
 * (PositionEmbeddingRandom); gauss [2][f]. */
typedef struct ist_grid_code {
    const char *label;
    ist_tensor y;
    ist_array gauss;
    int grid;
} ist_grid_code;

/* ATTENTION_LAYER: y = LN(add + out(softmax(query(q + q_pos) key(k + k_pos)^T / sqrt(d)) value(k))), in `heads` heads
 * of d = query.out / heads channels; tokens [n,1,nq,C], [n,1,nk,C]. Positions and `add` may be empty, a position may
 * have n = 1. k_count as in ATTENTION. */
typedef struct ist_attention_layer {
    const char *label;
    ist_tensor q, q_pos, k, k_pos, k_count, add, y;
    ist_filter query, key, value, out;
    ist_affine norm;
    float eps;
    int heads;
} ist_attention_layer;

/* MLP_LAYER: y = LN(x + lin2(act(lin1 x))). */
typedef struct ist_mlp_layer {
    const char *label;
    ist_tensor x, y;
    ist_filter lin1, lin2;
    ist_affine norm;
    float eps;
    ist_act act;
} ist_mlp_layer;

/* TOKEN_MLPS: MLPs of three layers with relu between, of single tokens of x [P,1,N,c]: mlp[0] of token 0: iou F32
 * [P,1,1,outputs]; mlp[1], mlp[2], .. of the tokens from 1 + first on: vectors [P,1,count - 1,outputs of those]. */
enum { IST_TOKEN_MLPS_MAX = 5 };
typedef struct ist_token_mlps {
    const char *label;
    const char *names[IST_TOKEN_MLPS_MAX];
    ist_tensor x, iou, vectors;
    ist_filter mlp[IST_TOKEN_MLPS_MAX][3];
    int count, first;
} ist_token_mlps;

/* UPSCALE: SAM's output_upscaling and the product with the hypernetworks' vectors: gelu(deconv2(gelu(LN(deconv1(x))))) .
 * vectors[m]: x [P,h,w,K], vectors [P,1,masks,32] -> F32 [P * masks,4h,4w,1], mask m of prompt i is item i * masks + m.
 * Transposed convolutions 2x2 with stride 2, w1 [K][64][2][2] and w2 [64][32][2][2]. K is a multiple of 16. */
enum { IST_UPSCALE_MIDDLE = 64, IST_UPSCALE_OUT = 32 };
struct ist_upscale_sharing; /* variants/cpu/upscale.h */
typedef struct ist_upscale {
    const char *label;
    ist_tensor x, vectors, y;
    ist_array w1, b1, w2, b2;
    ist_affine norm;
    float eps;
    /* Where masks are cut out of letterboxed pictures, logits that MASKS does not read may stay undefined: content I32
     * [1,1,images,2], width and height of the picture in the network's input, image_of I32 [1,1,P,1]. Both empty: all
     * are made. */
    ist_tensor content, image_of;
    const struct ist_upscale_sharing *sharing; /* what prompts of one image share, or NULL: set where it is lowered */
} ist_upscale;

/* ---- the frame around the networks: upload and packet are those of graph/frame.h ---- */

/* SAMPLE_WINDOW: fills in IST_IM_LOW and IST_IM_HIGH of the 16-bit images of the upload where both are 0: the 0.5th and
 * the 99.5th percentile of their samples, those of all colours together and without alpha. Sorted, numbered from 0, these
 * are samples k and count - 1 - k with k = count / 200 (rounded down); where they are equal it is the least and the
 * greatest, and where these are too, v and v + 1. Of a crop, the samples of the whole image; of an image in
 * tiles (IST_UP_TILES), whose batch is 1, all of them get what the whole has. */
typedef struct ist_sample_window {
    const char *label;
    ist_tensor upload, pixels;
    int batch;
} ist_sample_window;

/* RESIZE: the images of the upload as a network's input, bit-exact with Pillow 11's and 12's BILINEAR: [batch,h,w,c]. Of c
 * channels 3 are RGB, gray repeated and alpha dropped; 1 is gray (Pillow's convert("L") of colours); 4 are RGB and alpha,
 * 255 where the image has none, each resampled by itself. For a
 * DETECTOR of w x h: stretched. For a SEGMENTER of w x w: longest side w, 0 outside of the resized picture
 * (segment-anything's preprocess); `content` [1,1,batch,2] I32: width and height of the picture in there. Values are
 * (value - mean) / std, correctly rounded; without std, value / 256 for a detector, segment-anything's numbers for a
 * segmenter. Pictures are resampled horizontally, then vertically; with `orders` those whose IST_IM_DET_VERTICAL or
 * IST_IM_SEG_VERTICAL is set the other way round. 16-bit samples become round(v / 257) first, with `windows` what their
 * image's window makes of them (base/sample_window.h). */
typedef enum ist_resize_for { IST_RESIZE_DETECTOR, IST_RESIZE_SEGMENTER } ist_resize_for;
typedef struct ist_resize {
    const char *label;
    ist_tensor upload, pixels, y, content;
    ist_resize_for what;
    int batch, w, h, channels;
    bool orders, windows;
    float mean[3], std[3];
} ist_resize;

/* What detections are, for all that follows them. Objects per image are rows of IST_DET_WORDS words, by falling score,
 * equal scores by rising query * classes + label. P = batch * max_objects is the capacity of the flat list, in which the
 * objects of all images follow each other. */
typedef struct ist_detections {
    int batch, max_objects;
    ist_tensor objects;  /* I32 [batch, 1, max_objects, IST_DET_WORDS]; only the first counts[i][0] rows are defined */
    ist_tensor counts;   /* I32 [batch, 1, 1, 4]: objects, dropped, first in the flat list, 0 */
    ist_tensor total;    /* I32 [1, 1, 1, 1]: prompts in the flat list: a limit */
    ist_tensor image_of; /* I32 [1, 1, P, 1]: image of each prompt; 0 from total on */
    ist_tensor boxes;    /* F32 [P, 1, 1, 4]: x0 y0 x1 y1 in the segmenter's coordinates; 0 from total on */
} ist_detections;

/* DETECT: the min(300, queries * classes) largest sigmoids of logits F32 [batch,1,queries,classes] with their boxes F32
 * [batch,1,queries,4] cxcywh normalised; a NaN logit is never an object. keep [classes]: nonzero for labels that are
 * wanted, or NULL. With nms_iou > 0 objects are those of them that NMS with this threshold keeps, of which those of
 * different labels leave each other alone unless `agnostic`. */
typedef struct ist_detect {
    const char *label;
    ist_tensor logits, boxes, upload;
    ist_detections det;
    float conf; /* scores must be above */
    const unsigned char *keep;
    double nms_iou;
    bool agnostic;
} ist_detect;

/* GIVEN_BOXES: the targets of each image in their order instead of detections, the first max_objects of them: score 1,
 * query -1. match I32 [batch, 1, max_objects, 2]: the index of each and the bits of IoU 1. */
typedef struct ist_given_boxes {
    const char *label;
    ist_tensor upload, match;
    ist_detections det;
} ist_given_boxes;

/* GIVEN_PROMPTS: the prompts of the upload (graph/frame.h), P = batch * prompts places for those of all images, one
 * after the other, in pixels of the segmenter's input. Each has `k` places for points and corners of boxes: points F32
 * [P,1,k,2]; labels I32 [P,1,k,1], those of POINT_TOKENS, 4 where there is none; tokens I32 [1,1,P,1], how many there
 * are together with the decoder's `own`; with `few` > 0 the same of the first `few` places alone; with `low` > 0 the masks F32 [P,low,low,1], zeros where none is given, and
 * masked I32 [1,1,P,1]. total I32 [1,1,1,1] and image_of I32 [1,1,P,1] are of prompts, those in det of the objects that
 * they become: `masks` of each prompt; match I32 [batch,1,prompts * masks,2] has the prompt's number in its image and
 * IoU 1. content as RESIZE makes it. */
typedef struct ist_given_prompts {
    const char *label;
    ist_tensor upload, points, labels, tokens, few_points, few_labels, few_tokens, mask, masked, total, image_of, match, content;
    ist_detections det; /* without boxes */
    int prompts, masks, k, few, own, low;
} ist_given_prompts;

/* ASSIGN: exact minimum-cost assignment by shortest augmenting paths (Jonker & Volgenant 1987; rectangular form Crouse
 * 2016) on 64-bit integer costs: the costs are rounded to fixed point once, then every device computes the same numbers.
 * Sources are the smaller side in rising order; at equal distance a free column wins, then the lowest index. cost F32
 * [n,rows,cols,1] dense, of which item i uses the first dims[i][0] rows and dims[i][1] columns; dims I32 [n,1,1,2]. q =
 * rint(cost 2^bits) must stay below 2^51 in magnitude; +inf forbids a pair, NaN counts as 1. match I32 [n,1,rows,1]:
 * column of each row or -1; complete I32 [n,1,1,1]: 0 where forbidden pairs left fewer than min(rows, cols) pairs. */
enum { IST_ASSIGN_MAX = 4096 /* rows, columns */ };
typedef struct ist_assignment {
    const char *label;
    ist_tensor cost, dims, match, complete;
    int bits;
} ist_assignment;

/* MATCH: match I32 [batch, 1, max_objects, 2]: match and the bits of its IoU, by exact assignment (graph/frame.h).
 * TRACKS: track ids (1..); pairs of equal label and IoU >= track_iou are allowed, the sum of IoU is maximal; unmatched
 * objects start new tracks by falling score; a track unseen for more than `age` frames ends; state persists over
 * replays. With `motion` a track's box is expected where its speed (of the last step, half and half with the speed before)
 * takes it. With track_high above 0 objects of a higher score are matched first, then the others with the tracks that are
 * left; those start no tracks (-1). TARGETS: index of the target; pairs of equal label (target label -1: any) and IoU > 0. SET: D-FINE's set
 * matching, all queries of the raw output against the targets, cost 2 focal class + 5 L1 - 2 GIoU; an object gets the
 * target of its query (of two objects of one query the one with the target's label, else the higher score). */
enum { IST_TRACK_MAX = 300 /* tracks alive at once: when full, the one unseen for longest makes room */ };
typedef enum ist_match_by { IST_MATCH_BY_TRACKS, IST_MATCH_BY_TARGETS, IST_MATCH_BY_SET } ist_match_by;
typedef struct ist_match {
    const char *label;
    ist_match_by by;
    ist_tensor upload, logits, boxes, match; /* logits F32 [batch,1,queries,classes], boxes [batch,1,queries,4]: SET */
    ist_detections det;
    float track_iou, track_high;
    int age, max_targets, motion;
} ist_match;

/* MASKS: logits F32 [P,s,s,1] (any view with s * s consecutive values per prompt), s = side / 4 for a network's input of
 * `side`: two bilinear steps s -> side -> crop -> image, bits logit > 0 into `store`, and the counts behind area, box
 * and stability (pixels of logits above `offset` and -offset) as partial statistics, I32: PACK's, or those of MASK_SUMS.
 * Honours det.total by itself. With picks I32 [1,1,P,2] object k's logits are those of item picks[k][0] and its place in
 * the store is picks[k][1], none (-1: only the statistics are wanted) or one of an image of which the object's own is a
 * crop. */
enum { IST_LOGIT_PIXELS = 4, IST_MASK_STATS = 8 };
typedef struct ist_masks {
    const char *label;
    ist_tensor logits, upload, store, picks, stats;
    ist_detections det;
    int side;
    float offset;
} ist_masks;

/* MASK_SUMS: the statistics of each object, I32 [1,1,P,IST_MASK_STATS]: area, least x, most x, least y, most y, pixels above
 * offset and -offset. */
typedef struct ist_mask_sums {
    const char *label;
    ist_tensor stats, y;
    ist_detections det;
} ist_mask_sums;

/* PACK: the packet. match, stats (MASKS', or with `summed` those of MASK_SUMS) and score (F32 or T, a view
 * [P / m,1,1,m]: object k's is channel k % m of item k / m) may be empty: none, no segmenter; store is empty without a
 * segmenter. logits F32 as those of MASKS, or empty: none are wanted. */
typedef struct ist_pack {
    const char *label;
    ist_tensor match, stats, score, logits, upload, store, packet;
    ist_detections det;
    bool summed;
} ist_pack;

/* ---- masks of everything (SamAutomaticMaskGenerator of segment-anything): graph/found.h is what lies between them ---- */

/* FOUND_NONE: forgets what was found. */
typedef struct ist_found_none {
    const char *label;
    ist_tensor found;
} ist_found_none;

/* GRID_POINTS: the next at most `prompts` points of the upload's grids or, after selection, those of the candidates that
 * were kept: points F32 [P,1,2,2], the second one padding, labels I32 [P,1,2,1], image_of I32 [1,1,P,1] the crop, total
 * I32 [1,1,1,1]. content as RESIZE makes it, of `crops`. */
typedef struct ist_grid_points {
    const char *label;
    ist_tensor upload, found, points, labels, image_of, total, content;
    int prompts, crops, capacity;
} ist_grid_points;

/* GRID_PICKS: which of the P * m masks of these points MASKS is to look at, in order: those of iou F32 [P,1,1,m] above
 * `iou_thresh`, all where that is 0 or less; after selection the one that was kept of each point, with its place in the
 * store. */
typedef struct ist_grid_picks {
    const char *label;
    ist_tensor found, iou, image_of, total, picks; /* of GRID_POINTS; picks as MASKS takes them */
    ist_detections det;                            /* of the picks: total and image_of */
    float iou_thresh;
    int capacity;
} ist_grid_picks;

/* GRID_KEEP: those whose stability, by stats of MASK_SUMS, is at least `stability_thresh` (all where that is 0 or less)
 * and whose box does not lie within 20 pixels of an edge of the crop, but for edges of the image, become candidates.
 * Then the points count as taken. */
typedef struct ist_grid_keep {
    const char *label;
    ist_tensor upload, found, iou, total, picks, stats; /* total: of GRID_POINTS */
    ist_detections det;
    float stability_thresh;
    int capacity;
} ist_grid_keep;

/* GRID_SELECT: non-maximum suppression of boxes within each crop by falling predicted IoU, then, with more than one, of
 * what is left across crops by falling IST_IM_CROP_SCORE; equal ones in their order. IoU of x1 - x0 and y1 - y0 in float,
 * above the threshold, as torchvision.ops.nms has it. The first `most` of these are kept. */
typedef struct ist_grid_select {
    const char *label;
    ist_tensor upload, found;
    double crop_thresh, across_thresh;
    int crops, most, capacity;
} ist_grid_select;

/* GRID_CLEAN: of the masks stored, background regions (8-connected, within the image) of fewer pixels than `least` are
 * filled, then regions of the mask of fewer are removed, but for the largest where there are no others; as
 * segment-anything's remove_small_regions with OpenCV's labels. The first time those that changed give way to those that did
 * not, above `thresh` as in GRID_SELECT, and none counts as stored any more. regions: for IST_UP_CLEANERS masks
 * ist_region_words each. */
enum { IST_CLEANERS_MAX = 64 };
static inline size_t ist_region_words(int width, int height) {
    return 2 * (size_t)width * (size_t)(height / 2 + 1); /* a column has no more runs */
}
typedef struct ist_grid_clean {
    const char *label;
    ist_tensor upload, found, store, regions;
    double thresh;
    int least, most, capacity;
} ist_grid_clean;

/* TILE_KEEP: appends the objects of the upload's images, tiles that follow each other, to what was found (graph/tiled.h), in
 * pixels of the image that they are of. */
typedef struct ist_tile_keep {
    const char *label;
    ist_tensor upload, found;
    ist_detections det;
} ist_tile_keep;

/* TILE_MERGE: which detections of all tiles stay: of NMS over all of them with `iou`, groups being labels unless
 * `agnostic`, those that are no parts. One that ends at a border of its tile that is none of the image's, or within
 * 1 / IST_TL_BORDER of the tile's side of it, is a part where more than `iou` of it lies in another, of the same group,
 * that stays and does not end so, or that does and is better. Tiles without one of the first `most` have no image in their
 * uploads from then on. */
typedef struct ist_tile_merge {
    const char *label;
    ist_tensor upload, found;
    double iou;
    bool agnostic;
    int most;
} ist_tile_merge;

/* TILE_OBJECTS: the first max_objects of those that stay as objects of one image; boxes in the segmenter's input of the
 * tile tile_of I32 [1,1,P,1]; own I32 [1,1,P,1] and picks I32 [1,1,P,2] as MASKS takes them name each object itself. */
typedef struct ist_tile_objects {
    const char *label;
    ist_tensor upload, found, tile_of, own, picks;
    ist_detections det; /* max_objects is given */
} ist_tile_objects;

/* GRID_OBJECTS: the candidates kept as PACK takes objects: det, match I32 [1,1,most,2] (number of the point, IoU 1), stats
 * as of MASK_SUMS, score F32 [most,1,1,1]. */
typedef struct ist_grid_objects {
    const char *label;
    ist_tensor found, match, stats, score;
    ist_detections det; /* without boxes; max_objects is given */
    int capacity;
} ist_grid_objects;

#endif
