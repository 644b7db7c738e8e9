/* The two-way transformer on matrix instructions: layers on the few tokens of several prompts, each with the sum and the
 * layer norm behind it in one launch, and the steps of the image.
 *
 * Columns and panels (absorbed.h) alike are rows of channels in half here: T [P,1,8 N + 2,K], row t * 8 + h, channels
 * where ist_two_way_channel says; from row 8 N on, values 2 c and 2 c + 1 add up to the constant of column c (of panels
 * nothing is read there). */
#ifndef IST_VARIANTS_NVIDIA_TOKENS_H
#define IST_VARIANTS_NVIDIA_TOKENS_H

#include "variants/absorbed.h"
#include "variants/nvidia/two_way_args.h"

/* Whether prompts of so many tokens and images of k channels have that form. */
static inline bool ist_two_way_matrix(int tokens, int k) {
    return tokens * IST_TWO_WAY_HEADS <= IST_BLOCK_COLUMNS && k % 64 == 0 && k <= IST_IMAGE_CHANNELS;
}
/* Whether image steps are of warpgroups, on a device that has them. */
static inline bool ist_two_way_groups(bool wgmma, int k) {
    return wgmma && (k == 64 || k == 128 || k == 256);
}
/* Where a row of that form has a channel. */
int ist_two_way_channel(bool groups, int k, int channel);
/* Floats of a part of a step. */
int ist_two_way_part_floats(int tokens, int k);

/* ---- image_step.c ---- */

/* ist_image_step in this form. */
ist_tensor ist_image_step_mma(ist_plan *p, bool groups, const ist_image_side *image, const ist_image_update *update,
                              ist_tensor queries, int tokens, ist_tensor *updated, const char *label);

/* ---- image_keys.c ----
 * An image before its first update is the same for all of its prompts: its keys and values are made once, and tokens
 * read them as they are (ist_token_read). However many prompts there are, so that theirs have the same bits. */

typedef struct ist_image_keys {
    const float *keys, *values, *value_bias; /* [8 d][K] twice, [8 d]; host arrays */
    const float *position;                   /* [L][K], host array: what is added for keys */
} ist_image_keys;
/* Whether there are kernels for tokens of c channels and heads of d. */
bool ist_image_reads(int tokens, int c, int d);
/* Keys of x + position, then values of x, of every image whatever the limit: [n,1,L,16 d]. Only image's x and shift. */
ist_tensor ist_image_make_keys(ist_plan *p, const ist_image_side *image, const ist_image_keys *w, const char *label);
/* What that launch has, for a launch of something else to make it along with its own. */
typedef struct ist_image_keys_step {
    ist_tensor x, beside, y;
    float *weights; /* `count` of them, owned by the caller, as halves for the kernel */
    size_t count;
} ist_image_keys_step;
/* The rows of x [n,1,L,K] as kernels take them. */
ist_image_rows_args ist_image_rows_of(ist_tensor x);
bool ist_image_keys_begin(ist_plan *p, const ist_image_side *image, const ist_image_keys *w, const char *label,
                          ist_image_keys_step *step);

/* ---- tokens.c ---- */

/* Folds of a layer's result in the same launch: a job's x is not looked at, all that have an addend have the same. Heads
 * of 16 channels, K a multiple of 64. Or one that is plain, for ist_token_read. */
enum { IST_FOLDS = 3 };
typedef struct ist_token_folds {
    const ist_fold_job *jobs;
    int count;
    bool groups;            /* ist_two_way_groups */
    ist_tensor y[IST_FOLDS]; /* set by the layer */
} ist_token_folds;

/* LN(add + w hidden + b). Host arrays. */
typedef struct ist_token_job {
    int in, hidden, out;  /* in: channels of the first layer's x, 0 without one; multiples of 32, of 128 with a first
                           * layer, of 64 */
    const float *w1, *b1; /* first layer [hidden][in], [hidden]: hidden = relu(w1 x + b1) */
    const float *w, *b;   /* [out][hidden], [out] */
    const float *gamma, *beta;
    float eps;
    ist_tensor add;         /* [P,1,N,out] or empty */
    ist_token_folds *folds; /* or NULL; with a first layer or attention */
} ist_token_job;
/* With a first layer, of x [P,1,N,in]; channels start at multiples of eight. Result [P,1,N,out]. */
ist_tensor ist_token_layer(ist_plan *p, ist_tensor x, const ist_token_job *layer, const char *label);

/* Keys and values of an image that are made beside the tokens, in the same launch where that can be. */
typedef struct ist_token_image {
    const ist_image_side *side;
    const ist_image_keys *weights;
    bool joins;   /* groups of two kinds are a branch with barriers, for which emulation on CPUs has no compiler */
    ist_tensor y; /* set */
} ist_token_image;

/* w x + b + add of every token; host arrays. */
typedef struct ist_token_projection {
    int in, outs;           /* multiples of 32 and 64 */
    const float *w, *b;     /* [outs][in], [outs] */
    ist_tensor add;         /* [P,1,N,outs] or empty */
    ist_token_image *image; /* or NULL */
    ist_tensor counts;      /* I32 [1,1,P,1]: how many of the tokens a prompt has, or empty: all */
} ist_token_projection;
/* hidden is softmax(q k^T / sqrt(32)) v of a prompt's tokens, in heads of 32 channels; q, k and v are the first 3
 * hidden channels of x's projections *all [P,1,N,outs]. */
ist_tensor ist_token_attention(ist_plan *p, ist_tensor x, const ist_token_projection *projection,
                               const ist_token_job *layer, ist_tensor *all, const char *label);

/* A reading of ist_image_make_keys, in heads of 16 channels. */
typedef struct ist_token_reading {
    ist_tensor image, map; /* [n,1,L,256]; item map[i] (I32) for prompt i, item i when empty */
    ist_tensor queries;    /* a plain fold of x, with the scale of scores to base 2 */
} ist_token_reading;
/* hidden is what x has read, 128 channels; the layer's `add` is x. */
ist_tensor ist_token_read(ist_plan *p, ist_tensor x, const ist_token_reading *reading, const ist_token_job *layer,
                          const char *label);

/* The last step of a reading: head h of a token is w_h average + b. */
typedef struct ist_token_merging {
    int k, d;           /* channels of the image, of a head */
    const float *w, *b; /* [8 d][k], [8 d]; host arrays */
} ist_token_merging;
/* hidden is what `tokens` tokens of a prompt have read in ist_image_step_mma's parts. */
ist_tensor ist_token_merge(ist_plan *p, ist_tensor parts, int tokens, const ist_token_merging *merge,
                           const ist_token_job *layer, const char *label);

/* ---- weights ---- */

/* Matrix [out][in]: rows [first, first + rows), inputs [from, from + inputs), as fragments by blocks of eight rows. */
float *ist_matrix_part(const float *w, int in, int first, int rows, int from, int inputs, float *to);

#endif
