/* Models as descriptors: what the pipeline knows of a network, and all it knows.
 *
 * A model file defines one descriptor per network, models.inc has a line for each, and recognition, `info`, the
 * pipeline and the program follow. A detector reads a resampled image and gives a row per query; a segmenter reads a
 * letterboxed one, and answers prompts in pixels of that input with low-resolution mask logits. */
#ifndef IST_MODELS_MODELS_H
#define IST_MODELS_MODELS_H

#include "models/checkpoint.h"
#include "models/net.h"
#include "models/tensors.h"

/* What every model has. */
typedef struct ist_model {
    const char *name;   /* "dfine-n" */
    const char *family; /* "D-FINE": what sentences call it */
    void (*tensors)(ist_walk *walk);
    /* Fills in what a file tells of itself (classes, deployed, side ..); NULL: nothing. */
    void (*form)(const ist_weights *weights, ist_arch_form *form);
} ist_model;

/* NULL for no model. */
const ist_model *ist_model_of(ist_model_kind kind);

/* ---- detectors ---- */

/* One row per query, unsorted; boxes are cx, cy, w, h as fractions of the image and not clipped. */
typedef struct ist_detected {
    ist_tensor logits; /* [n,1,queries,classes] F32 */
    ist_tensor boxes;  /* [n,1,queries,4] F32 */
} ist_detected;

typedef struct ist_detector_model {
    ist_model is;
    int multiple;          /* of which both sides of its input are */
    float mean[3], std[3]; /* its input is (v - mean) / std of 8-bit values, the image stretched to the input's size */
    /* Records the network that `info` describes for image [n,h,w,channels]; empty when the graph has failed. */
    ist_detected (*record)(const ist_net *net, const ist_checkpoint_info *info, ist_tensor image);
} ist_detector_model;

/* NULL when `kind` is no detector. */
const ist_detector_model *ist_detector_of(ist_model_kind kind);

/* ---- segmenters ---- */

/* What is to be cut out of which image. */
typedef struct ist_prompted {
    ist_tensor embedding; /* [images,grid,grid,c] */
    ist_tensor image_of;  /* [1,1,P,1] I32: the image of each prompt; empty: all of image 0 */
    ist_tensor sparse;    /* [P,1,t,c]: the decoder's own tokens, then the prompt's */
    ist_tensor dense;     /* [P,grid,grid,c]: a mask prompt's code, or empty */
    ist_tensor counts;    /* [1,1,P,1] I32: how many of its tokens a prompt has; empty: all t */
    ist_tensor content; /* as for encode: logits outside of the picture then may stay undefined; empty: all are made */
} ist_prompted;

enum { IST_MULTIMASKS = 3 };
typedef struct ist_prompt_masks {
    ist_tensor low_res; /* [P * masks,side / 4,side / 4,1] F32 logits; prompt i's mask m is item i * masks + m */
    ist_tensor iou;     /* [P,1,1,masks] F32 predicted quality, no sigmoid */
    int masks;          /* 1, or 3 with multimask */
} ist_prompt_masks;

typedef struct ist_segmenter_model {
    ist_model is;
    int side;                  /* of its square input unless something else is asked for or known of the file */
    int multiple, least, most; /* the other sides it can work at */
    bool one_side;             /* a file is for one side, its own */
    int patch, channels;       /* pixels of the input for a place of the embedding, and what it has there */
    float mean[3], std[3];     /* its input is (v - mean) / std inside the picture, whose longest side is `side`; 0
                                *   outside */
    /* image [n,side,side,3] -> embedding. content [1,1,n,2] I32: width and height of the picture in each, since what is
     * outside needs less work; empty: nobody knows. */
    ist_tensor (*encode)(const ist_net *net, ist_tensor image, ist_tensor content);
    /* boxes [P,1,2,2] F32: corners in pixels of an input of `side` -> the prompt's tokens, with `own` behind the
     * decoder's own. */
    ist_tensor (*boxes)(const ist_net *net, ist_tensor boxes, int side, bool own);
    /* points [P,1,k,2] F32 in such pixels, labels [P,1,k,1] I32: 1 object, 0 background, -1 padding, 2 and 3 corners of
     * a box, 4 none -> tokens behind the decoder's own, `own_tokens` of them. A prompt without a box has padding. */
    ist_tensor (*points)(const ist_net *net, ist_tensor points, ist_tensor labels, int side);
    int own_tokens;
    /* masks [P,side / 4,side / 4,1] F32, low-resolution logits of an earlier answer, given [1,1,P,1] I32 -> what
     * prompts with a mask and those without have as `dense`. */
    ist_tensor (*dense)(const ist_net *net, ist_tensor masks, ist_tensor given);
    ist_prompt_masks (*decode)(const ist_net *net, const ist_prompted *in, bool multimask);
} ist_segmenter_model;

/* NULL when `kind` is no segmenter. */
const ist_segmenter_model *ist_segmenter_of(ist_model_kind kind);

/* The side to record for: `asked`, or for 0 the file's own, or the model's. IST_E_ARGUMENT for one that it cannot do.
 */
ist_status ist_segmenter_side(const ist_checkpoint_info *info, int asked, int *side, ist_error *err);

#endif
