/* What cl/portable/everything takes by value. */
#ifndef IST_VARIANTS_PORTABLE_EVERYTHING_ARGS_H
#define IST_VARIANTS_PORTABLE_EVERYTHING_ARGS_H

typedef struct ist_grid_points_args {
    int prompts, crops, capacity; /* points at a time; candidates at most */
} ist_grid_points_args;

/* Of grid_picks and grid_keep. */
typedef struct ist_grid_filter_args {
    int capacity;
    int each;           /* masks of a point */
    int iou_ld, iou_c0; /* elements from a point's to the next one's, first one */
    int filtered;       /* by the threshold */
    float threshold;    /* of quality: taken are those above it; of stability: those that reach it */
} ist_grid_filter_args;

#endif
