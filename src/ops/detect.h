/* From the detector's raw output to objects and prompts (Peterande/D-FINE, src/zoo/dfine/postprocessor.py), with every
 * count staying on the device. */
#ifndef IST_OPS_DETECT_H
#define IST_OPS_DETECT_H

#include "core/plan.h"
#include "ops/frame.h"

typedef struct ist_detect_opts {
    float conf;                /* scores must be above */
    int max_objects;           /* per image */
    const unsigned char *keep; /* [classes], nonzero: label wanted; NULL: all */
} ist_detect_opts;

/* Objects per image in rows of IST_DET_WORDS words, by falling score, equal scores by rising query * classes + label.
 */
enum { IST_DET_LABEL = 0, IST_DET_SCORE = 1, IST_DET_QUERY = 2, IST_DET_BOX = 3, IST_DET_WORDS = 8 };

/* P = batch * max_objects is the capacity of the flat list, in which the objects of all images follow each other. */
typedef struct ist_detections {
    int batch, max_objects;
    ist_tensor objects;  /* I32 [batch, 1, max_objects, IST_DET_WORDS]; only the first counts[i][0] rows are defined */
    ist_tensor counts;   /* I32 [batch, 1, 1, 4]: objects, dropped, first in the flat list, 0 */
    ist_tensor total;    /* I32 [1, 1, 1, 1]: prompts in the flat list, for ist_plan_limit */
    ist_tensor image_of; /* I32 [1, 1, P, 1]: image of each prompt; 0 from total on */
    ist_tensor boxes;    /* F32 [P, 1, 1, 4]: x0 y0 x1 y1 in the segmenter's coordinates; 0 from total on */
} ist_detections;

/* logits F32 [batch, 1, queries, classes], boxes F32 [batch, 1, queries, 4] cxcywh normalised. The candidates are the
 * min(300, queries * classes) largest sigmoids. A NaN logit is never an object. */
ist_detections ist_op_detect(ist_plan *p, ist_tensor logits, ist_tensor boxes, ist_tensor upload,
                             const ist_detect_opts *opts, const char *label);

/* The targets of each image in their order instead of detections, the first max_objects of them: score 1, query -1.
 * `match` gets I32 [batch, 1, max_objects, 2], the index of each and the bits of IoU 1, for ist_op_pack. */
ist_detections ist_op_given_boxes(ist_plan *p, ist_tensor upload, int batch, int max_objects, ist_tensor *match,
                                  const char *label);

#endif
