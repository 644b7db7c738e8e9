/* PNG's filters over whole rows of 8-bit samples (PNG specification, section 9). */
#ifndef IST_IO_PNG_ROWS_H
#define IST_IO_PNG_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `rows` holds `height` filtered rows, each a byte that names its filter and `row` bytes of samples. Undoes the filters
 * and moves the rows together: samples come to lie from `rows` on, `row` bytes apart. `pixel`: bytes per pixel, 1 to 4,
 * which divides `row`. False when a row names no filter; then the rows are of no use. */
bool ist_png_unfilter(uint8_t *rows, size_t height, size_t row, size_t pixel);

/* Writes one row behind the filter "average", 1 + row bytes. `up`: the row above, NULL for the first. */
void ist_png_filter_average(uint8_t *restrict to, const uint8_t *restrict from, const uint8_t *restrict up, size_t row,
                            size_t pixel);

#endif
