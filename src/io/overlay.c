/* Drawing results on images, in which order: see overlay.h. Lowest score first, so that the best object lies on top;
 * told apart, the largest mask first, so that none is hidden. */
#include "io/overlay_canvas.h"

#include "base/mem.h"

#include <stdlib.h>

/* The frame of a rectangle, `width` thick, centred on its border. */
static void draw_frame(const ist_canvas *c, const int box[4], int width, const uint8_t rgb[3], int alpha) {
    int out = width / 2, in = width - out;
    int x0 = box[0] - out, y0 = box[1] - out, x1 = box[2] + in, y1 = box[3] + in;
    ist_fill(c->image, x0, y0, x1, y0 + width, rgb, alpha);
    ist_fill(c->image, x0, y1 - width, x1, y1, rgb, alpha);
    ist_fill(c->image, x0, y0 + width, x0 + width, y1 - width, rgb, alpha);
    ist_fill(c->image, x1 - width, y0 + width, x1, y1 - width, rgb, alpha);
}

void ist_canvas_box(const ist_canvas *c, const float from[4], const uint8_t rgb[3]) {
    static const uint8_t black[3] = {0, 0, 0};
    int box[4], rim = c->line > 1 ? (c->line + 1) / 2 : 0;
    ist_pixel_box(c, from, box);
    if (rim) draw_frame(c, box, c->line + 2 * rim, black, 110);
    draw_frame(c, box, c->line, rgb, 255);
}

/* An object's place in the frame, in the order of drawing. */
typedef struct layer {
    int area, index;
} layer;

static int compare_layers(const void *a, const void *b) {
    const layer *p = a, *q = b;
    if (p->area != q->area) return p->area < q->area ? 1 : -1;
    return (p->index < q->index) - (p->index > q->index);
}

static void draw_masks(const ist_canvas *c, const ist_frame *frame, const ist_overlay_view *view, layer *layers,
                       const uint8_t (*colors)[3]) {
    size_t n = (size_t)frame->object_count;
    for (size_t i = 0; i < n; i++) layers[i] = (layer){view->apart ? frame->objects[i].area : 0, (int)i};
    qsort(layers, n, sizeof *layers, compare_layers);
    for (size_t i = 0; i < n; i++) ist_canvas_mask(c, &frame->objects[layers[i].index].mask, colors[layers[i].index]);
}

static ist_status draw_all(const ist_canvas *c, const ist_frame *frame, const ist_overlay_view *view, ist_error *err) {
    size_t n = frame->object_count > 0 ? (size_t)frame->object_count : 1;
    uint8_t(*colors)[3] = calloc(n, sizeof *colors);
    layer *layers = calloc(n, sizeof *layers);
    ist_status status = IST_OK;
    if (colors && layers) {
        const uint8_t(*known)[3] = (const uint8_t(*)[3])colors;
        ist_overlay_colors(frame, view, colors);
        draw_masks(c, frame, view, layers, known);
        for (int i = frame->object_count - 1; i >= 0 && !view->apart; i--)
            ist_canvas_box(c, frame->objects[i].box, known[i]);
        if (view->prompts) ist_canvas_prompt_boxes(c, frame, view->prompts, known);
        status = ist_canvas_labels(c, frame, view, known, err);
        if (view->prompts) ist_canvas_points(c, view->prompts);
    } else {
        status = ist_fail(err, IST_E_MEMORY, "out of memory for %zu colours", n);
    }
    free(colors);
    free(layers);
    return status;
}

ist_status ist_overlay_draw(const ist_bitmap *image, const ist_frame *frame, const ist_overlay_view *view,
                            ist_bitmap *out, ist_error *err) {
    ist_bitmap under = {0};
    const int low = frame->window_low, high = frame->window_high;
    IST_TRY(ist_bitmap_as_rgb(image, low, high, out, err));
    ist_status status = view->apart ? ist_bitmap_as_rgb(image, low, high, &under, err) : IST_OK;
    double side = ((double)image->width + image->height) / 2;
    ist_canvas c = {.image = out,
                    .under = view->apart ? &under : NULL,
                    .line = (int)lround(side * 0.003),
                    .font = fmin(fmax(side * 0.022, 12), 96)};
    int least = side < 160 ? 1 : 2;
    if (c.line < least) c.line = least;
    if (!status) status = draw_all(&c, frame, view, err);
    ist_bitmap_free(&under);
    if (status) ist_bitmap_free(out);
    return status;
}
