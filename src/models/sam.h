/* Segment Anything (Kirillov et al., ICCV 2023; facebookresearch/segment-anything): prompt encoder, mask decoder and neck,
 * which all of its image encoders share, and these: its own ViT, and TinyViT, that of MobileSAM (ChaoningZhang/MobileSAM,
 * builder vit_t).
 *
 * Coordinates are pixels of the network's input, float32. P is the prompt capacity; with ist_graph_limit set to the
 * device's prompt count around these calls, prompts beyond the count cost nothing. */
#ifndef IST_MODELS_SAM_H
#define IST_MODELS_SAM_H

#include "models/models.h"

enum {
    IST_SAM_PATCH = 16,    /* pixels of the input for a token of the embedding */
    IST_SAM_DIM = 256,
    IST_SAM_OWN_TOKENS = 5 /* the decoder's, one for the quality and four for masks, before a prompt's */
};

/* image [n,side,side,3]: normalised, zero outside the resized picture -> embedding [n,side/16,side/16,256]. content
 * [1,1,n,2] I32: width and height of the picture, since rows below it need less work; empty: nobody knows. */
ist_tensor ist_tinyvit(const ist_net *net, ist_tensor image, ist_tensor content);

/* The same of a ViT, whose position embedding is for one side. */
ist_tensor ist_sam_vit(const ist_net *net, ist_tensor image, ist_tensor content);

/* What is behind the blocks of both: [n,g,g,c] -> [n,g,g,256]. */
ist_tensor ist_sam_neck(const ist_net *net, ist_tensor x);

/* boxes [P,1,2,2] F32: corners (x1,y1), (x2,y2) of an input of `side` pixels -> sparse tokens [P,1,2,256]; with `own`,
 * behind the decoder's own: [P,1,7,256]. */
ist_tensor ist_sam_box_tokens(const ist_net *net, ist_tensor boxes, int side, bool own);

/* points [P,1,k,2] F32 and labels [P,1,k,1] I32 (1 object, 0 background, -1 padding: no position). Without boxes the
 * network wants one padding point more: with `pad` it is appended. Behind the decoder's own: [P,1,5 + k (+1),256]. */
ist_tensor ist_sam_point_tokens(const ist_net *net, ist_tensor points, ist_tensor labels, int side, bool pad);

/* The same of points that may be a box's corners too, with labels 2 and 3: [P,1,5 + k,256]. Labels beyond mean that
 * there is no such point: see counts of ist_prompted. */
ist_tensor ist_sam_prompt_tokens(const ist_net *net, ist_tensor points, ist_tensor labels, int side);

/* Points first, then the box tokens, as the network orders them: a [P,1,i,256], b [P,1,j,256] -> [P,1,i+j,256]. */
ist_tensor ist_sam_join_tokens(const ist_net *net, ist_tensor a, ist_tensor b);

/* masks [P,side/4,side/4,1]: low-resolution logits of an earlier answer -> dense [P,side/16,side/16,256]. */
ist_tensor ist_sam_mask_prompt(const ist_net *net, ist_tensor masks);

/* The same where given [1,1,P,1] I32 is not 0, else what the network has for no mask. */
ist_tensor ist_sam_dense_prompt(const ist_net *net, ist_tensor masks, ist_tensor given);

/* sparse [P,1,5 + T,256], dense [P,grid,grid,256]. */
typedef ist_prompted ist_sam_prompted;
typedef ist_prompt_masks ist_sam_masks;
ist_sam_masks ist_sam_decode(const ist_net *net, const ist_sam_prompted *in, bool multimask);

/* The tensors of prompt encoder and mask decoder; of the neck behind c channels. */
void ist_sam_tensors(ist_walk *walk);
void ist_sam_neck_tensors(ist_walk *walk, int c);

/* ---- parts of the decoder ---- */

/* The two-way transformer: tokens and image [P,1,grid * grid,256] after it. */
typedef struct ist_sam_transformed {
    ist_tensor tokens, image;
} ist_sam_transformed;
ist_sam_transformed ist_sam_two_way(const ist_net *net, const ist_sam_prompted *in);

#endif
