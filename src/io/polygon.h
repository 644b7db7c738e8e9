/* Polygons to run lengths, pixel for pixel as COCO's annotations mean them.
 *
 * COCO draws an outline on a grid five times as fine, as lines of grid points, and looks where such a line passes from
 * the left to the right half of a pixel column: the column's value changes from that point downwards. An outline may
 * leave the image; what is left of it and right of it is cut off, what is above and below it counts from the edge.
 * Source: the format as pycocotools draws it; tests compare with that. */
#ifndef IST_IO_POLYGON_H
#define IST_IO_POLYGON_H

#include "io/rle.h"

/* The largest coordinate, either sign, and the most columns that the outlines of one mask may pass. */
#define IST_POLYGON_REACH     1e8
#define IST_POLYGON_CROSSINGS ((size_t)1 << 24)

/* Pixels [begin, end) in column-major order. */
typedef struct ist_span {
    uint32_t begin, end;
} ist_span;

/* The union of polygons in one image. Set the size (width * height below 2^31) and leave the rest zero; reusable after
 * ist_raster_finish. */
typedef struct ist_raster {
    int width, height;
    ist_span *spans;
    size_t span_count, span_capacity;
    uint32_t *crossings; /* of the polygon being drawn: pixels from which on a column's value changes */
    size_t crossing_count, crossing_capacity;
    size_t total; /* crossings of all polygons */
} ist_raster;

/* Draws the polygon through `count` points x, y. IST_E_INPUT for coordinates out of reach, IST_E_LIMIT for too many
 * crossings. */
ist_status ist_raster_add(ist_raster *raster, const double *xy, size_t count, ist_error *err);

/* The runs of everything drawn, replacing what `rle` has; the raster is empty again. */
ist_status ist_raster_finish(ist_raster *raster, ist_rle *rle, ist_error *err);

void ist_raster_free(ist_raster *raster);

#endif
