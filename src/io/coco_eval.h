/* COCO's average precision and recall, by the rules and in the arithmetic of its own evaluation.
 *
 * Per category, and per size of object, detections of an image take the annotation they overlap most, in order of their
 * score, at ten IoU thresholds from 0.5 to 0.95; precision is read off at 101 recalls. Crowds and annotations of other
 * sizes neither count nor blame. Source: the COCO evaluation as pycocotools does it; tests compare with that. */
#ifndef IST_IO_COCO_EVAL_H
#define IST_IO_COCO_EVAL_H

#include "io/coco.h"

/* The twelve numbers in COCO's order: enumerator and name. Sizes: S below 32^2 pixels, M to 96^2, L above. AR1, AR10
 * and AR100 allow that many detections per image and category; the others 100. */
#define IST_COCO_NUMBERS(X)                                                                                            \
    X(AP, "AP")                                                                                                        \
    X(AP50, "AP50")                                                                                                    \
    X(AP75, "AP75")                                                                                                    \
    X(APS, "APs")                                                                                                      \
    X(APM, "APm")                                                                                                      \
    X(APL, "APl")                                                                                                      \
    X(AR1, "AR1")                                                                                                      \
    X(AR10, "AR10")                                                                                                    \
    X(AR100, "AR100")                                                                                                  \
    X(ARS, "ARs")                                                                                                      \
    X(ARM, "ARm")                                                                                                      \
    X(ARL, "ARl")

enum {
#define X(id, name) IST_COCO_##id,
    IST_COCO_NUMBERS(X)
#undef X
        IST_COCO_NUMBER_COUNT
};

/* 0 to 1; -1 where there is nothing to find. */
typedef struct ist_coco_scores {
    double numbers[IST_COCO_NUMBER_COUNT];
    double *class_ap, *class_ap50; /* AP and AP50 of each category; the caller's, see ist_coco_scores_free */
} ist_coco_scores;

/* Evaluates boxes, or masks (both lists must have them), over the images in use. */
ist_status ist_coco_evaluate(const ist_coco *truth, const ist_coco_list *results, bool masks, ist_coco_scores *scores,
                             ist_error *err);

void ist_coco_scores_free(ist_coco_scores *scores);

/* Intersection over union of a result with an annotation, of boxes or masks; over the result's area where the
 * annotation is a crowd. Masks of images of different sizes have none. */
double ist_coco_iou(const ist_coco_object *result, const ist_coco_object *annotation, bool masks);

/* Where an object is, for sorting. */
typedef struct ist_coco_place {
    size_t category, image, index; /* index: in the list */
} ist_coco_place;

/* The objects of a list in images in use, by (category, image, index), or by (image, index) with all categories 0.
 * malloc'd. */
ist_status ist_coco_places(const ist_coco *truth, const ist_coco_list *list, bool by_category, ist_coco_place **places,
                           size_t *count, ist_error *err);

#endif
