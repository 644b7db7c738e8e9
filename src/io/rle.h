/* COCO run-length encoding of masks: runs down the columns, zeros first, and its compressed text form.
 * Source: the format as pycocotools reads and writes it. */
#ifndef IST_IO_RLE_H
#define IST_IO_RLE_H

#include "io/text.h"

#include <stdint.h>

/* Run lengths in column-major order, alternately of zeros and ones; their sum is width * height. Zero-initialised is
 * empty; reusable. */
typedef struct ist_rle {
    uint32_t *counts;
    size_t count, capacity;
} ist_rle;

/* Runs of a packed mask in an image of width x height (the product below 2^32). Bits outside of the image are ignored;
 * the mask's box must begin inside of it. */
ist_status ist_rle_encode(const ist_mask *mask, int width, int height, ist_rle *rle, ist_error *err);

/* Number of set pixels. */
uint64_t ist_rle_area(const ist_rle *rle);

/* Appends the `counts` string. */
void ist_rle_text(const ist_rle *rle, ist_text *text);

/* The runs that a `counts` string of an image of `pixels` stands for. IST_E_INPUT when it is damaged or its runs are
 * not as long as the image together. */
ist_status ist_rle_parse(const char *text, size_t length, uint64_t pixels, ist_rle *rle, ist_error *err);

/* Appends one run; false when out of memory. */
bool ist_rle_add(ist_rle *rle, uint32_t run);

/* Number of pixels set in both masks of one image size. */
uint64_t ist_rle_overlap(const ist_rle *a, const ist_rle *b);

/* Tight box x, y, width, height of the set pixels of an image of `height` rows; zeros when there are none. */
void ist_rle_box(const ist_rle *rle, int height, double box[4]);

void ist_rle_free(ist_rle *rle);

#endif
