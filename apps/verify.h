/* The parts of `isthmus verify`: one device and precision against a reference, tensor by tensor and object by object.
 * Used by cmd_verify.c and verify_*.c only. */
#ifndef VERIFY_H
#define VERIFY_H

#include "predict.h"

/* What is compared: enumerator, name, most that fp16 or bf16 may differ, most that fp32 may, what the number is. fp16's
 * limits are what random weights of size X come to on an H200, with room where that left none; the weights that ship
 * stay two (backbone) to a hundred times (mask logits) below. fp32's are some 100 times the rounding seen between
 * devices. X(id, name, fp16, fp32, meaning) */
#define VERIFY_STAGES(X)                                                                                               \
    X(BACKBONE, "backbone", 0.005, 1e-4, "relative error of the feature maps")                                         \
    X(ENCODER, "encoder", 0.02, 1e-4, "relative error of the memory")                                                  \
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
/* An object whose score is this close to the threshold, or to the least of a full list, may be on one side only. */
#define VERIFY_CUT_SCORE 0.01

/* Sums over all values compared: the relative error is sqrt(difference / reference). */
typedef struct verify_error {
    double difference, reference; /* squares */
    bool wild;                    /* a value is not a number or not finite on one side */
    size_t values;
} verify_error;

/* The image with the least F1, among equals that with the largest error of the boxes: whether all images are a little
 * wrong or one is, in which another query was chosen, cannot be seen from sums. */
typedef struct verify_worst {
    const char *path; /* borrowed; NULL before the first image */
    double f1, boxes;
    size_t queries, common_queries;
} verify_worst;

typedef struct verify_sums {
    verify_error stages[VERIFY_STAGE_COUNT];
    size_t images, queries, common_queries;
    size_t objects, reference_objects, same_objects, masks;
    float conf;
    size_t cut; /* objects at the threshold or the end of a full list that are on one side only */
    double box_iou, least_box_iou, mask_iou, least_mask_iou, most_score; /* of the objects that both found */
    verify_worst worst;
} verify_sums;

/* One side: its engine, with kept tensors, and what it is. */
typedef struct verify_side {
    ist_engine *engine;
    ist_engine_info info;
    bool portable; /* the rows that any device can run, asked for */
} verify_side;

/* Runs one image on both sides and adds up what differs; `path` is kept. */
ist_status verify_image(const verify_side *tested, const verify_side *reference, const ist_image *image,
                        const char *path, verify_sums *sums, ist_error *err);

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
