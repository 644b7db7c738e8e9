/* CMYK to RGB as Pillow converts it: c, m and y scale what k leaves of white, rounded as its MULDIV255 does. */
#ifndef IST_IO_IMAGE_CMYK_H
#define IST_IO_IMAGE_CMYK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `many` pixels of four samples to three. `inverted`: 255 is no ink, as Adobe has it in JPEGs. From may be to. */
static inline void ist_cmyk_to_rgb(const uint8_t *from, uint8_t *to, size_t many, bool inverted) {
    for (size_t i = 0; i < many; i++, from += 4, to += 3) {
        unsigned white = inverted ? from[3] : 255u - from[3];
        for (int c = 0; c < 3; c++) {
            unsigned ink = inverted ? 255u - from[c] : from[c], product = ink * white + 128;
            to[c] = (uint8_t)(white - ((product + (product >> 8)) >> 8));
        }
    }
}

#endif
