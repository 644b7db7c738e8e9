/* Upscaling where prompts share the first convolution of their image. */
#ifndef IST_VARIANTS_CPU_UPSCALE_H
#define IST_VARIANTS_CPU_UPSCALE_H

#include "variants/cpu/shared_prompts.h"

/* Prompts of way 1 (shared_prompts.h) of images whose first convolution was made once, before the two updates that lead
 * to x: x = (z1 + s2 values2 + bias2)' f2 gamma2 + beta2, where z1 = (z + s1 values1 + bias1)' f1 gamma1 + beta1 and v'
 * is v without its mean. With Q = (gamma2 deconv1)', P = (gamma1 Q)', over inputs, outputs (phase 2a + b, channel), where
 * deconv1 and its bias have no mean over the channels, which LN would take: */
typedef struct ist_upscale_sharing {
    ist_tensor map, ways;
    ist_tensor image;       /* z P: ist_shared_image.map */
    ist_tensor trace;       /* s and f: ist_shared_image.trace */
    ist_tensor values[2];   /* values1 P, values2 Q: panels of ist_fold_heads, relative to the last token */
    const float *constants; /* [4][3][64]: bias1 P, (beta1 + bias2) Q, beta2 deconv1 + its bias */
} ist_upscale_sharing;

#endif
