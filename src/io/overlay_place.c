/* Where labels go: see overlay.h. Greedy, the best object first; each takes the nearest place that is free. */
#include "io/overlay.h"

#include <stdlib.h>

typedef struct spot {
    int x, y;
} spot;

typedef struct search {
    int width, height; /* of the image */
    const ist_overlay_plate *plates;
    int count; /* of plates that have their place, or none */
    ist_overlay_plate *plate;
    spot wish; /* where it would lie best */
    long best; /* distance from there; below 0: nothing found yet */
} search;

static bool is_free(const search *s, int x, int y) {
    const ist_overlay_plate *p = s->plate;
    if (x < 0 || y < 0 || x + p->width > s->width || y + p->height > s->height) return false;
    for (int i = 0; i < s->count; i++) {
        const ist_overlay_plate *o = &s->plates[i];
        if (o->placed && x < o->x + o->width && o->x < x + p->width && y < o->y + o->height && o->y < y + p->height)
            return false;
    }
    return true;
}

/* Takes the place if it is free and nearer than what was found so far. */
static void consider(search *s, int x, int y) {
    long distance = labs((long)x - s->wish.x) + labs((long)y - s->wish.y);
    if ((s->best >= 0 && distance >= s->best) || !is_free(s, x, y)) return;
    s->best = distance;
    s->plate->x = x;
    s->plate->y = y;
}

static int clamp(int value, int high) {
    return value < 0 || high < 0 ? 0 : value > high ? high : value;
}

/* Above the box, inside of it, below it; the first that is free. */
static void try_box(search *s, const int box[4], int line) {
    const ist_overlay_plate *p = s->plate;
    int left = box[0] - line / 2, right = box[2] + line - line / 2 - p->width;
    const int rows[] = {box[1] - line / 2 - p->height, box[1] > 0 ? box[1] : 0, box[3] + line - line / 2,
                        box[3] - p->height};
    const int columns[] = {clamp(left, s->width - p->width), clamp(right, s->width - p->width)};
    int first = rows[0] >= 0 ? 0 : 1;
    s->wish = (spot){columns[0], clamp(rows[first], s->height - p->height)};
    consider(s, s->wish.x, s->wish.y);
    for (int c = 0; c < 2; c++)
        for (int r = first; r < 4 && s->best < 0; r++) consider(s, columns[c], rows[r]);
}

/* Beside every label that is there, the nearest: along one of its sides, at a corner of it or level with the wish. */
static void try_beside(search *s) {
    const ist_overlay_plate *p = s->plate;
    for (int i = 0; i < s->count; i++) {
        const ist_overlay_plate *o = &s->plates[i];
        if (!o->placed) continue;
        const int xs[] = {s->wish.x, o->x, o->x + o->width - p->width}, outer_x[] = {o->x - p->width, o->x + o->width};
        const int ys[] = {s->wish.y, o->y, o->y + o->height - p->height},
                  outer_y[] = {o->y - p->height, o->y + o->height};
        for (int k = 0; k < 2; k++)
            for (int m = 0; m < 3; m++) {
                consider(s, xs[m], outer_y[k]);
                consider(s, outer_x[k], ys[m]);
            }
    }
}

void ist_overlay_place(int width, int height, int line, const int (*boxes)[4], ist_overlay_plate *plates, int fixed,
                       int count) {
    for (int i = fixed; i < count; i++) {
        search s = {.width = width, .height = height, .plates = plates, .count = i, .plate = &plates[i], .best = -1};
        try_box(&s, boxes[i], line);
        if (s.best < 0) try_beside(&s);
        plates[i].placed = s.best >= 0;
    }
}
