/* What decoding an image will take, from its header alone: asked for before the memory is. */
#ifndef IST_IO_IMAGE_SIZE_H
#define IST_IO_IMAGE_SIZE_H

#include <stddef.h>

typedef struct ist_image_size {
    size_t pixels;  /* 0: it has more than the limit, or is no image: nothing will be decoded */
    size_t decoded; /* bytes of its bitmap, at most */
    size_t passing; /* bytes that only decoding needs: the file itself, coefficients of a progressive JPEG */
} ist_image_size;

/* Reads the header of a file. A JPEG whose size is not found counts as one of `max_pixels`. */
ist_image_size ist_image_measure(const char *path, size_t max_pixels);

/* The same of a file in memory, which takes part in `passing`. */
ist_image_size ist_image_measure_bytes(const void *bytes, size_t count, size_t max_pixels);

#endif
