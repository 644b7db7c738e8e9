/* What machines have in common for SAM's mask upscaling (output_upscaling of its modeling/mask_decoder.py). */
#ifndef IST_VARIANTS_UPSCALE_H
#define IST_VARIANTS_UPSCALE_H

#include "core/plan.h"
#include "graph/nodes.h"
#include "variants/upscale_args.h"

enum { IST_TOKEN_PIXELS = 16 /* of the network's input, in a token */ };

/* The node with a first convolution whose weights and bias have no mean over the channels: the norm behind it takes
 * that off anyway, and without it sums of squares are of deviations. *room is the caller's to free. False, and the plan
 * failed, without memory. */
bool ist_upscale_centred(ist_plan *p, const ist_upscale *q, ist_upscale *centred, float **room);

/* Constants of a centred node: w1 [phase][in][64], w2 [line][64][column][32], norm {b1, gamma, beta}, b2. False, and
 * the plan failed, without memory. */
typedef struct ist_upscale_packed {
    ist_tensor w1, w2, norm, b2;
} ist_upscale_packed;
bool ist_upscale_pack(ist_plan *p, const ist_upscale *q, ist_upscale_packed *out);
/* norm and b2 alone. */
void ist_upscale_pack_norm(ist_plan *p, const ist_upscale *q, ist_upscale_packed *out);
/* 64 values, `step` apart, less what rounding has left of their mean. */
void ist_upscale_row(const float *src, int step, float *dst);

/* Whether content and image_of are as the node says, or empty: for variants that read them. */
bool ist_upscale_content_fits(const ist_upscale *q);

/* What kernels take of the node. */
ist_upscale_args ist_upscale_args_of(const ist_upscale *q);
/* `depth`: of the first product. */
double ist_upscale_flops(const ist_upscale *q, double depth);

#endif
