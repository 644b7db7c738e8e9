/* What parameters masks of everything may have. */
#ifndef IST_PIPELINE_EVERYTHING_H
#define IST_PIPELINE_EVERYTHING_H

#include "base/status.h"

enum {
    IST_CROP_LAYERS_MAX = 3,
    IST_GRID_SIDE_MAX = 128,
    IST_POINTS_AT_A_TIME_MAX = 256,
    IST_CANDIDATES_MAX = 1 << 17, /* masks of all points: what suppression has local memory for */
    IST_MASKS_MAX = 4096
};

/* IST_E_ARGUMENT with a sentence when a parameter is out of range, IST_E_LIMIT when there are too many points. */
ist_status ist_everything_check(const ist_everything *everything, ist_error *err);

#endif
