/* What each decoder makes: a size that is checked, and memory of it. Apart from the table of decoders, so that a format
 * which is a module of its own (optional/loaded.c) has these and no other format. */
#include "io/image_format.h"

#include "base/mem.h"
#include "base/sample_window.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

int ist_format_channels(ist_pixel_format format) {
    return (int)format & 0xF;
}

int ist_format_bytes(ist_pixel_format format) {
    return (int)format >> 4;
}

ist_status ist_bitmap_allocate(const char *name, size_t width, size_t height, ist_pixel_format format,
                               size_t max_pixels, ist_bitmap *out, ist_error *err) {
    size_t bytes, pixel = (size_t)(ist_format_channels(format) * ist_format_bytes(format));
    if (width < 1 || height < 1)
        return ist_fail(err, IST_E_INPUT, "%s: an image of %zu x %zu pixels", name, width, height);
    if (width > INT_MAX || height > INT_MAX || !ist_mul_size(width, height, &bytes) || bytes > max_pixels)
        return ist_fail(err, IST_E_LIMIT, "%s: %zu x %zu pixels are more than the limit of %zu", name, width, height,
                        max_pixels);
    if (!ist_mul_size(bytes, pixel, &bytes)) return ist_fail(err, IST_E_LIMIT, "%s: too large", name);
    void *pixels = malloc(bytes);
    if (!pixels)
        return ist_fail(err, IST_E_MEMORY, "%s: out of memory for %zu x %zu pixels (%zu bytes)", name, width, height,
                        bytes);
    *out = (ist_bitmap){
        .width = (int)width, .height = (int)height, .format = format, .stride = width * pixel, .pixels = pixels};
    return IST_OK;
}

/* Halves up; beyond what a window may be: that. */
static int nearest_sample(double s) {
    return (int)floor(fmin(fmax(s, -IST_WINDOW_MAX), IST_WINDOW_MAX) + 0.5);
}

void ist_bitmap_window(const ist_bitmap *b, double low, double high, int window[2]) {
    double zero = b->value_step != 0 ? b->value_zero : 0, step = b->value_step != 0 ? b->value_step : 1;
    double first = (low - zero) / step, last = (high - zero) / step;
    window[0] = nearest_sample(fmin(first, last));
    window[1] = nearest_sample(fmax(first, last));
    if (window[0] == IST_WINDOW_MAX) window[0]--;
    if (window[1] <= window[0]) window[1] = window[0] + 1;
    if (!window[0] && !window[1]) window[1] = 1;
}

void ist_bitmap_free(ist_bitmap *bitmap) {
    free(bitmap->pixels);
    *bitmap = (ist_bitmap){0};
}

void ist_image_size_set(ist_image_size *size, size_t width, size_t height, size_t pixel_bytes, size_t max_pixels) {
    if (!width || !height || width > max_pixels / height) return;
    size->pixels = width * height;
    size->decoded = size->pixels * pixel_bytes;
}
