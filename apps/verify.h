/* The parts of `isthmus verify`: one device and precision against a reference, tensor by tensor and object by object.
 * Used by cmd_verify.c and verify_*.c only. */
#ifndef VERIFY_H
#define VERIFY_H

#include "predict.h"

/* What is compared: enumerator, name, most that fp16 may differ, most that fp32 may differ, what the number is. The
 * limits are some three times the most that was measured: fp16 with the weights that ship and with synthetic
 * checkpoints of sizes N, S and M, fp32 between the rows of one device (PoCL 3.1). X(id, name, fp16, fp32, meaning) */
#define VERIFY_STAGES(X)                                                                                               \
    X(BACKBONE, "backbone", 0.005, 1e-4, "relative error of the feature maps")                                         \
    X(ENCODER, "encoder", 0.01, 1e-4, "relative error of the memory")                                                  \
    X(LOGITS, "decoder logits", 0.04, 1e-4, "relative error over the queries that both chose")                         \
    X(BOXES, "decoder boxes", 0.01, 1e-4, "relative error over the queries that both chose")                           \
    X(EMBEDDING, "embedding", 0.01, 1e-4, "relative error of the segmenter's embedding")                               \
    X(MASK_LOGITS, "mask logits", 0.03, 1e-3, "relative error over the objects that both found")

typedef enum verify_stage {
#define X(id, name, half, single, meaning) VERIFY_##id,
    VERIFY_STAGES(X)
#undef X
        VERIFY_STAGE_COUNT
} verify_stage;

#define VERIFY_BOX_IOU    0.9  /* from here on two boxes are the same */
#define VERIFY_LEAST_F1   0.98 /* of detections above the threshold */
#define VERIFY_MASK_IOU   0.99 /* mean over the objects that both found */
#define VERIFY_MOST_SCORE 0.02 /* difference of an object's score */
#define VERIFY_CUT_SCORE  0.01 /* an object this close to the least of a full list may be cut on one side only */

/* Sums over all values compared: the relative error is sqrt(difference / reference). */
typedef struct verify_error {
    double difference, reference; /* squares */
    bool wild;                    /* a value is not a number or not finite on one side */
    size_t values;
} verify_error;

typedef struct verify_sums {
    verify_error stages[VERIFY_STAGE_COUNT];
    size_t images, queries, common_queries;
    size_t objects, reference_objects, same_objects, masks;
    size_t cut; /* objects of one side that did not fit max_objects on the other */
    double box_iou, least_box_iou, mask_iou, least_mask_iou, most_score; /* of the objects that both found */
} verify_sums;

/* One side: its engine, with kept tensors, and what it is. */
typedef struct verify_side {
    ist_engine *engine;
    ist_engine_info info;
    bool portable; /* the rows that any device can run, asked for */
} verify_side;

/* Runs one image on both sides and adds up what differs. */
ist_status verify_image(const verify_side *tested, const verify_side *reference, const ist_image *image,
                        verify_sums *sums, ist_error *err);

/* sqrt(difference / reference); infinite when a value was wild, 0 when nothing was compared. */
double verify_relative(const verify_error *error);
double verify_f1(const verify_sums *sums);
double verify_limit(verify_stage stage, ist_precision precision);

/* Number of checks that do not hold; the first of them as a sentence. */
int verify_judge(const verify_sums *sums, ist_precision precision, char *sentence, size_t size);

/* The table on stdout. */
void verify_print(const verify_side *tested, const verify_side *reference, const verify_sums *sums);

/* The same as one JSON object. */
ist_status verify_json(const verify_side *tested, const verify_side *reference, const verify_sums *sums, ist_text *out,
                       ist_error *err);

#endif
