/* What cl/portable/detect takes by value. */
#ifndef IST_VARIANTS_PORTABLE_DETECT_ARGS_H
#define IST_VARIANTS_PORTABLE_DETECT_ARGS_H

typedef struct ist_scores_args {
    int queries, classes;     /* of an image */
    int logits_ld, logits_c0; /* elements from a query to the next, first channel */
} ist_scores_args;

typedef struct ist_pick_args {
    int candidates, classes, queries; /* of an image; candidates are sorted, best first */
    int max_objects;                  /* of an image */
    int boxes_ld, boxes_c0;
    float threshold; /* scores of objects are above it */
} ist_pick_args;

#endif
