/* Layers on the few tokens of several prompts, each with the sum and the layer norm behind it in one launch: where
 * matrix instructions are, else they are operators of their own. */
#ifndef IST_OPS_TOKEN_H
#define IST_OPS_TOKEN_H

#include "ops/ops.h"

/* Whether the device has them for so many tokens of a prompt. */
bool ist_token_layers(const ist_plan *p, int tokens);

/* LN(add + w hidden + b). Host arrays. */
typedef struct ist_token_layer {
    int in, hidden, out;  /* in: channels of the first layer's x, 0 without one; multiples of 32, of 128 with a first
                           * layer, of 64 */
    const float *w1, *b1; /* first layer [hidden][in], [hidden]: hidden = relu(w1 x + b1) */
    const float *w, *b;   /* [out][hidden], [out] */
    const float *gamma, *beta;
    float eps;
    ist_tensor add; /* [P,1,N,out] or empty */
} ist_token_layer;
/* hidden of x [P,1,N,c], or x itself; channels start at multiples of eight. Result [P,1,N,out]. */
ist_tensor ist_op_token_layer(ist_plan *p, ist_tensor x, const ist_token_layer *layer, const char *label);
/* hidden is softmax(q k^T / sqrt(32)) v of the prompt's tokens, in heads of 32 channels. */
ist_tensor ist_op_token_attention(ist_plan *p, ist_tensor q, ist_tensor k, ist_tensor v, const ist_token_layer *layer,
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
