/* Many prompts on one image (CPUs): its projections are made once, for both updates and all three readings of a decoder
 * of two layers.
 *
 * Until its first update the image is the same for all of its prompts. Behind an update it is the sum of what it was
 * and of what the prompt's tokens gave it, but for one factor per row and norm; so is a projection of it, and the
 * factors take but short products (cl/cpu/two_way_shared has the formulas). Prompts choose on the device, by how many
 * there are on their own image: what else is in the batch changes nothing. */
#ifndef IST_VARIANTS_CPU_SHARED_PROMPTS_H
#define IST_VARIANTS_CPU_SHARED_PROMPTS_H

#include "variants/absorbed.h"

enum { IST_SHARED_UPDATES = 2, IST_SHARED_READINGS = 3 };
enum { IST_TRACE_FLOATS = 64, IST_TRACE_TOKENS = IST_BLOCK_TOKENS };

/* Host arrays; projections [8 d][K], biases [8 d]. */
typedef struct ist_shared_weights {
    int d;
    struct {
        const float *keys, *values, *value_bias;
    } reading[IST_SHARED_READINGS]; /* reading i follows i updates */
    struct {
        const float *queries, *query_bias, *out, *out_bias, *gamma, *beta; /* out [K][8 d]; the others [K] */
    } update[IST_SHARED_UPDATES];
    const float *position; /* [L][K] */
    const float *map;      /* [K][outs]: one more linear map of the image before its updates */
    int outs;
    float eps;
} ist_shared_weights;

typedef struct ist_shared_image {
    ist_tensor of;    /* I32 [1,1,P,1]: a prompt's image */
    ist_tensor ways;  /* I32 [1,1,P,1]: 1 for prompts that share, else 0 */
    ist_tensor map;   /* F32 [n,1,L,outs] */
    ist_tensor trace; /* F32 [P,2,L,64]: per update a row's softmax weights of up to 56 values and, last, the factor of
                         its norm */
    ist_tensor rows, lengths, position, forms[IST_SHARED_UPDATES], jobs[IST_SHARED_UPDATES];
    ist_tensor bias[IST_SHARED_READINGS];
    int k, d, length, prompts, tokens;
    float eps;
} ist_shared_image;

/* Prompts of `tokens` tokens, at most IST_TRACE_TOKENS, share their image where more than `most` have it. Only image's map and x, with one item
 * per image, and shift. */
ist_shared_image ist_share_image(ist_plan *p, const ist_image_side *image, const ist_shared_weights *w, int prompts,
                                    int tokens, int most, const char *label);

/* Plain columns of ist_fold_heads. */
typedef struct ist_shared_tokens {
    ist_tensor keys;                       /* relative, of the last update */
    ist_tensor values[IST_SHARED_UPDATES]; /* of the updates so far, not relative, scale 1 */
    ist_tensor queries;                    /* of the reading */
} ist_shared_tokens;
/* For prompts that share, update number `updates` (none: 0) and what ist_image_merge makes of the reading behind it,
 * into y [P,1,N,8 d]. In order: the second update needs the first one's trace. */
void ist_shared_read(ist_plan *p, const ist_shared_image *image, int updates, const ist_shared_tokens *tokens,
                        ist_tensor y, const char *label);

#endif
