/* See outline.h. Each border that has a set pixel below it and none above begins a loop once: it is followed from
 * corner to corner with the set pixels on the right hand, and the borders of that kind that it passes are marked. */
#include "io/outline.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

typedef struct tracer {
    const ist_mask *mask;
    int width, height; /* of the mask's window */
    uint32_t *seen;    /* upper borders that belong to a loop, as bits like the mask's */
    ist_outline *out;
} tracer;

static bool is_set(const tracer *t, int x, int y) {
    if (x < 0 || y < 0 || x >= t->width || y >= t->height) return false;
    return t->mask->bits[(size_t)x * (size_t)t->mask->words + (size_t)(y / 32)] >> (y % 32) & 1;
}

static uint32_t *word_of(const tracer *t, int x, int y) {
    return &t->seen[(size_t)x * (size_t)t->mask->words + (size_t)(y / 32)];
}

static bool add_corner(tracer *t, int x, int y) {
    ist_outline *o = t->out;
    if (!ist_grow((void **)&o->corners, &o->corner_capacity, o->corner_count + 1, sizeof *o->corners)) return false;
    float *at = o->corners[o->corner_count++];
    at[0] = (float)(t->mask->x0 + x) - 0.5f;
    at[1] = (float)(t->mask->y0 + y) - 0.5f;
    o->counts[o->count - 1]++;
    return true;
}

/* The loop that runs to the right along the upper border of pixel (x, y); corner (x, y) is that pixel's upper left. */
static bool follow(tracer *t, int x, int y) {
    enum { RIGHT, DOWN, LEFT, UP };
    static const int step[4][2] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};
    /* Pixels ahead of a corner, on the left hand and on the right hand, by direction. */
    static const int left[4][2] = {{0, -1}, {0, 0}, {-1, 0}, {-1, -1}};
    static const int right[4][2] = {{0, 0}, {-1, 0}, {-1, -1}, {0, -1}};
    ist_outline *o = t->out;
    if (!ist_grow((void **)&o->counts, &o->capacity, o->count + 1, sizeof *o->counts)) return false;
    o->counts[o->count++] = 0;
    int cx = x, cy = y, direction = RIGHT;
    if (!add_corner(t, cx, cy)) return false;
    for (;;) {
        if (direction == RIGHT) *word_of(t, cx, cy) |= 1u << (cy % 32);
        cx += step[direction][0], cy += step[direction][1];
        int turn = !is_set(t, cx + right[direction][0], cy + right[direction][1]) ? 1 /* nothing ahead on the right */
                   : is_set(t, cx + left[direction][0], cy + left[direction][1])  ? 3 /* something on the left too */
                                                                                  : 0;
        direction = (direction + turn) % 4;
        if (cx == x && cy == y && direction == RIGHT) return true; /* where it began is a corner: nothing to the left */
        if (turn && !add_corner(t, cx, cy)) return false;
    }
}

ist_status ist_outline_add(ist_outline *outline, const ist_mask *mask, ist_error *err) {
    size_t words = (size_t)mask->columns * (size_t)mask->words;
    tracer t = {.mask = mask, .width = mask->columns, .height = 32 * mask->words, .out = outline};
    if (!words) return IST_OK;
    t.seen = calloc(words, sizeof *t.seen);
    bool fine = t.seen != NULL;
    for (int x = 0; fine && x < t.width; x++)
        for (int w = 0; fine && w < mask->words; w++) {
            const uint32_t *bits = mask->bits + (size_t)x * (size_t)mask->words;
            uint32_t above = bits[w] << 1 | (w ? bits[w - 1] >> 31 : 0), upper = bits[w] & ~above;
            for (uint32_t left; fine && (left = upper & ~*word_of(&t, x, 32 * w));)
                fine = follow(&t, x, 32 * w + __builtin_ctz(left));
        }
    free(t.seen);
    return fine ? IST_OK : ist_fail(err, IST_E_MEMORY, "outline: out of memory");
}

void ist_outline_clear(ist_outline *outline) {
    outline->corner_count = outline->count = 0;
}

void ist_outline_free(ist_outline *outline) {
    free(outline->corners);
    free(outline->counts);
    *outline = (ist_outline){0};
}
