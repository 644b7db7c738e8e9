/* TinyViT's patch embedding: two convolutions of stride 2. */
#ifndef IST_OPS_PATCH_H
#define IST_OPS_PATCH_H

#include "ops/alike.h"
#include "ops/ops.h"

/* second(gelu(first(image))), both 3x3 with stride 2 and padding 1: [n,h,w,3] -> [n,h/4,w/4,out], rounded up. One
 * launch on matrix instructions and on CPUs with wide vectors when the channels are those of its tiles, else two
 * convolutions. `alike`: rows of the image, which are zeros; becomes what is known of the result. */
ist_tensor ist_op_patch_embed(ist_plan *p, ist_tensor image, ist_filter first, ist_filter second, ist_alike *alike,
                              const char *label);

#endif
