/* The outline of a mask: closed loops along the borders of its pixels, for programs that draw lines. */
#ifndef IST_IO_OUTLINE_H
#define IST_IO_OUTLINE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Corners of loops, one loop after the other: loop i has counts[i] of them. Pixel (x, y) covers x - 0.5 to x + 0.5, so
 * that corners lie at halves. Loops around set pixels run clockwise on the screen (y down), those around holes the
 * other way; pixels that meet at a corner only are different loops. Zero-initialised is empty; reusable. */
typedef struct ist_outline {
    float (*corners)[2];
    size_t corner_count, corner_capacity;
    uint32_t *counts;
    size_t count, capacity;
} ist_outline;

/* Appends the loops of a mask. */
ist_status ist_outline_add(ist_outline *outline, const ist_mask *mask, ist_error *err);

/* Forgets the loops and keeps the room. */
void ist_outline_clear(ist_outline *outline);
void ist_outline_free(ist_outline *outline);

#endif
