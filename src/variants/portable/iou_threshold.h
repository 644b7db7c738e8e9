/* When a quotient that was rounded to float is above a threshold in double, without the quotient: see cl/portable/nms. */
#ifndef IST_VARIANTS_PORTABLE_IOU_THRESHOLD_H
#define IST_VARIANTS_PORTABLE_IOU_THRESHOLD_H

#include <math.h>

typedef struct ist_iou_threshold {
    float threshold, half_step; /* the largest float not above it; half of the step to the next float */
} ist_iou_threshold;

static inline ist_iou_threshold ist_iou_threshold_of(double iou) {
    float t = (float)iou;
    if ((double)t > iou) t = nextafterf(t, 0);
    return (ist_iou_threshold){t, (nextafterf(t, 2) - t) / 2};
}

#endif
