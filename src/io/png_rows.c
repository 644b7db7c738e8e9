/* Filters of rows: see png_rows.h.
 *
 * Undoing Sub, Average and Paeth is a chain from pixel to pixel; the samples of a pixel are chains beside each other.
 * So these loops are compiled once for each number of samples, with what a chain carries in registers. */
#include "io/png_rows.h"

#include <stdlib.h>
#include <string.h>

enum { NONE, SUB, UP, AVERAGE, PAETH };

#define INLINE static inline __attribute__((always_inline))

/* Which of a, b and c is nearest to a + b - c, in this order. With `third` for 3c - a - b: that is the larger of a and
 * b where third <= both, the smaller one where third >= both, and c between; without branches, which photographs would
 * make at random. */
INLINE int paeth(int a, int b, int c) {
    int low = a < b ? a : b, high = a < b ? b : a, third = 3 * c - (a + b);
    int nearest = third <= low ? high : c;
    return high <= third ? low : nearest;
}

INLINE void undo_sub(uint8_t *p, size_t row, size_t n) {
    uint8_t left[4] = {0};
    for (size_t x = 0; x < row; x += n)
        for (size_t i = 0; i < n; i++) p[x + i] = left[i] = (uint8_t)(p[x + i] + left[i]);
}

INLINE void undo_average(uint8_t *p, const uint8_t *up, size_t row, size_t n) {
    uint8_t left[4] = {0};
    for (size_t x = 0; x < row; x += n)
        for (size_t i = 0; i < n; i++) p[x + i] = left[i] = (uint8_t)(p[x + i] + ((left[i] + up[x + i]) >> 1));
}

INLINE void undo_paeth(uint8_t *p, const uint8_t *up, size_t row, size_t n) {
    int left[4] = {0}, corner[4] = {0};
    for (size_t x = 0; x < row; x += n)
        for (size_t i = 0; i < n; i++) {
            int above = up[x + i];
            left[i] = (uint8_t)(p[x + i] + paeth(left[i], above, corner[i]));
            corner[i] = above;
            p[x + i] = (uint8_t)left[i];
        }
}

INLINE void undo(int filter, uint8_t *p, const uint8_t *up, size_t row, size_t n) {
    if (filter == SUB) undo_sub(p, row, n);
    if (filter == AVERAGE) undo_average(p, up, row, n);
    if (filter == PAETH) undo_paeth(p, up, row, n);
}

static void undo_up(uint8_t *restrict p, const uint8_t *restrict up, size_t row) {
    for (size_t i = 0; i < row; i++) p[i] = (uint8_t)(p[i] + up[i]);
}

bool ist_png_unfilter(uint8_t *rows, size_t height, size_t row, size_t pixel) {
    uint8_t *zeros = calloc(row ? row : 1, 1); /* above the first row */
    if (!zeros) return false;
    bool known = true;
    const uint8_t *up = zeros;
    for (size_t y = 0; y < height && known; y++) {
        const uint8_t *from = rows + y * (row + 1);
        uint8_t *p = rows + y * row;
        int filter = *from;
        memmove(p, from + 1, row);
        known = filter <= PAETH;
        if (filter == UP)
            undo_up(p, up, row);
        else if (pixel == 1)
            undo(filter, p, up, row, 1);
        else if (pixel == 2)
            undo(filter, p, up, row, 2);
        else if (pixel == 3)
            undo(filter, p, up, row, 3);
        else
            undo(filter, p, up, row, 4);
        up = p;
    }
    free(zeros);
    return known;
}

void ist_png_filter_average(uint8_t *restrict to, const uint8_t *restrict from, const uint8_t *restrict up, size_t row,
                            size_t pixel) {
    *to++ = AVERAGE;
    for (size_t i = 0; i < row && i < pixel; i++) to[i] = (uint8_t)(from[i] - ((up ? up[i] : 0) >> 1));
    if (up)
        for (size_t i = pixel; i < row; i++) to[i] = (uint8_t)(from[i] - ((from[i - pixel] + up[i]) >> 1));
    else
        for (size_t i = pixel; i < row; i++) to[i] = (uint8_t)(from[i] - (from[i - pixel] >> 1));
}
