/* D-FINE (Peng et al., ICLR 2025), all five sizes: HGNetv2 backbone, hybrid encoder, decoder with fine-grained
 * distribution refinement. Any class count, any input with height and width divisible by 32 that has at least 300
 * memory tokens. What depends on the input size only (anchors) is computed here in double precision and stored as float.
 */
#ifndef IST_MODELS_DFINE_H
#define IST_MODELS_DFINE_H

#include "models/net.h"
#include "weights/checkpoint.h"

/* One row per query, unsorted; boxes are cx, cy, w, h as fractions of the image and not clipped. */
typedef struct ist_dfine_result {
    ist_tensor logits; /* [n,1,300,classes] F32 */
    ist_tensor boxes;  /* [n,1,300,4] F32 */
} ist_dfine_result;

/* Records the detector that `info` describes for image [n,h,w,3], 0 for black to IST_DETECTOR_WHITE (graph/frame.h);
 * empty when the graph has failed. */
ist_dfine_result ist_dfine(const ist_net *net, const ist_checkpoint_info *info, ist_tensor image);

/* For tests: with force_index (I32 [n,1,300,1]) the decoder starts from these tokens instead of the best 300, so that
 * rows can be compared with a run that ranked them by other rounding. */
ist_dfine_result ist_dfine_forced(const ist_net *net, const ist_checkpoint_info *info, ist_tensor image,
                                  ist_tensor force_index);

/* ---- the three parts ---- */

/* Maps of one width or several, finest first; each level has half the height and width of the one before. */
typedef struct ist_pyramid {
    int levels;
    ist_tensor maps[3];
} ist_pyramid;

/* What the decoder reads: all maps as one token sequence, finest level first, rows of a map one after the other. */
typedef struct ist_dfine_memory {
    ist_tensor tokens; /* [n,1,T,dim] */
    int levels;
    ist_level level[3];
} ist_dfine_memory;

/* The last arch->levels stages of the backbone. */
ist_pyramid ist_hgnetv2(const ist_net *net, const ist_dfine_arch *arch, ist_tensor image);

/* Maps of arch->hidden channels. */
ist_pyramid ist_hybrid_encoder(const ist_net *net, const ist_dfine_arch *arch, ist_pyramid features);

/* Query selection and decoder layers. */
ist_dfine_result ist_dfine_decoder(const ist_net *net, const ist_dfine_arch *arch, const ist_dfine_memory *memory,
                                   ist_tensor force_index);

#endif
