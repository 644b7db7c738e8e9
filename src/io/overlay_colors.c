/* Colours of an overlay's objects: see overlay_canvas.h. */
#include "io/overlay_canvas.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

void ist_overlay_color(int key, uint8_t rgb[3]) {
    /* successive multiples of the golden ratio spread over the hue circle; saturation alternates as well */
    double hue = fmod(0.09 + 0.61803398875 * (key < 0 ? 0 : key), 1.0) * 6, saturation = key % 2 ? 0.65 : 0.9;
    for (int c = 0; c < 3; c++) {
        double k = fmod((c == 0 ? 5 : c == 1 ? 3 : 1) + hue, 6), ramp = fmin(fmin(k, 4 - k), 1);
        rgb[c] = (uint8_t)lround(255 * (1 - saturation * fmax(ramp, 0)));
    }
}

static int color_key(const ist_object *object, ist_match_mode match) {
    return match == IST_MATCH_TRACKS && object->match >= 0 ? object->match : object->label;
}

enum {
    PALETTE = 16,
    FAR = 100,  /* sum of differences that nobody takes for the same colour */
    MARGIN = 3, /* pixels: masks so near to each other are seen side by side */
};

static bool touch(const ist_object *a, const ist_object *b) {
    return a->mask_box[0] <= b->mask_box[2] + MARGIN && b->mask_box[0] <= a->mask_box[2] + MARGIN &&
           a->mask_box[1] <= b->mask_box[3] + MARGIN && b->mask_box[1] <= a->mask_box[3] + MARGIN;
}

static int difference(const uint8_t a[3], const uint8_t b[3]) {
    return abs(a[0] - b[0]) + abs(a[1] - b[1]) + abs(a[2] - b[2]);
}

/* Of the colours that are far from those of earlier masks around, the one that was taken least; where none is, the
 * farthest. */
static int choose(const ist_frame *frame, int index, uint8_t (*palette)[3], const int *taken, uint8_t (*colors)[3]) {
    int nearest[PALETTE], best = 0;
    for (int k = 0; k < PALETTE; k++) nearest[k] = FAR;
    for (int i = 0; i < index; i++) {
        if (!touch(&frame->objects[index], &frame->objects[i])) continue;
        for (int k = 0; k < PALETTE; k++) {
            int d = difference(palette[k], colors[i]);
            if (d < nearest[k]) nearest[k] = d;
        }
    }
    for (int k = 1; k < PALETTE; k++)
        if (nearest[k] > nearest[best] || (nearest[k] == nearest[best] && taken[k] < taken[best])) best = k;
    return best;
}

void ist_overlay_colors(const ist_frame *frame, const ist_overlay_view *view, uint8_t (*colors)[3]) {
    uint8_t palette[PALETTE][3];
    int taken[PALETTE] = {0};
    for (int k = 0; k < PALETTE; k++) ist_overlay_color(k, palette[k]);
    for (int i = 0; i < frame->object_count; i++) {
        if (!view->apart) {
            ist_overlay_color(color_key(&frame->objects[i], view->match), colors[i]);
            continue;
        }
        int k = choose(frame, i, palette, taken, colors);
        taken[k]++;
        memcpy(colors[i], palette[k], sizeof palette[k]);
    }
}
