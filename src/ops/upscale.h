/* SAM's mask upscaling in one step (mobilesam.md 4). */
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
/* gelu(deconv2(gelu(LN(deconv1(x))))) . vectors[m]: x [P,h,w,K], vectors [P,1,masks,32] -> F32 [P * masks,4h,4w,1],
 * mask m of prompt i is item i * masks + m. K is a multiple of 16. The limit counts prompts. */
ist_tensor ist_op_upscale(ist_plan *p, ist_tensor x, const ist_upscale_weights *w, ist_tensor vectors,
                          const char *label);

#endif
