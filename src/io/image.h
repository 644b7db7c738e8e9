/* Still images in, told apart by content: PNG through libpng and ISA-L, JPEG through libturbojpeg, the other rows of
 * the table in image_format.h.
 *
 * The pixels stay in the file's own form, as far as ist_pixel_format goes: 8 or 16 bit (host order), gray or colour,
 * with or without alpha. Palettes and depths below 8 are expanded; a transparent colour becomes an alpha channel;
 * gamma and colour profiles are not applied, CMYK becomes RGB as Pillow makes it, and EXIF orientation is told only
 * (exif.h applies it). Every size is checked against the limit before memory is
 * asked for. Damage of any kind (truncation, a wrong checksum) is an error, never a half-gray image; only the marker
 * that ends a JPEG may be missing, where nothing else can be. */
#ifndef IST_IO_IMAGE_H
#define IST_IO_IMAGE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The pixel limit that users meet when nothing else is said: 8192 x 8192. */
#define IST_MAX_PIXELS 67108864

/* No image within the pixel limit needs a larger file: four 16-bit channels stored without compression. */
#define IST_MAX_FILE_BYTES ((size_t)1 << 30)

/* What there are, for sentences. */
#define IST_IMAGE_FORMATS "PNG, JPEG, DICOM, TIFF, video, WebP, BMP, PNM"

/* Rows are packed: stride = width * channels * bytes per sample. */
typedef struct ist_bitmap {
    int width, height;
    ist_pixel_format format;
    size_t stride;
    void *pixels;                  /* owned */
    int orientation;               /* as in EXIF, 1 to 8; 0: the file says none */
    int window_low, window_high;   /* of 16-bit samples, what the file says becomes black and white; both 0: nothing */
    double value_zero, value_step; /* sample s stands for the value zero + step * s of whoever made it; step 0: for s */
    bool needs_window;             /* black and white follow from nothing else: floating point samples */
} ist_bitmap;

/* The samples that become black and white where the values `low` to `high` do, low below high. */
void ist_bitmap_window(const ist_bitmap *bitmap, double low, double high, int window[2]);

/* Samples per pixel and bytes per sample of a format. */
int ist_format_channels(ist_pixel_format format);
int ist_format_bytes(ist_pixel_format format);

/* Decodes a file in memory; `name` is for the error sentence only. On success the bitmap is the caller's to free;
 * on failure it is empty. */
ist_status ist_bitmap_decode(const void *bytes, size_t count, const char *name, size_t max_pixels, ist_bitmap *out,
                             ist_error *err);

/* Reads and decodes a file. */
ist_status ist_bitmap_read(const char *path, size_t max_pixels, ist_bitmap *out, ist_error *err);

/* Allocates `out` for width x height after checking both against the limit; for the decoders. */
ist_status ist_bitmap_allocate(const char *name, size_t width, size_t height, ist_pixel_format format,
                               size_t max_pixels, ist_bitmap *out, ist_error *err);

void ist_bitmap_free(ist_bitmap *bitmap);

/* What the networks see of an image, as a new RGB8 bitmap: gray replicated, no alpha, 16 bit through the window of
 * base/sample_window.h, of 0 and 65535 where both are 0. */
ist_status ist_bitmap_as_rgb(const ist_bitmap *image, int low, int high, ist_bitmap *out, ist_error *err);

/* The decoders behind ist_bitmap_decode; same contract. */
ist_status ist_png_decode(const void *bytes, size_t count, const char *name, size_t max_pixels, ist_bitmap *out,
                          ist_error *err);
ist_status ist_jpeg_decode(const void *bytes, size_t count, const char *name, size_t max_pixels, ist_bitmap *out,
                           ist_error *err);

/* Writes GRAY8, GRAY16, RGB8 or RGB16 as PNG, complete or not at all. */
ist_status ist_png_write(const char *path, const ist_bitmap *bitmap, ist_error *err);

/* Writes the same to a stream; `name` is for the error sentence only. */
ist_status ist_png_write_stream(FILE *stream, const char *name, const ist_bitmap *bitmap, ist_error *err);

#endif
