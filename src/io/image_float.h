/* Floating point samples become 16-bit ones, of which a window is made like of any others. */
#ifndef IST_IO_IMAGE_FLOAT_H
#define IST_IO_IMAGE_FLOAT_H

#include "io/image.h"

/* What ist_format_bytes says of a bitmap of floats, which only containers make: 4. */
enum { IST_FLOAT_BYTES = sizeof(float) };

/* In place: the values from values[0] to values[1] as 0 to 65535, rounded, and what is beyond as these. Where both are
 * equal, as far as the picture's values go: the least and the greatest, but no further beyond its 0.1th and 99.9th
 * percentile than four times what is between these, so that a few wild ones do not take the levels of all others. What
 * is no number becomes 0. IST_E_INPUT where nothing is finite; bitmaps of other samples stay as they are. */
ist_status ist_bitmap_narrow(ist_bitmap *bitmap, const double values[2], const char *name, ist_error *err);

#endif
