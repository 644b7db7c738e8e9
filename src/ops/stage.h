/* A stage of HGNetv2's small sizes and the downsampling behind it as one launch on matrix instructions, which replaces
 * five or six and their maps: the first (cl/op/stage_mma.cl) or the second (cl/op/stage_wide_mma.cl). */
#ifndef IST_OPS_STAGE_H
#define IST_OPS_STAGE_H

#include "ops/stem.h"

/* Layers: three of 3x3, the first of `in` inputs and `deep` outputs, each reading the one before; the 1x1 ones, on the
 * input and the three results side by side to `mix` channels, and from these to `out`. All of them relu and LAB
 * (ist_stem_layer). */
enum { IST_STAGE_DEEP = 3, IST_STAGE_LAYERS = IST_STAGE_DEEP + 2 };
typedef struct ist_stage_shape {
    int in, deep, mix, out; /* channels */
} ist_stage_shape;

/* Whether the plan's device and maps [n,h,w,shape.in] suit a stage of this shape: half storage on matrix instructions,
 * few pixels. */
bool ist_stage_fits(const ist_plan *p, ist_stage_shape shape, int n, int h, int w);

/* x [n,h,w,in] -> [n,(h+1)/2,(w+1)/2,out], written to `into` when that is a tensor; pixels of all maps begin at
 * multiples of eight channels. `down` is depthwise, 3x3, of stride 2 with a border of 1 and neither activation nor LAB.
 * `whole`, when it is a tensor [n,h,w,out], gets what `down` reads: of the second stage only. */
ist_tensor ist_op_stage(ist_plan *p, ist_stage_shape shape, ist_tensor x, const ist_stem_layer layers[IST_STAGE_LAYERS],
                        ist_filter down, ist_tensor into, ist_tensor whole, const char *label);

#endif
