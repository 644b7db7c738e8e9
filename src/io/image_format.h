/* The table of file formats that images come in: one row each, one file each.
 *
 * A format of one picture (PNG, JPEG, BMP, PNM) has a decoder of files in memory; one of any number (TIFF) is a container,
 * which is opened and read frame by frame: see frames.h. WebP has both. Rows whose library was not there when isthmus was
 * built are there all the same, with neither: their files are recognised, and refused by name. */
#ifndef IST_IO_IMAGE_FORMAT_H
#define IST_IO_IMAGE_FORMAT_H

#include "io/byte_source.h"
#include "io/image.h"
#include "io/image_size.h"

#include <stdbool.h>

enum { IST_IMAGE_HEAD = 512 }; /* bytes from the beginning that tell what a file is, and most sizes */

/* A container. `state` is what open has made; it may keep `source` and `name`, which live as long. */
typedef struct ist_container {
    /* Frames and what the largest of them takes (its `passing` not counting the file), without decoding any. */
    ist_status (*open)(const ist_byte_source *source, const char *name, size_t max_pixels, void **state, size_t *frames,
                       ist_image_size *largest, ist_error *err);
    /* Frame 0 ..; any order, each as often as wanted. Formats that only run forward begin again to go back. */
    ist_status (*read)(void *state, size_t frame, ist_bitmap *out, ist_error *err);
    void (*close)(void *state);
    bool has_windows; /* bitmaps of 16 bits may tell the window that they are to be seen through */
} ist_container;

typedef struct ist_image_format {
    const char *name;       /* as people write it */
    const char *extensions; /* of its files, lower case, each with a dot and a blank behind */
    const char *package;    /* Debian's, of the optional library; NULL: isthmus needs none, or always has it */
    bool (*recognise)(const unsigned char *head, size_t count);
    /* Pixels and memory by the header; pixels stays 0 where nothing will be decoded, and *unclear is set where more of
     * the file had to be read to know. `passing` does not count the file. */
    void (*measure)(const unsigned char *head, size_t count, size_t max_pixels, ist_image_size *size, bool *unclear);
    ist_status (*decode)(const void *bytes, size_t count, const char *name, size_t max_pixels, ist_bitmap *out,
                         ist_error *err);
    const ist_container *container;
    bool (*in_frames)(const unsigned char *head, size_t count); /* of both, whether this file is the container's */
    const char *version; /* of the optional library; NULL: none */
} ist_image_format;

/* The row of a file that begins so; NULL: of no format. */
const ist_image_format *ist_image_format_of(const unsigned char *head, size_t count);

/* Rows in order; NULL behind the last one. */
const ist_image_format *ist_image_format_at(size_t index);

/* Whether files are read, and not only recognised. */
static inline bool ist_image_format_is_read(const ist_image_format *format) {
    return format->decode || format->container;
}

/* The container that a file which begins so is read by; NULL: by none. `format` may be NULL. */
static inline const ist_container *ist_container_of(const ist_image_format *format, const unsigned char *head,
                                                    size_t count) {
    if (!format || (format->decode && !(format->in_frames && format->in_frames(head, count)))) return NULL;
    return format->container;
}

/* "a.tif: is a TIFF file, which this isthmus was built without" */
ist_status ist_image_format_refuse(const ist_image_format *format, const char *name, ist_error *err);

/* Whether a file's name ends as those of any format do, which is what makes it an image of a folder; and as those of a
 * container do, so that it may have several frames. */
bool ist_is_image_name(const char *name);
bool ist_is_container_name(const char *name);

/* Sets a size after checking it against the limit, for `measure`. */
void ist_image_size_set(ist_image_size *size, size_t width, size_t height, size_t pixel_bytes, size_t max_pixels);

/* Rows of the table that are files of their own. */
ist_status ist_bmp_decode(const void *bytes, size_t count, const char *name, size_t max_pixels, ist_bitmap *out,
                          ist_error *err);
void ist_bmp_measure(const unsigned char *head, size_t count, size_t max_pixels, ist_image_size *size, bool *unclear);
ist_status ist_pnm_decode(const void *bytes, size_t count, const char *name, size_t max_pixels, ist_bitmap *out,
                          ist_error *err);
void ist_pnm_measure(const unsigned char *head, size_t count, size_t max_pixels, ist_image_size *size, bool *unclear);
ist_status ist_webp_decode(const void *bytes, size_t count, const char *name, size_t max_pixels, ist_bitmap *out,
                           ist_error *err);
void ist_webp_measure(const unsigned char *head, size_t count, size_t max_pixels, ist_image_size *size, bool *unclear);
bool ist_webp_in_frames(const unsigned char *head, size_t count);
extern const ist_container ist_tiff_container, ist_dicom_container, ist_video_container, ist_webp_container;

#endif
