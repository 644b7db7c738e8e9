/* Layers on the few tokens of several prompts, each with the sum and the layer norm behind it in one launch: where
 * matrix instructions are, else they are operators of their own. */
#ifndef IST_OPS_TOKEN_H
#define IST_OPS_TOKEN_H

#include "ops/ops.h"

/* Whether the device has them for so many tokens of a prompt. */
bool ist_token_layers(const ist_plan *p, int tokens);

/* LN(add + w hidden + b). Host arrays. */
typedef struct ist_token_layer {
    int in, hidden, out; /* in: channels of the first layer's x, 0 without one; multiples of 32, of 128 with a first
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

#endif
