/* The picture people look at: the image with tinted masks, contours, boxes and labels drawn on it.
 *
 * Line width and text size follow the image size. Colours follow the track where there is one, else the class; boxes
 * have a dark rim so that they show on bright photographs as well as on dark ultrasound. */
#ifndef IST_IO_OVERLAY_H
#define IST_IO_OVERLAY_H

#include "io/image.h"
#include "io/labels.h"

/* Draws the objects of `frame` over `image` (same size) into a new RGB8 bitmap, the caller's to free. */
ist_status ist_overlay_draw(const ist_bitmap *image, const ist_frame *frame, const ist_labels *labels,
                            ist_match_mode match, ist_bitmap *out, ist_error *err);

/* The colour of class or track number `key`: bright, and far from its neighbours' in hue. */
void ist_overlay_color(int key, uint8_t rgb[3]);

/* Coverage of one line of text, 0..255 per pixel, as a GRAY8 bitmap whose rows are packed; the caller's to free.
 * `size` is the font size in pixels. */
ist_status ist_overlay_text(const char *text, double size, ist_bitmap *out, ist_error *err);

#endif
