/* What parameters masks of everything may have, and the grids of points that they mean. */
#ifndef IST_PIPELINE_EVERYTHING_H
#define IST_PIPELINE_EVERYTHING_H

#include "base/status.h"
#include "graph/found.h"

enum {
    IST_CROP_LAYERS_MAX = 3,
    IST_GRID_SIDE_MAX = 128,
    IST_POINTS_AT_A_TIME_MAX = 256,
    IST_CANDIDATES_MAX = 1 << 17, /* masks of all points: what suppression has local memory for */
    IST_MASKS_MAX = 4096
};

/* What there is of an engine's parameters, for every image. */
typedef struct ist_grids {
    int crops, points;                 /* of all crops together */
    int side[IST_CROP_LAYERS_MAX + 1]; /* points on a side of a layer's grid */
    int first[IST_CROPS_MAX + 1];      /* number of a crop's first point; the last one: of all */
    int layer[IST_CROPS_MAX];
} ist_grids;
void ist_grids_of(const ist_everything *everything, ist_grids *grids);

/* IST_E_ARGUMENT with a sentence when a parameter is out of range, IST_E_LIMIT when there are too many points. */
ist_status ist_everything_check(const ist_everything *everything, ist_error *err);

#endif
