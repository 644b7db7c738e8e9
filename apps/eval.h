/* The parts of `isthmus eval`: assignment of detections to annotations, masks for the annotations' own boxes, and what
 * is said. Used by cmd_eval.c and eval_*.c only. */
#ifndef EVAL_H
#define EVAL_H

#include "predict.h"

#include "io/coco_eval.h"

#include <stdio.h>

/* Detections are assigned when their score is above this (predict's default) and their box's IoU with an annotation of
 * the same category is at least that. */
#define EVAL_MATCH_SCORE 0.4
#define EVAL_MATCH_IOU   0.5
#define EVAL_MATCH_MOST  300 /* annotations, and detections, of an image: what the matcher takes */

/* What the assigned pairs come to. */
typedef struct eval_overlap {
    bool measured;
    size_t objects, matched;  /* annotations that are no crowds; those with a detection */
    size_t crowded;           /* images with more of either than EVAL_MATCH_MOST, which are no part of it */
    double box_iou, mask_iou; /* sums over the pairs */
} eval_overlap;

/* What the segmenter comes to with the annotations' boxes as prompts: no detector has a part in it. */
typedef struct eval_prompted {
    bool measured;
    size_t objects, failed; /* boxes; images without masks, whose boxes count with 0 */
    double mask_iou;        /* sum over the boxes */
} eval_prompted;

typedef struct eval_report {
    const ist_coco *truth;
    const ist_coco_list *results;
    bool masks; /* `mask_scores` and the mask IoU are there */
    ist_coco_scores box_scores, mask_scores;
    eval_overlap overlap;
    eval_prompted prompted;
} eval_report;

/* Assigns, on the engine's device, detections to the annotations of each image so that the sum of box IoUs is largest,
 * and adds up the IoUs of the pairs. */
ist_status eval_match(ist_engine *engine, const ist_coco *truth, const ist_coco_list *results, bool masks,
                      eval_overlap *overlap, ist_error *err);

/* Segments the job's images with the boxes of their annotations and adds up the IoUs with the annotations' masks. Opens
 * an engine with the segmenter alone. Ends early when the user interrupts. */
ist_status eval_prompt(predict_job *job, const ist_coco *truth, eval_prompted *prompted, ist_error *err);

/* The table. */
void eval_print(const eval_report *report, FILE *out);

/* The same numbers as JSON, "-": to standard output; a number that is not defined is null. */
ist_status eval_write(const eval_report *report, const char *path, ist_error *err);

#endif
