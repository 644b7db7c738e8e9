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
 * Heads: 8. Scores are to base 2: their scale has log2(e).
 *
 * Where ist_two_way_halves says so, columns and panels alike are rows of channels in half: T [P,1,8 N + 2,K], row t * 8
 * + h, channels where ist_two_way_place says; from row 8 N on, values 2 c and 2 c + 1 add up to the constant of column
 * c (of panels nothing is read there). */
#ifndef IST_OPS_TWO_WAY_H
#define IST_OPS_TWO_WAY_H

#include "ops/ops.h"

enum { IST_TWO_WAY_HEADS = 8, IST_TWO_WAY_TOKENS = 32 /* most that a prompt may have */ };
enum { IST_BLOCK_TOKENS = 8 /* whose columns are one block */ };

/* Whether columns, panels and parts have the form that matrix instructions take. */
bool ist_two_way_halves(const ist_plan *p, int tokens, int k);
/* Where a row of that form, of k channels, has one. */
int ist_two_way_place(const ist_plan *p, int k, int channel);

/* Whether the device's row knows ways, plain columns and what is relative (CPUs). */
bool ist_image_shares(const ist_plan *p);

/* Which prompts a launch is for: those with ways[n] == way, or all when `ways` [1,1,P,1] (I32) is empty. */
typedef struct ist_prompt_way {
    ist_tensor ways;
    int way;
} ist_prompt_way;

/* q = W t + b for [8 d] outputs; head h becomes scale * m_h^T q_h, its constant scale * mb_h . q_h. Host arrays. */
typedef struct ist_head_fold {
    int d, k;            /* channels per head, of the image; d a multiple of 4 up to 32 */
    const float *w, *b;  /* [8 d][c], [8 d]: of the token */
    const float *m, *mb; /* [8 d][k], [8 d] or NULL: of the other side */
    float scale;
    bool columns; /* else panels */
    bool plain;   /* columns of q itself, F32 [P,1,d + 1,C] with zeros in row d; only where ist_image_shares, or by a
                     layer */
    bool relative; /* what the last token has is taken off the others, whose columns it has none of: see
                      ist_image_update; only where ist_image_shares */
    ist_prompt_way only;
} ist_head_fold;
/* x, add [P,1,N,c]: tokens t = x + add; add may be empty or have n = 1. Where ist_two_way_halves says so, layers on
 * tokens fold instead (ops/token.h). */
typedef struct ist_fold_job {
    ist_tensor x, add;
    ist_head_fold fold;
} ist_fold_job;
ist_tensor ist_op_fold_heads(ist_plan *p, ist_tensor x, ist_tensor add, const ist_head_fold *fold, const char *label);

/* The image: item map[i] (I32) of x [n,1,L,K] for prompt i, or item i when map is empty; plus `shift` [K] when not
 * NULL; `position` [1,1,L,K] is added for scores only. */
typedef struct ist_image_side {
    ist_tensor x, map, position;
    const float *shift;
    ist_prompt_way only;
} ist_image_side;

/* Image to tokens: x becomes LN(x + softmax over tokens((x + position) keys) values + bias). keys are columns, values
 * panels. A softmax is the same for scores that all have the last token's taken off, and weights add up to one: where
 * keys and values are `relative`, that token costs nothing but an addend. */
typedef struct ist_image_update {
    ist_tensor keys, values;
    const float *bias, *gamma, *beta; /* [K] */
    float eps;
    bool relative; /* keys and values are: ist_head_fold */
} ist_image_update;

/* Tokens to image, after the update when there is one: per column of `queries` the softmax over the image and the
 * average of x under it, in parts that ist_op_image_merge joins. *updated gets the new image [P,1,L,K]. `tokens` are
 * those of the queries; where ist_image_shares an update may be by more, if both have one block of 64 columns. */
ist_tensor ist_op_image_step(ist_plan *p, const ist_image_side *image, const ist_image_update *update,
                             ist_tensor queries, int tokens, ist_tensor *updated, const char *label);
/* Joins the parts: y[t] of head h = w_h average + b, w [8 d][K], b [8 d] -> [P,1,N,8 d]. */
ist_tensor ist_op_image_merge(ist_plan *p, ist_tensor parts, int tokens, int k, int d, const float *w, const float *b,
                              ist_prompt_way only, const char *label);

/* ---- an image before its first update, on matrix instructions ----
 * It is the same for all of its prompts: its keys and values are made once, and tokens read them as they are
 * (ist_op_token_read). However many prompts there are, so that theirs have the same bits. */

/* Whether the device has a row for tokens of c channels and heads of d. */
bool ist_image_reads(const ist_plan *p, int tokens, int c, int d);
typedef struct ist_image_keys {
    const float *keys, *values, *value_bias; /* [8 d][K] twice, [8 d]; host arrays */
    const float *position;                   /* [L][K], host array: what is added for keys */
} ist_image_keys;
/* Keys of x + position, then values of x, of every image whatever the limit: [n,1,L,16 d]. Only image's x and shift. */
ist_tensor ist_op_image_keys(ist_plan *p, const ist_image_side *image, const ist_image_keys *w, const char *label);

#endif
