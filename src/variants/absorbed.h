/* Attention between a few tokens and an image, both ways, with absorbed projections: those of the image are applied to
 * the tokens.
 *
 * SAM's mask decoder projects 4096 image tokens to keys, values and queries for every prompt. Since scores are linear
 * in the image token, s = (W_q t + b_q) . (W_k (x + p) + b_k) = (W_k^T (W_q t + b_q)) . (x + p) + const, the
 * projection can be applied to the token instead, once per head; likewise an average of projected values is the
 * projection of an average. The same step is known from language models (DeepSeek-V2's multi-head latent attention,
 * arXiv 2405.04434). Only the rounding differs.
 *
 * "Columns" are tokens with such a projection: F32 [P,1,K + 1,C] with C = 64 ceil(N / 8), column t * 8 + h is token t
 * seen by head h, row K the constant of the score. "Panels" are F32 [P,K / 64,8 N,64]: 64 channels of every (token,
 * head). Heads: 8. Scores are to base 2: their scale has log2(e).
 *
 * What machines have for it is a table of kernels: portable/absorbed.c, cpu/absorbed.c. */
#ifndef IST_VARIANTS_ABSORBED_H
#define IST_VARIANTS_ABSORBED_H

#include "core/plan.h"
#include "graph/nodes.h"
#include "variants/two_way_args.h"

enum { IST_TWO_WAY_HEADS = 8, IST_TWO_WAY_TOKENS = 32 /* most that a prompt may have */ };
enum { IST_BLOCK_TOKENS = 8 /* whose columns are one block */, IST_BLOCK_COLUMNS = 64 };
enum { IST_HEAD_CHANNELS = 32, IST_IMAGE_CHANNELS = 256 /* at most */ };

typedef struct ist_absorbed_kernels ist_absorbed_kernels;

/* Which prompts a launch is for: those with ways[n] == way, or all when `ways` [1,1,P,1] (I32) is empty. */
typedef struct ist_prompt_way {
    ist_tensor ways;
    int way;
} ist_prompt_way;
/* As kernels have it. */
static inline int ist_wanted_way(ist_prompt_way only) {
    return ist_has(only.ways) ? only.way + 1 : 0;
}

/* q = W t + b for [8 d] outputs; head h becomes scale * m_h^T q_h, its constant scale * mb_h . q_h. Host arrays. */
typedef struct ist_head_fold {
    int d, k;            /* channels per head, of the image; d a multiple of 4 up to 32 */
    const float *w, *b;  /* [8 d][c], [8 d]: of the token */
    const float *m, *mb; /* [8 d][k], [8 d] or NULL: of the other side */
    float scale;
    bool columns;  /* else panels */
    bool plain;    /* columns of q itself, F32 [P,1,d + 1,C] with zeros in row d; only where kernels share */
    bool relative; /* what the last token has is taken off the others, whose columns it has none of: see
                      ist_image_update; only where kernels share */
    ist_prompt_way only;
} ist_head_fold;
/* x, add [P,1,N,c]: tokens t = x + add; add may be empty or have n = 1. */
typedef struct ist_fold_job {
    ist_tensor x, add;
    ist_head_fold fold;
} ist_fold_job;
ist_tensor ist_fold_heads(ist_plan *p, const ist_absorbed_kernels *kernels, const ist_fold_job *job, const char *label);
/* Tokens of prompt n from counts[n] (I32 [1,1,P,1]) on score so low in its columns that no pixel sees them. Not for
 * columns that are relative. A machine's kernel `op` knows how its columns lie: `entries` of a prompt, as many for each
 * token, in multiples of IST_TWO_WAY_HEADS. */
void ist_hide_tokens(ist_plan *p, const char *op, ist_tensor columns, int entries, ist_tensor counts,
                     const char *label);

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
 * average of x under it, in parts that ist_image_merge joins. *updated gets the new image [P,1,L,K]. `tokens` are those
 * of the queries; where kernels share, an update may be by more, if both have one block of 64 columns. */
ist_tensor ist_image_step(ist_plan *p, const ist_absorbed_kernels *kernels, const ist_image_side *image,
                          const ist_image_update *update, ist_tensor queries, int tokens, ist_tensor *updated,
                          const char *label);
/* Joins the parts: y[t] of head h = w_h average + b, w [8 d][K], b [8 d] -> [P,1,N,8 d]. */
typedef struct ist_merge_job {
    ist_tensor parts;
    int tokens, k, d;
    const float *w, *b;
    ist_prompt_way only;
} ist_merge_job;
ist_tensor ist_image_merge(ist_plan *p, const ist_absorbed_kernels *kernels, const ist_merge_job *job,
                           const char *label);

/* ---- for kernels ---- */

/* Everything the launches of a step need; arguments are checked. How the image is cut into groups depends on the device
 * alone, never on the number of prompts: a frame's results have the same bits whatever stands beside it. */
typedef struct ist_image_step_job {
    const ist_image_side *side;
    const ist_image_update *update; /* or NULL */
    ist_tensor queries, updated, parts, shift, norm, limit;
    int n, k, length, tokens, columns, groups, rows;
    const char *label;
} ist_image_step_job;

struct ist_absorbed_kernels {
    bool shares;                                                   /* know ways, plain columns and what is relative */
    int items;                                                     /* of a group, where it has several */
    int (*group_rows)(const ist_plan *p, int length, int prompts); /* rows of the image that a group takes */
    void (*fold)(ist_plan *p, const ist_absorbed_kernels *k, const ist_fold_job *job, ist_fold_form form, ist_tensor y,
                 const char *label);
    void (*step)(ist_plan *p, const ist_absorbed_kernels *k, ist_image_step_job *job);
    void (*merge)(ist_plan *p, const ist_absorbed_kernels *k, const ist_merge_job *job, ist_tensor y,
                  const char *label);
};

static inline int ist_blocks_of(int tokens) {
    return (tokens + IST_BLOCK_TOKENS - 1) / IST_BLOCK_TOKENS;
}
/* What kernels take of a job's tokens, and of the image. */
ist_fold_args ist_fold_args_of(const ist_fold_job *job, ist_fold_form form);
ist_image_side_args ist_image_args_of(const ist_image_side *image, int length);
/* A matrix [8 d][rows] as dst[head][row][d16], d16 the next multiple of 16; zeros when src is NULL. */
ist_tensor ist_head_const(ist_plan *p, const float *src, int rows, int d, const char *label);

#endif
