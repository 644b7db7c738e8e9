/* HGNetv2's first stage of the small sizes and the downsampling behind it as one launch on matrix instructions, which
 * replaces six and their maps (cl/op/stage_mma.cl). */
#ifndef IST_OPS_STAGE_H
#define IST_OPS_STAGE_H

#include "ops/stem.h"

/* Layers: three of 3x3, 16 -> 16, each reading the one before; the 1x1 ones, 64 -> 32 on the input and the three
 * results side by side and 32 -> 64. All of them relu and LAB (ist_stem_layer). */
enum { IST_STAGE_DEEP = 3, IST_STAGE_LAYERS = IST_STAGE_DEEP + 2 };
enum { IST_STAGE_IN = 16, IST_STAGE_MIX = 32, IST_STAGE_OUT = 64 }; /* channels */

/* Whether the plan's device and maps [n,h,w,16] suit it: half storage on matrix instructions, few pixels. */
bool ist_stage_fits(const ist_plan *p, int n, int h, int w);

/* x [n,h,w,16] -> [n,(h+1)/2,(w+1)/2,64], written to `into` when that is a tensor; pixels of both begin at multiples of
 * eight channels. `down` is depthwise, 3x3, of stride 2 with a border of 1 and neither activation nor LAB. */
ist_tensor ist_op_stage(ist_plan *p, ist_tensor x, const ist_stem_layer layers[IST_STAGE_LAYERS], ist_filter down,
                        ist_tensor into, const char *label);

#endif
