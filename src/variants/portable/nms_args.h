/* What cl/portable/nms takes by value. */
#ifndef IST_VARIANTS_PORTABLE_NMS_ARGS_H
#define IST_VARIANTS_PORTABLE_NMS_ARGS_H

/* `room`: boxes of a list, a multiple of 32 beyond those of the node in scratch. Of each operand: elements from a box
 * (count: from a list) to the next, first channel. */
typedef struct ist_nms_args {
    int boxes, room;
    int boxes_ld, boxes_c0;
    int scores_ld, scores_c0;
    int group_ld, group_c0; /* ld 0: all boxes are of one group */
    int count_ld, count_c0; /* ld 0: all boxes take part */
    float threshold, half_step; /* the largest float not above the threshold; half of the step to the next float */
} ist_nms_args;

#endif
