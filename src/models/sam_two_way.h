/* The two-way transformer between a few tokens and the 64x64 image (segment-anything's modeling/transformer.py). */
#ifndef IST_MODELS_SAM_TWO_WAY_H
#define IST_MODELS_SAM_TWO_WAY_H

#include "models/bridge.h"
#include "models/sam_upscale.h"

/* embedding [images,64,64,256]; image_of [P] (i32): the image of each prompt; sparse [P,1,N,256]: the decoder's own
 * tokens, then the prompt's; dense [P,64,64,256]: a mask prompt's code, or empty. */
typedef struct ist_sam_prompted {
    ist_tensor embedding, image_of, sparse, dense;
} ist_sam_prompted;

/* The tokens after the last reading, [P,1,N or `wanted`,256]: at least the first `wanted` of a prompt. *image: the
 * image after both updates [P,1,4096,256], where prompts have not shared it; *pe: its position code [1,1,4096,256].
 * `up` has begun; where prompts share their image it is told so, and what it takes of the tokens. */
ist_tensor ist_sam_two_way(const ist_net *net, const ist_sam_prompted *in, int wanted, ist_sam_upscale *up,
                           ist_tensor *image, ist_tensor *pe);

#endif
