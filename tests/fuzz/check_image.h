/* What must hold of an image file, whatever its format: the size asked for beforehand is no less than what decoding
 * takes, and the bitmap has every byte that it promises. */
#ifndef CHECK_IMAGE_H
#define CHECK_IMAGE_H

#define _GNU_SOURCE /* memfd_create */
#include "io/image.h"
#include "io/image_size.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { IMAGE_LIMIT = 1 << 16 }; /* pixels: small, so that memory stays small */

/* The same bytes as a file. */
static inline ist_image_size image_measure(const void *data, size_t size) {
    static int fd;
    char path[40];
    if (!fd) fd = memfd_create("fuzz", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size) abort();
    return ist_image_measure(path, IMAGE_LIMIT);
}

/* Decodes; false, and an empty bitmap, for what is no image. */
static inline bool image_decode(const void *data, size_t size, ist_bitmap *b) {
    ist_error err = {0};
    if (ist_bitmap_decode(data, size, "fuzz", IMAGE_LIMIT, b, &err)) {
        if (b->pixels || !err.text[0]) abort();
        return false;
    }
    size_t bytes = b->stride * (size_t)b->height;
    ist_image_size asked = image_measure(data, size);
    if (asked.pixels < (size_t)b->width * (size_t)b->height || asked.decoded < bytes || asked.passing < size) abort();
    void *copy = malloc(bytes); /* for the address sanitizer to see */
    if (copy) memcpy(copy, b->pixels, bytes);
    free(copy);
    return true;
}

#endif
