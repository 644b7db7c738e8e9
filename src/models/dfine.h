/* D-FINE (Peng et al., ICLR 2025), all five sizes: HGNetv2 backbone, hybrid encoder, decoder with fine-grained
 * distribution refinement. Any class count, any input with height and width divisible by 32 that has at least 300
 * memory tokens. What depends on the input size only (anchors) is computed here in double precision and stored as
 * float, unless `info` asks for the file's own, as the published code reads it. */
#ifndef IST_MODELS_DFINE_H
#define IST_MODELS_DFINE_H

#include "models/models.h"

/* ---- sizes ---- */

/* One HGNetv2 stage. */
typedef struct ist_hgnet_stage {
    int in, mid, out; /* channels */
    int blocks, layers;
    bool light; /* layers are 1x1 + depthwise 5x5 instead of 3x3 */
} ist_hgnet_stage;

/* One D-FINE size. */
typedef struct ist_dfine_arch {
    int stem_mid, stem_out;
    bool lab;       /* learnable affine after every activated backbone unit */
    bool frozen_bn; /* backbone batch norms have no num_batches_tracked */
    ist_hgnet_stage stages[4];
    int levels;             /* maps handed to the encoder: the last 2 or 3 stages */
    int hidden, encoder_ff; /* encoder width C and feed-forward width */
    int elan, bottlenecks;  /* c4 and bottlenecks per CSP block */
    int dim, layers, decoder_ff;
    int points[3];     /* sampling points per level, finest first; their sum is 12 */
    bool decoder_proj; /* 1x1 hidden -> dim before the decoder */
    int reg_scale;     /* value in the official configuration; the checkpoint's own value is what counts */
} ist_dfine_arch;

/* Constants of every D-FINE size. */
enum { IST_DFINE_QUERIES = 300, IST_DFINE_REG_MAX = 32, IST_DFINE_HEADS = 8, IST_DFINE_POINTS = 12 };

/* The table row, NULL unless kind is a D-FINE size. */
const ist_dfine_arch *ist_dfine_arch_of(ist_model_kind kind);

/* The list of tensors, and what a file tells of itself. */
void ist_dfine_tensors(ist_walk *walk);
void ist_dfine_form(const ist_weights *weights, ist_arch_form *form);

/* ---- the network ---- */

typedef ist_detected ist_dfine_result; /* [n,1,300,..] */

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
    ist_act act; /* of the decoder's MLPs */
    bool stored; /* anchors and scales of points are the file's */
} ist_dfine_memory;

/* The last arch->levels stages of the backbone. */
ist_pyramid ist_hgnetv2(const ist_net *net, const ist_dfine_arch *arch, ist_tensor image);

/* Maps of arch->hidden channels. */
ist_pyramid ist_hybrid_encoder(const ist_net *net, const ist_dfine_arch *arch, ist_pyramid features);

/* Query selection and decoder layers. */
ist_dfine_result ist_dfine_decoder(const ist_net *net, const ist_dfine_arch *arch, const ist_dfine_memory *memory,
                                   ist_tensor force_index);

#endif
