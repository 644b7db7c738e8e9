/* Prompts on overlays: see overlay_canvas.h. */
#include "io/overlay_canvas.h"

void ist_canvas_prompt_boxes(const ist_canvas *c, const ist_frame *frame, const ist_prompt_list *prompts,
                             const uint8_t (*colors)[3]) {
    for (int i = frame->object_count - 1; i >= 0; i--) {
        int k = frame->objects[i].match; /* of three masks of a prompt, the first decides */
        if (k < 0 || (size_t)k >= prompts->count || !prompts->items[k].boxed) continue;
        ist_canvas_box(c, prompts->items[k].box, colors[i]);
    }
}

/* A disc with soft edges. */
static void draw_disc(const ist_canvas *c, double x, double y, double radius, const uint8_t rgb[3], int alpha) {
    int low_x = (int)fmax(floor(x - radius - 1), 0), high_x = (int)fmin(ceil(x + radius + 1), c->image->width - 1);
    int low_y = (int)fmax(floor(y - radius - 1), 0), high_y = (int)fmin(ceil(y + radius + 1), c->image->height - 1);
    for (int v = low_y; v <= high_y; v++)
        for (int u = low_x; u <= high_x; u++) {
            double covered = fmin(fmax(radius + 0.5 - hypot(u - x, v - y), 0), 1);
            ist_blend(c->image, u, v, rgb, (int)lround(covered * alpha));
        }
}

static double inner_radius(int line) {
    return fmax(2, 2.2 * line);
}

static double ring_width(int line) {
    return fmax(1, 0.6 * line);
}

double ist_disc_radius(int line) {
    return inner_radius(line) + 2 * ring_width(line);
}

/* Pixel centres are at whole numbers. */
void ist_canvas_points(const ist_canvas *c, const ist_prompt_list *prompts) {
    static const uint8_t black[3] = {0, 0, 0}, white[3] = {255, 255, 255};
    static const uint8_t kinds[2][3] = {{217, 45, 45}, {18, 161, 80}};
    double radius = inner_radius(c->line), ring = ring_width(c->line);
    for (size_t i = 0; i < prompts->count; i++)
        for (size_t k = 0; k < prompts->items[i].point_count; k++) {
            const ist_point *p = &prompts->items[i].points[k];
            double x = fmin(fmax(p->x, -1e6), 1e6), y = fmin(fmax(p->y, -1e6), 1e6); /* far outside: nothing is drawn */
            draw_disc(c, x, y, ist_disc_radius(c->line), black, 110);
            draw_disc(c, x, y, radius + ring, white, 255);
            draw_disc(c, x, y, radius, kinds[p->label != 0], 255);
        }
}
