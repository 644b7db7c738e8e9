/* The picture people look at: the image with tinted masks, contours, boxes and labels drawn on it.
 *
 * Line width and text size follow the image size. Colours follow the track where there is one, else the class; boxes
 * have a dark rim so that they show on bright photographs as well as on dark ultrasound. Labels never cover each other
 * and never leave the image; where there is no room for all, those of the lowest scores are left out. Names that are
 * too long for the image are cut. */
#ifndef IST_IO_OVERLAY_H
#define IST_IO_OVERLAY_H

#include "io/image.h"
#include "io/labels.h"
#include "io/prompts.h"

#include <stdbool.h>

/* How an overlay shows a frame. */
typedef struct ist_overlay_view {
    const ist_labels *labels;
    ist_match_mode match;
    bool apart; /* objects are what prompts or everything gave: each has a colour of its own, far from
                 *   those of masks around it; small masks lie on large ones; no boxes but those of
                 *   prompts; no labels where they would cover more than a quarter of the image */
    const ist_prompt_list *prompts; /* NULL, or drawn too: boxes, points as discs (1 green, 0 red); ist_object.match is
                                     * a place in it */
} ist_overlay_view;

/* Draws the objects of `frame` over `image` (same size; 16-bit samples through the frame's window) into a new RGB8 bitmap, the caller's to free. */
ist_status ist_overlay_draw(const ist_bitmap *image, const ist_frame *frame, const ist_overlay_view *view,
                            ist_bitmap *out, ist_error *err);

/* The plate behind a label's text. */
typedef struct ist_overlay_plate {
    int x, y, width, height;
    bool placed;
} ist_overlay_plate;

/* Gives plates of known width and height their places, the first of them before the others: in an image of that size,
 * none on another, each at its box (x0, y0, x1, y1, drawn with a line so thick) or as near to it as there is room. One
 * that fits nowhere is not placed. The first `fixed` of the `count` plates have their places, which need not be in the
 * image, and no boxes. */
void ist_overlay_place(int width, int height, int line, const int (*boxes)[4], ist_overlay_plate *plates, int fixed,
                       int count);

/* The colour of class or track number `key`: bright, and far from its neighbours' in hue. */
void ist_overlay_color(int key, uint8_t rgb[3]);

/* Coverage of one line of text, 0..255 per pixel, as a GRAY8 bitmap whose rows are packed; the caller's to free.
 * `size` is the font size in pixels. */
ist_status ist_overlay_text(const char *text, double size, ist_bitmap *out, ist_error *err);

#endif
