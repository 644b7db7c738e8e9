/* Attention between a few tokens and an image, both ways, with the image's projections moved to the tokens.
 *
 * SAM's mask decoder projects 4096 image tokens to keys, values and queries for every prompt. Since scores are linear
 * in the image token, s = (W_q t + b_q) . (W_k (x + p) + b_k) = (W_k^T (W_q t + b_q)) . (x + p) + const, the
 * projection can be applied to the token instead, once per head; likewise an average of projected values is the
 * projection of an average. The same step is known from language models (DeepSeek-V2's multi-head latent attention,
 * arXiv 2405.04434). Only the rounding differs.
 *
 * "Columns" are such folded tokens: F32 [P,1,K + 1,C] with C = 64 ceil(N / 8), column t * 8 + h is token t seen by
 * head h, row K the constant of the score. "Panels" are F32 [P,K / 64,8 N,64]: 64 channels of every (token, head).
 * Heads: 8. Scores are to base 2: their scale has log2(e). */
#ifndef IST_OPS_TWO_WAY_H
#define IST_OPS_TWO_WAY_H

#include "ops/ops.h"

enum { IST_TWO_WAY_HEADS = 8, IST_TWO_WAY_TOKENS = 32 /* most that a prompt may have */ };

/* q = W t + b for [8 d] outputs; head h becomes scale * m_h^T q_h, its constant scale * mb_h . q_h. Host arrays. */
typedef struct ist_head_fold {
    int d, k;            /* channels per head, of the image; d a multiple of 4 up to 32 */
    const float *w, *b;  /* [8 d][c], [8 d]: of the token */
    const float *m, *mb; /* [8 d][k], [8 d] or NULL: of the other side */
    float scale;
    bool columns; /* else panels */
} ist_head_fold;
/* x, add [P,1,N,c]: tokens t = x + add; add may be empty or have n = 1. */
ist_tensor ist_op_fold_heads(ist_plan *p, ist_tensor x, ist_tensor add, const ist_head_fold *fold, const char *label);

/* The image: item map[i] (I32) of x [n,1,L,K] for prompt i, or item i when map is empty; plus `shift` [K] when not
 * NULL; `position` [1,1,L,K] is added for scores only. */
typedef struct ist_image_side {
    ist_tensor x, map, position;
    const float *shift;
} ist_image_side;

/* Image to tokens: x becomes LN(x + softmax over tokens((x + position) keys) values + bias). keys are columns, values
 * panels. */
typedef struct ist_image_update {
    ist_tensor keys, values;
    const float *bias, *gamma, *beta; /* [K] */
    float eps;
} ist_image_update;

/* Tokens to image, after the update when there is one: per column of `queries` the softmax over the image and the
 * average of x under it, in parts that ist_op_image_merge joins. *updated gets the new image [P,1,L,K]. */
ist_tensor ist_op_image_step(ist_plan *p, const ist_image_side *image, const ist_image_update *update,
                             ist_tensor queries, int tokens, ist_tensor *updated, const char *label);
/* Joins the parts: y[t] of head h = w_h average + b, w [8 d][K], b [8 d] -> [P,1,N,8 d]. */
ist_tensor ist_op_image_merge(ist_plan *p, ist_tensor parts, int tokens, int k, int d, const float *w, const float *b,
                              const char *label);

#endif
