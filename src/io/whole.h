/* Whether a file of an earlier run is there and whole, as far as its size and its end tell: what --resume may keep. */
#ifndef IST_IO_WHOLE_H
#define IST_IO_WHOLE_H

#include <stdbool.h>
#include <stddef.h>

/* A PNG of that size, from its signature to its IEND chunk. */
bool ist_png_is_whole(const char *path, int width, int height);

/* Text of so many lines, each with its end. */
bool ist_lines_are_whole(const char *path, size_t lines);

/* A file that ends with `tail`. */
bool ist_file_ends_with(const char *path, const char *tail);

#endif
