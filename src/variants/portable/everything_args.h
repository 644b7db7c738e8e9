/* What cl/portable/everything takes by value. */
#ifndef IST_VARIANTS_PORTABLE_EVERYTHING_ARGS_H
#define IST_VARIANTS_PORTABLE_EVERYTHING_ARGS_H

typedef struct ist_grid_points_args {
    int prompts, crops, capacity; /* points at a time; candidates at most */
} ist_grid_points_args;

typedef struct ist_grid_picks_args {
    int capacity;
    int each;           /* masks of a point */
    int iou_ld, iou_c0; /* elements from a point's to the next one's, first one */
    int filtered;       /* by the threshold */
    float threshold;    /* taken are those above it */
} ist_grid_picks_args;

typedef struct ist_grid_keep_args {
    int capacity, each, iou_ld, iou_c0;
    int filtered;
    float threshold; /* taken are those that reach it */
} ist_grid_keep_args;

#endif
