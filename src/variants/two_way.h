/* SAM's two-way transformer (Kirillov et al., ICCV 2023; segment-anything's modeling/transformer.py) as a span: what its
 * nodes are, and its variant with absorbed projections. */
#ifndef IST_VARIANTS_TWO_WAY_H
#define IST_VARIANTS_TWO_WAY_H

#include "variants/absorbed.h"
#include "variants/span.h"

enum { IST_TWO_WAY_LAYERS = 2 };

/* The nodes of a span, by number: in each layer attention among the tokens, of the tokens to the image, an MLP on the
 * tokens, and attention of the image to the tokens; last, of the tokens to the image once more. */
typedef struct ist_two_way {
    ist_spanned span;
    int self[IST_TWO_WAY_LAYERS], read[IST_TWO_WAY_LAYERS], mlp[IST_TWO_WAY_LAYERS], update[IST_TWO_WAY_LAYERS], last;
    int shift; /* a vector that is added to every pixel of the image, -1: none, but `dense` */
    int code;  /* the position code of the grid */
    ist_tensor tokens, embedding, image_of, dense; /* the graph's; dense is added to each prompt's image, or empty */
    ist_tensor counts;               /* the graph's: of how many tokens each prompt is, or empty: of all */
    int prompts, length, dim, inner; /* tokens of the image, channels, those of attention to it */
} ist_two_way;
/* False where the span's nodes are others, or more is read of them than the last tokens, the image and its code. */
bool ist_two_way_of(const ist_spanned *span, ist_two_way *t);
static inline const ist_attention_layer *ist_two_way_attention(const ist_two_way *t, int node) {
    return t->span.graph->nodes[node].of;
}
/* How many of the last tokens are read. */
int ist_two_way_wanted(const ist_two_way *t);

/* The image that prompts see before its first update, its shift (in `shift`, whose numbers are `loaded`) and code. */
void ist_two_way_start(ist_plan *p, const ist_two_way *t, ist_image_side *image, ist_loaded *loaded);
/* The code's floats [L][dim], the caller's to free. */
float *ist_two_way_position(ist_plan *p, const ist_two_way *t);

/* [out][in] as [in][out], the caller's to free; NULL when the plan has failed. */
float *ist_transposed(ist_plan *p, const ist_filter *f);

/* A job that projects tokens x + add by `own` and sees them through the other side's projection (NULL: not). */
ist_fold_job ist_fold_of(ist_tensor x, ist_tensor add, const ist_filter *own, const float *other, const float *constant,
                         int k, bool columns, ist_prompt_way only);

/* ---- with absorbed projections ----
 * The image is never projected to keys, values and queries. Its update at the end of a layer and the next reading by
 * the tokens are one step, since the tokens of the next layer do not wait for the image. P prompts share the embedding
 * of their image until the first update. */

/* For prompts that share more of their image: called once before the first layer; where tokens are folded for a reading,
 * with the loaded nodes of reading and update (NULL: none is pending) and the transposed projection of its output; and
 * behind a reading, whose result is y and which follows `updates` updates. */
typedef struct ist_two_way_sharing {
    ist_prompt_way apart; /* the prompts that do not share; set by `begin` */
    bool shares;
    void (*begin)(ist_plan *p, struct ist_two_way_sharing *s, const ist_two_way *t, const ist_image_side *image);
    void (*fold)(ist_plan *p, struct ist_two_way_sharing *s, const ist_fold_job *query, const ist_fold_job *keys,
                 const ist_fold_job *values, int layer, const char *label);
    void (*read)(ist_plan *p, struct ist_two_way_sharing *s, int updates, ist_tensor y, const char *label);
} ist_two_way_sharing;

/* Records the span; `sharing` may be NULL. */
void ist_two_way_absorbed(ist_plan *p, const ist_absorbed_kernels *kernels, const ist_two_way *t,
                          ist_two_way_sharing *sharing);

#endif
