/* See exif.h. One number of what is in there is wanted, from data that may say anything: an own search, each step of
 * which is checked against the bytes that there are. */
#include "io/exif.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_ORIENTATION = 0x112, TYPE_SHORT = 3, TYPE_LONG = 4, ENTRY = 12 };

static uint32_t number(const uint8_t *p, int bytes, bool little) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint32_t)p[i] << 8 * (little ? i : bytes - 1 - i);
    return value;
}

/* In the first directory of a TIFF header, which EXIF data begin with, with or without "Exif\0\0" in front. */
static int in_directory(const uint8_t *p, size_t count) {
    if (count >= 6 && !memcmp(p, "Exif\0\0", 6)) p += 6, count -= 6;
    if (count < 8 || (memcmp(p, "II*\0", 4) && memcmp(p, "MM\0*", 4))) return 0;
    bool little = *p == 'I';
    size_t at = number(p + 4, 4, little);
    if (at > count || count - at < 2) return 0;
    size_t entries = number(p + at, 2, little);
    for (at += 2; entries-- > 0 && count - at >= ENTRY; at += ENTRY) {
        uint32_t type = number(p + at + 2, 2, little);
        if (number(p + at, 2, little) != TAG_ORIENTATION || (type != TYPE_SHORT && type != TYPE_LONG)) continue;
        uint32_t value = number(p + at + 8, type == TYPE_SHORT ? 2 : 4, little);
        return value >= 1 && value <= 8 ? (int)value : 0;
    }
    return 0;
}

static int of_jpeg(const uint8_t *p, size_t count) {
    size_t at = 2;
    while (at + 4 <= count) {
        if (p[at] != 0xFF || p[at + 1] == 0xFF || p[at + 1] == 0) { /* padding */
            at++;
            continue;
        }
        int marker = p[at + 1];
        size_t size = number(p + at + 2, 2, false);
        if (marker == 0xDA || marker == 0xD9) return 0; /* pixels, the end */
        if (marker == 1 || (marker >= 0xD0 && marker <= 0xD8)) {
            at += 2;
            continue;
        }
        if (size < 2 || size > count - at - 2) return 0;
        if (marker == 0xE1 && size >= 8 && !memcmp(p + at + 4, "Exif\0\0", 6))
            return in_directory(p + at + 4, size - 2);
        at += 2 + size;
    }
    return 0;
}

/* Chunks of a name and a size, in either order, from `at` on. */
static int of_chunks(const uint8_t *p, size_t count, size_t at, bool png) {
    while (at <= count && count - at >= 8) {
        size_t size = number(p + at + (png ? 0 : 4), 4, !png);
        const uint8_t *name = p + at + (png ? 4 : 0);
        if (size > count - at - 8) return 0;
        if (!memcmp(name, png ? "eXIf" : "EXIF", 4)) return in_directory(p + at + 8, size);
        at += 8 + size + (png ? 4 : size % 2);
    }
    return 0;
}

int ist_exif_orientation(const void *bytes, size_t count) {
    const uint8_t *p = bytes;
    if (count > 3 && p[0] == 0xFF && p[1] == 0xD8) return of_jpeg(p, count);
    if (count > 8 && !memcmp(p, "\x89PNG\r\n\x1A\n", 8)) return of_chunks(p, count, 8, true);
    if (count > 12 && !memcmp(p, "RIFF", 4) && !memcmp(p + 8, "WEBP", 4)) return of_chunks(p, count, 12, false);
    return 0;
}

/* Pixel (x, y) of `to` is at from + x * right + y * down; `size` is a constant where this is called. */
static inline __attribute__((always_inline)) void copy_turned(const ist_bitmap *to, const uint8_t *from,
                                                              ptrdiff_t right, ptrdiff_t down, size_t size) {
    for (int y = 0; y < to->height; y++) {
        uint8_t *row = (uint8_t *)to->pixels + (size_t)y * to->stride;
        const uint8_t *p = from + y * down;
        for (int x = 0; x < to->width; x++, p += right) memcpy(row + (size_t)x * size, p, size);
    }
}

ist_status ist_bitmap_turn(ist_bitmap *bitmap, ist_error *err) {
    const int o = bitmap->orientation, w = bitmap->width, h = bitmap->height;
    if (o <= 1) return IST_OK;
    bool across = o >= 5; /* rows become columns */
    bool from_right = o == 2 || o == 3 || o == 7 || o == 8, from_below = o == 3 || o == 4 || o == 6 || o == 7;
    size_t size = (size_t)(ist_format_channels(bitmap->format) * ist_format_bytes(bitmap->format));
    ist_bitmap turned;
    IST_TRY(ist_bitmap_allocate("a turned picture", (size_t)(across ? h : w), (size_t)(across ? w : h), bitmap->format,
                                SIZE_MAX, &turned, err));
    ptrdiff_t along = (ptrdiff_t)size * (from_right ? -1 : 1),
              below = (ptrdiff_t)bitmap->stride * (from_below ? -1 : 1);
    const uint8_t *from = bitmap->pixels;
    if (from_right) from += (size_t)(w - 1) * size;
    if (from_below) from += (size_t)(h - 1) * bitmap->stride;
    ptrdiff_t right = across ? below : along, down = across ? along : below;
    switch (size) {
    case 1:
        copy_turned(&turned, from, right, down, 1);
        break;
    case 2:
        copy_turned(&turned, from, right, down, 2);
        break;
    case 3:
        copy_turned(&turned, from, right, down, 3);
        break;
    case 4:
        copy_turned(&turned, from, right, down, 4);
        break;
    case 6:
        copy_turned(&turned, from, right, down, 6);
        break;
    default:
        copy_turned(&turned, from, right, down, 8);
    }
    void *pixels = turned.pixels;
    size_t stride = turned.stride;
    turned = *bitmap; /* what else is known of it */
    turned.width = across ? h : w;
    turned.height = across ? w : h;
    turned.stride = stride;
    turned.pixels = pixels;
    turned.orientation = 1;
    ist_bitmap_free(bitmap);
    *bitmap = turned;
    return IST_OK;
}
