/* HGNetv2's stem as one launch on CPUs and on matrix instructions: where it runs it replaces six launches and their
 * maps (cl/op/stem.cl, cl/op/stem_mma.cl). */
#ifndef IST_OPS_STEM_H
#define IST_OPS_STEM_H

#include "ops/ops.h"

/* relu(conv), then v * lab_scale + lab_bias (1 and 0 without LAB). */
typedef struct ist_stem_layer {
    ist_filter f;
    float lab_scale, lab_bias;
} ist_stem_layer;

/* Whether the plan's device and the shapes suit the fused kernel: stem1 3 -> m, stem2a m -> m/2, stem2b m/2 -> m, stem3
 * 2m -> m, stem4 m -> a multiple of 16. On CPUs m is 16, 24 or 32, the image at least 64 x 64, its height and width
 * multiples of 32; on matrix instructions m is a multiple of 8 and the image's sides multiples of 4. */
bool ist_stem_fits(const ist_plan *p, ist_tensor image, const ist_stem_layer layers[5]);

/* image [n,h,w,3] -> [n,h/4,w/4,out of stem4], written to `into` when that is a tensor. */
ist_tensor ist_op_stem(ist_plan *p, ist_tensor image, const ist_stem_layer layers[5], ist_tensor into,
                       const char *label);

#endif
