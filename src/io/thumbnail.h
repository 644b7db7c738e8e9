/* Small copies of pictures for pages: scaled by averages, as JPEG. */
#ifndef IST_IO_THUMBNAIL_H
#define IST_IO_THUMBNAIL_H

#include "io/image.h"

/* A JPEG in memory; zero-initialised is empty. */
typedef struct ist_thumbnail {
    int width, height;
    unsigned char *bytes;
    size_t count;
} ist_thumbnail;

/* The size of a copy whose longer side is `side` pixels at most; never larger than the picture, at least 1 x 1. */
void ist_thumbnail_size(int width, int height, int side, int *out_width, int *out_height);

/* Each pixel is the mean of those it stands for, seen as the networks see them (ist_bitmap_as_rgb, which takes the
 * window); `quality` from 1 to 100. */
ist_status ist_thumbnail_make(const ist_bitmap *image, const int window[2], int side, int quality, ist_thumbnail *out,
                              ist_error *err);

void ist_thumbnail_free(ist_thumbnail *thumbnail);

#endif
