/* PNG files of the common kind, fast. */
#ifndef IST_IO_PNG_PLAIN_H
#define IST_IO_PNG_PLAIN_H

#include "io/image.h"

#include <stdbool.h>

/* Decodes what is a PNG by its signature. False, with `out` empty, when the file is of another kind, too large, damaged
 * in any way, or memory is out: the general decoder has the word then. */
bool ist_png_decode_plain(const void *bytes, size_t count, size_t max_pixels, ist_bitmap *out);

#endif
