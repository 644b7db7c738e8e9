/* Masks of everything on the host: crops of an image and the grids of points in them, as segment-anything's
 * utils/amg.py has them, and their part of the upload.
 *
 * The upload's image blocks are those of the crops, the first of which is the image. The encoder takes one image at a
 * time: for every other crop there is an upload of its own within the upload, a header, one block and its tap tables.
 */
#ifndef IST_PIPELINE_CROPS_H
#define IST_PIPELINE_CROPS_H

#include "graph/found.h"
#include "pipeline/everything.h"
#include "variants/upload.h"

/* x1 and y1 are exclusive. */
typedef struct ist_crop {
    int x0, y0, x1, y1;
} ist_crop;

/* Fills in grids->crops crops. IST_E_INPUT for an image so small that a crop would be empty. */
ist_status ist_crops_of(const ist_everything *everything, int width, int height, ist_crop *crops, ist_error *err);

/* Point i, in pixels of its crop; returns the crop. */
int ist_grid_point(const ist_grids *grids, const ist_crop *crops, int i, double *x, double *y);

/* Where things are in an upload, in words. */
typedef struct ist_crops_layout {
    ist_crop crops[IST_CROPS_MAX];
    size_t grid, at[IST_CROPS_MAX]; /* points; uploads of crops but the first */
    size_t words[IST_CROPS_MAX];    /* of these */
} ist_crops_layout;

/* From word `at` on, for crops filled in; where it ends. `alignment`: of what a window of a buffer may begin at, bytes.
 */
size_t ist_crops_lay_out(const ist_grids *grids, int side, size_t alignment, size_t at, ist_crops_layout *layout);

/* Blocks, points and uploads of crops; `image` is the first one's block. Tables only where `tables`. */
void ist_crops_fill(uint32_t *upload, const ist_grids *grids, const ist_crops_layout *layout,
                    const ist_frame_image *image, ist_resize_order order, bool tables);

#endif
