/* Layers on the few tokens of several prompts, each with the sum and the layer norm behind it in one launch: where
 * matrix instructions are, else they are operators of their own. */
#ifndef IST_OPS_TOKEN_H
#define IST_OPS_TOKEN_H

#include "ops/two_way.h"

/* Whether the device has them for so many tokens of a prompt. */
bool ist_token_layers(const ist_plan *p, int tokens);

/* Folds of a layer's result (ops/two_way.h) in the same launch: a job's x is not looked at, all that have an addend
 * have the same. Heads of 16 channels, K a multiple of 64. Or one that is plain, for ist_op_token_read. */
enum { IST_FOLDS = 3 };
typedef struct ist_token_folds {
    const ist_fold_job *jobs;
    int count;
    ist_tensor y[IST_FOLDS]; /* set by the layer */
} ist_token_folds;

/* LN(add + w hidden + b). Host arrays. */
typedef struct ist_token_layer {
    int in, hidden, out;  /* in: channels of the first layer's x, 0 without one; multiples of 32, of 128 with a first
                           * layer, of 64 */
    const float *w1, *b1; /* first layer [hidden][in], [hidden]: hidden = relu(w1 x + b1) */
    const float *w, *b;   /* [out][hidden], [out] */
    const float *gamma, *beta;
    float eps;
    ist_tensor add;         /* [P,1,N,out] or empty */
    ist_token_folds *folds; /* or NULL; with a first layer or attention */
} ist_token_layer;
/* With a first layer, of x [P,1,N,in]; channels start at multiples of eight. Result [P,1,N,out]. */
ist_tensor ist_op_token_layer(ist_plan *p, ist_tensor x, const ist_token_layer *layer, const char *label);

/* Keys and values of an image (ist_op_image_keys) that are made beside the tokens, in the same launch where that can
 * be. */
typedef struct ist_token_image {
    const ist_image_side *side;
    const ist_image_keys *weights;
    ist_tensor y; /* set */
} ist_token_image;

/* w x + b + add of every token; host arrays. */
typedef struct ist_token_projection {
    int in, outs;           /* multiples of 32 and 64 */
    const float *w, *b;     /* [outs][in], [outs] */
    ist_tensor add;         /* [P,1,N,outs] or empty */
    ist_token_image *image; /* or NULL */
} ist_token_projection;
/* hidden is softmax(q k^T / sqrt(32)) v of a prompt's tokens, in heads of 32 channels; q, k and v are the first 3
 * hidden channels of x's projections *all [P,1,N,outs]. */
ist_tensor ist_op_token_attention(ist_plan *p, ist_tensor x, const ist_token_projection *projection,
                                  const ist_token_layer *layer, ist_tensor *all, const char *label);

/* A reading of ist_op_image_keys, in heads of 16 channels. */
typedef struct ist_token_reading {
    ist_tensor image, map; /* [n,1,L,256]; item map[i] (I32) for prompt i, item i when empty */
    ist_tensor queries;    /* a plain fold of x, with the scale of scores to base 2 */
} ist_token_reading;
/* hidden is what x has read, 128 channels; the layer's `add` is x. */
ist_tensor ist_op_token_read(ist_plan *p, ist_tensor x, const ist_token_reading *reading, const ist_token_layer *layer,
                             const char *label);

/* The last step of a reading: head h of a token is w_h average + b. */
typedef struct ist_token_merge {
    int k, d;           /* channels of the image, of a head */
    const float *w, *b; /* [8 d][k], [8 d]; host arrays */
} ist_token_merge;
/* hidden is what `tokens` tokens of a prompt have read in ist_op_image_step's parts, where ist_two_way_halves holds. */
ist_tensor ist_op_token_merge(ist_plan *p, ist_tensor parts, int tokens, const ist_token_merge *merge,
                              const ist_token_layer *layer, const char *label);
/* hidden itself, [P,1,N,8 d]: ist_op_image_merge's row. */
ist_tensor ist_token_merge_alone(ist_plan *p, ist_tensor parts, int tokens, const ist_token_merge *merge,
                                 const char *label);

/* Three layers with relu between: [c][c] twice, then [outputs][c]. */
typedef struct ist_perceptron {
    const float *w[3], *b[3];
} ist_perceptron;
/* Perceptron 0 of token 0 of x [P,1,N,c] has up to 32 results, F32 [P,1,1,results]; the `count` - 1 others, of tokens
 * `first` and those behind it, have 32 each: *vectors [P,1,count - 1,32]. c is a multiple of 64 up to 256. */
ist_tensor ist_op_perceptrons(ist_plan *p, ist_tensor x, const ist_perceptron *all, int count, int results, int first,
                              ist_tensor *vectors, const char *label);

#endif
