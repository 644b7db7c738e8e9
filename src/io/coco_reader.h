/* What the files of COCO's reader share. Private to coco.c and coco_mask.c. */
#ifndef IST_IO_COCO_READER_H
#define IST_IO_COCO_READER_H

#include "io/coco.h"
#include "io/polygon.h"

#include <jansson.h>

typedef struct coco_reader {
    const char *source;  /* file name, for sentences */
    const char *what;    /* kind of the entry being read */
    size_t index;        /* its place in the file, from 0 */
    ist_coco *coco;      /* the annotations; results only look things up */
    ist_coco_list *list; /* what entries are appended to */
    bool boxes;          /* results: the first one has a box */
    ist_raster raster;
    double *points; /* one polygon */
    size_t point_capacity;
    ist_error *err;
} coco_reader;

/* "FILE: annotation 3: sentence"; returns IST_E_INPUT. */
ist_status coco_bad(const coco_reader *r, const char *fmt, ...) IST_PRINTF(2, 3);

/* Checks the size of an image or a mask. */
ist_status coco_size(const coco_reader *r, int64_t w, int64_t h, int *width, int *height);

/* Place of the image that `item` refers to. */
ist_status coco_find_image(const coco_reader *r, const json_t *item, size_t *place);

/* The object's mask from any form of segmentation; none from null, an empty array or nothing. */
ist_status coco_read_mask(coco_reader *r, const json_t *segmentation, ist_coco_object *object);

/* The object's box as its mask. */
ist_status coco_box_mask(coco_reader *r, ist_coco_object *object);

#endif
