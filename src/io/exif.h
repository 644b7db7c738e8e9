/* How a camera was held: the orientation in a picture's EXIF data, and turning a bitmap by it. */
#ifndef IST_IO_EXIF_H
#define IST_IO_EXIF_H

#include "io/image.h"

/* The orientation of a JPEG (its first EXIF segment), a PNG (eXIf) or a WebP (EXIF) in memory: 1, which is as it is
 * stored, to 8, numbered as in EXIF 2.3, 4.6.4; 0 where it says none that is known. */
int ist_exif_orientation(const void *bytes, size_t count);

/* Turns and mirrors the bitmap so that it lies as its orientation says, as Pillow's exif_transpose does, and makes
 * that 1. Needs a second bitmap for that long; on failure it stays as it was. */
ist_status ist_bitmap_turn(ist_bitmap *bitmap, ist_error *err);

#endif
