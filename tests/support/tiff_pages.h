/* TIFFs without libtiff, gray, stored as they are: several pages of 8 bits, each a little wider than the one before;
 * one of floats. */
#ifndef TIFF_PAGES_H
#define TIFF_PAGES_H

#include "scratch.h"

#include <stdint.h>

static inline void tiff_put(uint8_t *p, uint32_t value, int bytes) {
    for (int i = 0; i < bytes; i++) p[i] = (uint8_t)(value >> 8 * i);
}

/* Page i is width + i pixels wide and has the value 10 + i everywhere. */
static inline void write_tiff_pages(const char *path, int pages, int width, int height) {
    enum { ENTRIES = 8, DIRECTORY = 2 + 12 * ENTRIES + 4 };
    size_t count = 8;
    for (int i = 0; i < pages; i++) count += DIRECTORY + ((size_t)(width + i) * (size_t)height + 1) / 2 * 2;
    uint8_t *file = calloc(count, 1), *p = file + 8;
    cr_assert_not_null(file);
    memcpy(file, "II*\0\10\0\0", 8);
    for (int i = 0; i < pages; i++) {
        uint32_t w = (uint32_t)(width + i), h = (uint32_t)height, bytes = w * h, at = (uint32_t)(p - file) + DIRECTORY;
        const uint32_t entries[ENTRIES][2] = {{256, w}, {257, h},  {258, 8}, {259, 1},
                                              {262, 1}, {273, at}, {278, h}, {279, bytes}};
        tiff_put(p, ENTRIES, 2);
        for (int k = 0; k < ENTRIES; k++) {
            uint8_t *e = p + 2 + 12 * k;
            tiff_put(e, entries[k][0], 2);
            tiff_put(e + 2, 4, 2);
            tiff_put(e + 4, 1, 4);
            tiff_put(e + 8, entries[k][1], 4);
        }
        uint32_t next = at + (bytes + 1) / 2 * 2;
        tiff_put(p + DIRECTORY - 4, i + 1 < pages ? next : 0, 4);
        memset(file + at, 10 + i, bytes);
        p = file + next;
    }
    scratch_write(path, file, count);
    free(file);
}

static inline void write_tiff_floats(const char *path, int width, int height, const float *values) {
    enum { ENTRIES = 9, DIRECTORY = 2 + 12 * ENTRIES + 4, AT = 8 + DIRECTORY };
    uint32_t w = (uint32_t)width, h = (uint32_t)height, bytes = 4 * w * h;
    const uint32_t entries[ENTRIES][2] = {{256, w},  {257, h}, {258, 32},    {259, 1}, {262, 1},
                                          {273, AT}, {278, h}, {279, bytes}, {339, 3}};
    uint8_t *file = calloc(AT + bytes, 1);
    cr_assert_not_null(file);
    memcpy(file, "II*\0\10\0\0", 8);
    tiff_put(file + 8, ENTRIES, 2);
    for (int k = 0; k < ENTRIES; k++) {
        uint8_t *e = file + 10 + 12 * k;
        tiff_put(e, entries[k][0], 2);
        tiff_put(e + 2, k == 8 ? 3 : 4, 2);
        tiff_put(e + 4, 1, 4);
        tiff_put(e + 8, entries[k][1], 4);
    }
    memcpy(file + AT, values, bytes);
    scratch_write(path, file, AT + bytes);
    free(file);
}

#endif
