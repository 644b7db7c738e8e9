/* The mask decoder's way from image tokens to logits, and how prompts of one image share its first convolution. */
#ifndef IST_MODELS_SAM_UPSCALE_H
#define IST_MODELS_SAM_UPSCALE_H

#include "models/bridge.h"
#include "ops/two_way_shared.h"
#include "ops/upscale.h"

enum { IST_SAM_UPSCALE_OUTS = 4 * IST_UPSCALE_MIDDLE };

/* Weights, owned; which logits are asked for. Where prompts share: the convolution behind both norms of the image and
 * behind the second, [256][IST_SAM_UPSCALE_OUTS] each, and what op/upscale takes. */
typedef struct ist_sam_upscale {
    ist_net net;
    float *w1, *b1, *w2, *b2;
    ist_norm_weights norm;
    bool shares;
    float *behind[2], *constants;
    ist_upscale_sharing sharing;
    ist_upscale_seen seen;
} ist_sam_upscale;

/* Begins as zeros; loads the weights. */
void ist_sam_upscale_begin(const ist_net *net, ist_sam_upscale *u);
/* The convolution as the image before its updates sees it, [256][IST_SAM_UPSCALE_OUTS], of `u`; not to be
 * read when the plan has failed. */
const float *ist_sam_upscale_map(ist_sam_upscale *u);
/* Prompts share the image, whose map is that one. */
void ist_sam_upscale_share(ist_sam_upscale *u, const ist_shared_image *image);
/* Values v t + b of the tokens of update `layer` as the convolution sees them: out [128][256] is the transposed
 * projection of its output. */
void ist_sam_upscale_values(ist_sam_upscale *u, int layer, ist_tensor tokens, const ist_conv_weights *v,
                            const float *out);
/* image [P,1,4096,256], vectors [P,1,masks,32] -> logits [P * masks,256,256,1]. */
ist_tensor ist_sam_upscale_masks(const ist_sam_upscale *u, ist_tensor image, ist_tensor vectors);
void ist_sam_upscale_free(ist_sam_upscale *u);

#endif
