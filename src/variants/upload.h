/* Filling an upload (graph/frame.h) on the host: what RESIZE reads of each image.
 *
 * The pixels lie in the same buffer or, for images that are on the device already, in another one; all images of a
 * batch share one. Gray is replicated, alpha dropped, 16-bit samples go through their window before resampling. */
#ifndef IST_VARIANTS_UPLOAD_H
#define IST_VARIANTS_UPLOAD_H

#include "graph/frame.h"
#include "isthmus.h"

#include <stdbool.h>

/* Longest axis a tap table is made for. */
#define IST_RESIZE_MAX 65536

/* What most segmenters read. */
#define IST_SEGMENTER_SIDE 1024

/* Words of the tap table for n_in -> n_out, and the table itself (computed in double as Pillow does). Depends on the
 * two numbers only. 1 <= n_in, n_out <= IST_RESIZE_MAX. */
size_t ist_resize_taps_words(int n_in, int n_out);
void ist_resize_taps(int n_in, int n_out, uint32_t *table);

/* Size of a W x H image inside the segmenter's input: longest side `side` (SAM's ResizeLongestSide), at least 1. */
void ist_segmenter_size(int side, int width, int height, int *w, int *h);

/* Whether a picture of w x h is resampled to to_w x to_h vertically first. */
bool ist_resize_vertical_first(ist_resize_order order, int w, int h, int to_w, int to_h);

typedef struct ist_frame_image {
    int width, height, channels, sample_bytes;
    uint64_t offset;                     /* first byte of the pixels in the pixel buffer */
    uint32_t stride;                     /* bytes per row, not 0 */
    uint32_t det_x, det_y, seg_x, seg_y; /* word offsets of the tap tables; seg_* 0 without a segmenter */
    int targets;
    uint32_t target_at;              /* word offset */
    int seg_side;                    /* of the segmenter's input; 0: IST_SEGMENTER_SIDE */
    bool det_vertical, seg_vertical; /* see ist_resize_vertical_first */
    int low, high;                   /* of 16-bit samples; both 0: 0..65535, or found on the device */
    bool automatic;
    int crop_x, crop_y, whole_width, whole_height; /* of a crop; sides 0: the image is no crop */
} ist_frame_image;

/* Writes the block of image i. */
void ist_upload_image(uint32_t *upload, int i, const ist_frame_image *image);

#endif
