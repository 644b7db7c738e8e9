/* How a 16-bit sample becomes one of the 8 bits that networks read: round(255 (v - low) / (high - low)), halves up, 0
 * below low and 255 above high. Integers, so that host and device have the same. 0..65535 is round(v / 257). */
#ifndef IST_BASE_SAMPLE_WINDOW_H
#define IST_BASE_SAMPLE_WINDOW_H

#include <stdint.h>

/* Windows lie in -IST_WINDOW_MAX..IST_WINDOW_MAX, so that 32 bits are enough. */
#define IST_WINDOW_MAX 1000000

/* Largest image an automatic window is made of, pixels: its samples are counted in 32 bits. */
#define IST_WINDOW_PIXELS_MAX 1000000000

static inline uint8_t ist_through_window(int v, int low, int high) {
    uint32_t width = (uint32_t)(high - low), above = v <= low ? 0 : v >= high ? width : (uint32_t)(v - low);
    return (uint8_t)((510 * above + width) / (2 * width));
}

#endif
