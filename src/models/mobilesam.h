/* MobileSAM (ChaoningZhang/MobileSAM, builder vit_t): TinyViT image encoder, prompt encoder, mask decoder.
 *
 * Each function records its part of the network into a plan; failures are sticky in the plan. Coordinates are pixels of
 * the resized image (long side 1024), float32. P is the prompt capacity; with ist_plan_limit set to the device's prompt
 * count around these calls, prompts beyond the count cost nothing. */
#ifndef IST_MODELS_MOBILESAM_H
#define IST_MODELS_MOBILESAM_H

#include "core/plan.h"
#include "weights/weights.h"

enum {
    IST_SAM_SIDE = 1024,   /* network input, padded */
    IST_SAM_GRID = 64,     /* embedding */
    IST_SAM_LOW_RES = 256, /* mask logits */
    IST_SAM_DIM = 256,
    IST_SAM_OWN_TOKENS = 5 /* the decoder's, one for the quality and four for masks, before a prompt's */
};

/* image [n,1024,1024,3]: normalised, zero outside the resized picture -> embedding [n,64,64,256]. content [1,1,n,2]
 * I32: width and height of the picture, since rows below it need less work; empty: nobody knows. */
ist_tensor ist_tinyvit(ist_plan *p, const ist_weights *weights, ist_tensor image, ist_tensor content);

/* boxes [P,1,2,2] F32: corners (x1,y1), (x2,y2) -> sparse tokens [P,1,2,256]; with `own`, behind the decoder's own:
 * [P,1,7,256]. */
ist_tensor ist_sam_box_tokens(ist_plan *p, const ist_weights *weights, ist_tensor boxes, bool own);

/* points [P,1,k,2] F32 and labels [P,1,k,1] I32 (1 object, 0 background, -1 padding: no position). Without boxes the
 * network wants one padding point more: with `pad` it is appended. Behind the decoder's own: [P,1,5 + k (+1),256]. */
ist_tensor ist_sam_point_tokens(ist_plan *p, const ist_weights *weights, ist_tensor points, ist_tensor labels,
                                bool pad);

/* Points first, then the box tokens, as the network orders them: a [P,1,i,256], b [P,1,j,256] -> [P,1,i+j,256]. */
ist_tensor ist_sam_join_tokens(ist_plan *p, ist_tensor a, ist_tensor b);

/* masks [P,256,256,1]: low-resolution logits of an earlier answer -> dense [P,64,64,256]. */
ist_tensor ist_sam_mask_prompt(ist_plan *p, const ist_weights *weights, ist_tensor masks);

typedef struct ist_sam_masks {
    ist_tensor low_res; /* [P * masks,256,256,1] F32 logits; prompt i's mask m is item i * masks + m */
    ist_tensor iou;     /* [P,1,1,masks] F32 predicted quality, no sigmoid */
    int masks;          /* 1, or 3 with multimask */
} ist_sam_masks;

/* embedding [n,64,64,256]; content as above: logits that ist_op_masks does not read then stay undefined where that
 * saves work (empty: all are made); image_of [1,1,P,1] I32: which image each prompt belongs to (empty: all to image 0);
 * sparse [P,1,5+T,256], the decoder's own tokens first; dense [P,64,64,256], or empty: no mask prompt. */
ist_sam_masks ist_sam_decode(ist_plan *p, const ist_weights *weights, ist_tensor embedding, ist_tensor content,
                             ist_tensor image_of, ist_tensor sparse, ist_tensor dense, bool multimask);

#endif
