/* SAM's mask upscaling (output_upscaling of its modeling/mask_decoder.py) in one step. */
#ifndef IST_OPS_UPSCALE_H
#define IST_OPS_UPSCALE_H

#include "ops/ops.h"

enum { IST_UPSCALE_MIDDLE = 64, IST_UPSCALE_OUT = 32 };

/* Transposed convolutions 2x2 with stride 2 (w [in][out][2][2]) to 64 and to 32 channels, a layer norm between. Host
 * arrays. */
typedef struct ist_upscale_weights {
    const float *w1, *b1, *gamma, *beta, *w2, *b2;
    float eps;
} ist_upscale_weights;
/* Prompts of way 1 (ops/two_way_shared.h) of images whose first convolution was made once, before the two updates that
 * lead to x: x = (z1 + s2 values2 + bias2)' f2 gamma2 + beta2, where z1 = (z + s1 values1 + bias1)' f1 gamma1 + beta1
 * and v' is v without its mean. With Q = (gamma2 deconv1)', P = (gamma1 Q)', over inputs, outputs (phase 2a + b,
 * channel), where deconv1 and its bias have no mean over the channels, which LN would take:
 */
typedef struct ist_upscale_sharing {
    ist_tensor map, ways;
    ist_tensor image;       /* z P: ist_shared_image.map */
    ist_tensor trace;       /* s and f: ist_shared_image.trace */
    ist_tensor values[2];   /* values1 P, values2 Q: panels of ist_op_fold_heads, relative to the last token */
    const float *constants; /* [4][3][64]: bias1 P, (beta1 + bias2) Q, beta2 deconv1 + its bias */
} ist_upscale_sharing;
/* Where masks are cut out of letterboxed pictures: low-resolution logits that ist_op_masks does not read stay
 * undefined, in the rows for CPUs. content I32 [1,1,images,2]: width and height of the picture of which a token is
 * IST_TOKEN_PIXELS; image_of I32 [1,1,P,1]. */
enum { IST_TOKEN_PIXELS = 16 };
typedef struct ist_upscale_seen {
    ist_tensor content, image_of;
} ist_upscale_seen;
/* gelu(deconv2(gelu(LN(deconv1(x))))) . vectors[m]: x [P,h,w,K], vectors [P,1,masks,32] -> F32 [P * masks,4h,4w,1],
 * mask m of prompt i is item i * masks + m. K is a multiple of 16. The limit counts prompts. `sharing`
 * may be NULL; only where ist_image_shares. Without seen.content all logits are made. */
ist_tensor ist_op_upscale(ist_plan *p, ist_tensor x, const ist_upscale_weights *w, ist_tensor vectors,
                          const ist_upscale_sharing *sharing, ist_upscale_seen seen, const char *label);

#endif
