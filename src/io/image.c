/* Which decoder reads an image, and what networks see of it: see image.h. */
#include "io/image.h"

#include "base/sample_window.h"
#include "io/atomic_file.h"
#include "io/exif.h"
#include "io/frames.h"
#include "io/image_format.h"

#include <stdlib.h>
#include <string.h>

static uint8_t sample8(const ist_bitmap *image, int low, int high, const uint8_t *row, size_t index) {
    if (ist_format_bytes(image->format) == 1) return row[index];
    uint16_t wide;
    memcpy(&wide, row + 2 * index, sizeof wide);
    return ist_through_window(wide, low, high);
}

ist_status ist_bitmap_as_rgb(const ist_bitmap *image, int low, int high, ist_bitmap *out, ist_error *err) {
    size_t channels = (size_t)ist_format_channels(image->format);
    if (!low && !high) high = UINT16_MAX;
    IST_TRY(ist_bitmap_allocate("a copy", (size_t)image->width, (size_t)image->height, IST_RGB8, SIZE_MAX, out, err));
    for (int y = 0; y < image->height; y++) {
        const uint8_t *from = (const uint8_t *)image->pixels + (size_t)y * image->stride;
        uint8_t *to = (uint8_t *)out->pixels + (size_t)y * out->stride;
        if (image->format == IST_RGB8) {
            memcpy(to, from, 3 * (size_t)image->width);
            continue;
        }
        for (size_t x = 0; x < (size_t)image->width; x++)
            for (size_t c = 0; c < 3; c++)
                to[3 * x + c] = sample8(image, low, high, from, x * channels + (channels >= 3 ? c : 0));
    }
    return IST_OK;
}

/* A container whose one frame is the image. Where there are more, none may be lost in silence. */
static ist_status decode_frame(const void *bytes, size_t count, const char *name, size_t max_pixels, ist_bitmap *out,
                               ist_error *err) {
    ist_frames *frames = NULL;
    IST_TRY(ist_frames_open_bytes(bytes, count, name, max_pixels, &frames, err));
    size_t n = ist_frames_count(frames);
    ist_status status =
        n == 1 ? ist_frames_read(frames, 0, out, err)
               : ist_fail(err, IST_E_INPUT, "%s: has %zu frames; they are read where its name ends as its format's do",
                          name, n);
    ist_frames_close(&frames);
    return status;
}

ist_status ist_bitmap_decode(const void *bytes, size_t count, const char *name, size_t max_pixels, ist_bitmap *out,
                             ist_error *err) {
    static const char png[8] = {'\x89', 'P', 'N', 'G', '\r', '\n', '\x1A', '\n'};
    *out = (ist_bitmap){0};
    if (count == 0) return ist_fail(err, IST_E_INPUT, "%s: the file is empty", name);
    const ist_image_format *format = ist_image_format_of(bytes, count);
    if (ist_container_of(format, bytes, count)) return decode_frame(bytes, count, name, max_pixels, out, err);
    if (format && format->decode) {
        IST_TRY(format->decode(bytes, count, name, max_pixels, out, err));
        out->orientation = ist_exif_orientation(bytes, count);
        return IST_OK;
    }
    if (format) return ist_image_format_refuse(format, name, err);
    if (count < sizeof png && !memcmp(bytes, png, count))
        return ist_fail(err, IST_E_INPUT, "%s: the PNG is truncated after %zu bytes", name, count);
    return ist_fail(err, IST_E_INPUT, "%s: is no image (" IST_IMAGE_FORMATS " are read)", name);
}

ist_status ist_bitmap_read(const char *path, size_t max_pixels, ist_bitmap *out, ist_error *err) {
    char *bytes = NULL;
    size_t count = 0;
    *out = (ist_bitmap){0};
    IST_TRY(ist_read_file(path, IST_MAX_FILE_BYTES, &bytes, &count, err));
    ist_status status = ist_bitmap_decode(bytes, count, path, max_pixels, out, err);
    free(bytes);
    return status;
}
