/* Preprocessing on the device: raw pixels of any format -> network input, bit-exact with Pillow's BILINEAR.
 *
 * The upload (frame.h) describes each image; the pixels lie in the same buffer or, for images that are on the device
 * already, in another one. Gray is replicated, alpha dropped, 16-bit samples become round(v / 257) before resampling.
 * All images of a batch share one pixel buffer. */
#ifndef IST_OPS_IMAGE_H
#define IST_OPS_IMAGE_H

#include "core/plan.h"
#include "ops/frame.h"

/* Longest axis a tap table is made for. */
#define IST_RESIZE_MAX 65536

/* ---- host: filling an upload ---- */

/* Words of the tap table for n_in -> n_out, and the table itself (computed in double as Pillow does). Depends on the
 * two numbers only. 1 <= n_in, n_out <= IST_RESIZE_MAX. */
size_t ist_resize_taps_words(int n_in, int n_out);
void ist_resize_taps(int n_in, int n_out, uint32_t *table);

/* Size of a W x H image inside the segmenter's input: longest side 1024 (SAM's ResizeLongestSide), at least 1. */
void ist_segmenter_size(int width, int height, int *w, int *h);

typedef struct ist_frame_image {
    int width, height, channels, sample_bytes;
    uint64_t offset;                     /* first byte of the pixels in the pixel buffer */
    uint32_t stride;                     /* bytes per row, not 0 */
    uint32_t det_x, det_y, seg_x, seg_y; /* word offsets of the tap tables; seg_* 0 without a segmenter */
    int targets;
    uint32_t target_at; /* word offset */
} ist_frame_image;

/* Writes the block of image i. */
void ist_upload_image(uint32_t *upload, int i, const ist_frame_image *image);

/* ---- device ---- */

/* What the detector's input has for white. 1 would be the published network's: of its levels k / 255 half holds two,
 * of k / 256 all. The first filter makes up for it. */
#define IST_DETECTOR_WHITE (255.0f / 256)

/* [batch, size, size, 3] of elem T, 0 to IST_DETECTOR_WHITE: value / 256, exact. `upload` and `pixels` are external
 * buffers. Images from the upload's count on are not written. */
ist_tensor ist_op_resize_detector(ist_plan *p, ist_tensor upload, ist_tensor pixels, int batch, int size,
                                  const char *label);
/* [batch, 1024, 1024, 3] of elem T: (value - mean) / std inside the resized image, 0 outside (preprocess of
 * segment-anything's modeling/sam.py). */
ist_tensor ist_op_resize_segmenter(ist_plan *p, ist_tensor upload, ist_tensor pixels, int batch, const char *label);
/* [1,1,batch,2] I32, a view of the upload: width and height of each image inside that input. */
ist_tensor ist_segmenter_content(ist_tensor upload, int batch);

#endif
