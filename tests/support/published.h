/* Reading what the published code answered (tests/golden/e2e, tests/golden/prompts). A failure ends the test. */
#ifndef IST_TESTS_PUBLISHED_H
#define IST_TESTS_PUBLISHED_H

#include "isthmus.h"

#include <jansson.h>

double published_number(const json_t *object, const char *key);
int published_integer(const json_t *object, const char *key);
const char *published_string(const json_t *object, const char *key);

/* The phantom, or its red channel as an 8-bit gray image; the pixels are the caller's to free. */
ist_image published_image(const json_t *phantom);

/* Pixel (x, y) of a mask. */
int published_bit(const ist_mask *m, int x, int y);

/* IoU of the mask with the stored samples: every step-th row and column, one bit each, high bit first. */
double published_iou(const ist_mask *m, const ist_frame *f, const json_t *samples);

#endif
