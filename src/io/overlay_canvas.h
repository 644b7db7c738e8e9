/* What the parts of an overlay (overlay_*.c) draw on and share; only they include this. */
#ifndef IST_IO_OVERLAY_CANVAS_H
#define IST_IO_OVERLAY_CANVAS_H

#include "io/overlay.h"

#include <math.h>

typedef struct ist_canvas {
    ist_bitmap *image;       /* RGB8 */
    const ist_bitmap *under; /* RGB8: the image as it was, of which masks are tints; NULL: of what lies below them */
    int line;                /* box line width in pixels */
    double font;             /* text size in pixels */
} ist_canvas;

static inline uint8_t ist_mixed(int below, int above, int alpha) {
    return (uint8_t)(below + (above - below) * alpha / 255);
}

static inline void ist_blend(const ist_bitmap *image, int x, int y, const uint8_t rgb[3], int alpha) {
    if (x < 0 || y < 0 || x >= image->width || y >= image->height) return;
    uint8_t *p = (uint8_t *)image->pixels + (size_t)y * image->stride + 3 * (size_t)x;
    for (int c = 0; c < 3; c++) p[c] = ist_mixed(p[c], rgb[c], alpha);
}

static inline void ist_fill(const ist_bitmap *image, int x0, int y0, int x1, int y1, const uint8_t rgb[3], int alpha) {
    x0 = x0 < 0 ? 0 : x0;
    y0 = y0 < 0 ? 0 : y0;
    x1 = x1 > image->width ? image->width : x1;
    y1 = y1 > image->height ? image->height : y1;
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++) ist_blend(image, x, y, rgb, alpha);
}

/* Far outside is as good as just outside. */
static inline int ist_to_pixel(float value, int size) {
    return (int)lroundf(fminf(fmaxf(value, -64), (float)size + 64));
}

/* A box of floats in whole pixels. */
static inline void ist_pixel_box(const ist_canvas *c, const float from[4], int box[4]) {
    for (int i = 0; i < 4; i++) box[i] = ist_to_pixel(from[i], i % 2 ? c->image->height : c->image->width);
}

/* Of a point with its rings (overlay_prompts.c). */
double ist_disc_radius(int line);

/* The mask's pixels tinted, its contour opaque (overlay_mask.c). */
void ist_canvas_mask(const ist_canvas *c, const ist_mask *mask, const uint8_t rgb[3]);

/* A rectangle with a dark rim (overlay.c). */
void ist_canvas_box(const ist_canvas *c, const float box[4], const uint8_t rgb[3]);

/* A label at each object, colours[i] the i-th's (overlay_labels.c). */
ist_status ist_canvas_labels(const ist_canvas *c, const ist_frame *frame, const ist_overlay_view *view,
                             const uint8_t (*colors)[3], ist_error *err);

/* Boxes of prompts, in the colours of their objects; discs for their points, green for 1, red for 0
 * (overlay_prompts.c). */
void ist_canvas_prompt_boxes(const ist_canvas *c, const ist_frame *frame, const ist_prompt_list *prompts,
                             const uint8_t (*colors)[3]);
void ist_canvas_points(const ist_canvas *c, const ist_prompt_list *prompts);

/* A colour for each object, `count` of them; with `apart`, of masks that touch each other far apart (overlay_colors.c).
 */
void ist_overlay_colors(const ist_frame *frame, const ist_overlay_view *view, uint8_t (*colors)[3]);

#endif
