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

void ist_rle_free(ist_rle *rle);

#endif
