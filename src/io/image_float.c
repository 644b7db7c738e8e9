/* See image_float.h. */
#include "io/image_float.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BINS = 1 << 16, TAIL = 1000, REACH = 4 };

/* Finite values in order: of their bits, the upper half tells the bin. */
static size_t bin_of(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return (bits >> 31 ? ~bits : bits | 0x80000000u) >> 16;
}

/* The least value of a bin. */
static double least_of(size_t bin) {
    uint32_t bits = (uint32_t)bin << 16;
    float v;
    bits = bin < BINS / 2 ? ~bits : bits & 0x7fffffffu;
    memcpy(&v, &bits, sizeof v);
    return (double)v;
}

/* The bin of the sample of that rank, from the front or from the back. */
static size_t bin_at(const uint32_t *bins, size_t rank, bool from_back) {
    size_t i = from_back ? BINS - 1 : 0;
    for (size_t before = 0; (before += bins[i]) <= rank;) i += from_back ? (size_t)-1 : 1;
    return i;
}

/* As far as the values go; see the header. False: nothing is finite. */
static bool find_range(const float *p, size_t count, uint32_t *bins, double range[2]) {
    size_t finite = 0;
    range[0] = INFINITY, range[1] = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(p[i])) continue;
        range[0] = fmin(range[0], (double)p[i]), range[1] = fmax(range[1], (double)p[i]);
        bins[bin_of(p[i])]++;
        finite++;
    }
    if (!finite) return false;
    const size_t first = bin_at(bins, finite / TAIL, false), last = bin_at(bins, finite / TAIL, true);
    const double low = fmax(range[0], least_of(first));
    const double high = fmin(range[1], least_of(last + (last < BINS - 1)));
    const double reach = REACH * (high - low);
    if (reach > 0) range[0] = fmax(range[0], low - reach), range[1] = fmin(range[1], high + reach);
    return true;
}

ist_status ist_bitmap_narrow(ist_bitmap *b, const double values[2], const char *name, ist_error *err) {
    const size_t channels = (size_t)ist_format_channels(b->format);
    const size_t count = (size_t)b->width * (size_t)b->height * channels;
    double range[2] = {values[0], values[1]};
    if (ist_format_bytes(b->format) != IST_FLOAT_BYTES) return IST_OK;
    if (!(range[0] < range[1])) {
        uint32_t *bins = calloc(BINS, sizeof *bins);
        if (!bins) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", name);
        const bool any = find_range(b->pixels, count, bins, range);
        free(bins);
        if (!any) return ist_fail(err, IST_E_INPUT, "%s: none of its samples is a number", name);
    }
    const double width = range[1] > range[0] ? range[1] - range[0] : 1;
    const uint8_t *from = b->pixels;
    uint8_t *to = b->pixels;
    for (size_t i = 0; i < count; i++) { /* a sample is written where it, or one before it, was read */
        float v;
        memcpy(&v, from + sizeof v * i, sizeof v);
        const double share = isnan(v) ? 0 : ((double)v - range[0]) / width;
        const uint16_t sample = (uint16_t)floor(fmin(fmax(share, 0), 1) * UINT16_MAX + 0.5);
        memcpy(to + sizeof sample * i, &sample, sizeof sample);
    }
    void *less = realloc(b->pixels, sizeof(uint16_t) * count);
    if (less) b->pixels = less;
    b->format = (ist_pixel_format)((int)sizeof(uint16_t) << 4 | (int)channels);
    b->stride = sizeof(uint16_t) * channels * (size_t)b->width;
    b->value_zero = range[0], b->value_step = width / UINT16_MAX;
    b->needs_window = true;
    return IST_OK;
}
