/* Outlines: loops of known masks, and of random ones the pixels that they enclose. */
#include "io/outline.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 9, WORDS = 2, ROWS = 32 * WORDS };

static uint32_t bits[COLUMNS * WORDS];
static const ist_mask mask = {.x0 = 3, .y0 = 32, .columns = COLUMNS, .words = WORDS, .bits = bits};

static void set(int x, int y) {
    bits[x * WORDS + y / 32] |= 1u << (y % 32);
}

static ist_outline trace(void) {
    ist_outline o = {0};
    ist_error err;
    cr_assert_eq(ist_outline_add(&o, &mask, &err), IST_OK, "%s", err.text);
    return o;
}

Test(io_outline, one_pixel_has_four_corners) {
    memset(bits, 0, sizeof bits);
    set(2, 31);
    ist_outline o = trace();
    cr_assert_eq(o.count, 1);
    cr_assert_eq(o.counts[0], 4);
    const float want[4][2] = {{4.5f, 62.5f}, {5.5f, 62.5f}, {5.5f, 63.5f}, {4.5f, 63.5f}};
    cr_expect_arr_eq(o.corners, want, sizeof want);
    ist_outline_free(&o);
    memset(bits, 0, sizeof bits);
    o = trace();
    cr_expect_eq(o.count, 0);
    ist_outline_free(&o);
}

Test(io_outline, corners_that_touch_and_holes_are_loops_of_their_own) {
    memset(bits, 0, sizeof bits);
    set(0, 0), set(1, 1);
    ist_outline o = trace();
    cr_expect_eq(o.count, 2);
    ist_outline_free(&o);
    for (int x = 4; x < 7; x++)
        for (int y = 30; y < 33; y++)
            if (x != 5 || y != 31) set(x, y);
    o = trace();
    cr_assert_eq(o.count, 4); /* the ring's two come behind the pixels' */
    cr_expect(o.counts[2] == 4 && o.counts[3] == 4);
    ist_outline_free(&o);
}

/* Twice the area that the loops enclose, holes taken off. */
static double twice_area(const ist_outline *o) {
    double sum = 0;
    size_t first = 0;
    for (size_t i = 0; i < o->count; first += o->counts[i++])
        for (uint32_t k = 0; k < o->counts[i]; k++) {
            const float *a = o->corners[first + k], *b = o->corners[first + (k + 1) % o->counts[i]];
            sum += (double)a[0] * (double)b[1] - (double)b[0] * (double)a[1];
        }
    return sum;
}

/* How often the loops go around a point: 1 inside, 0 outside. */
static int winding(const ist_outline *o, double x, double y) {
    int turns = 0;
    size_t first = 0;
    for (size_t i = 0; i < o->count; first += o->counts[i++])
        for (uint32_t k = 0; k < o->counts[i]; k++) {
            const float *a = o->corners[first + k], *b = o->corners[first + (k + 1) % o->counts[i]];
            if (a[1] == b[1] || (double)a[0] < x) continue; /* vertical sides to the right of it */
            if ((double)a[1] < y && (double)b[1] > y) turns++;
            if ((double)a[1] > y && (double)b[1] < y) turns--;
        }
    return turns;
}

Test(io_outline, random_masks_are_enclosed) {
    uint32_t seed = 5;
    for (int round = 0; round < 40; round++) {
        int area = 0;
        memset(bits, 0, sizeof bits);
        for (int x = 0; x < COLUMNS; x++)
            for (int y = 0; y < ROWS; y++) {
                seed = seed * 1664525u + 1013904223u;
                if ((seed >> 24) % 5 <= (uint32_t)(round % 5)) set(x, y), area++;
            }
        ist_outline o = trace();
        cr_assert_eq(twice_area(&o), 2 * area, "round %d", round);
        for (int x = 0; x < COLUMNS; x++)
            for (int y = 0; y < ROWS; y++) {
                int want = (int)(bits[x * WORDS + y / 32] >> (y % 32) & 1);
                cr_assert_eq(winding(&o, 3 + x, 32 + y), want, "round %d, pixel %d, %d", round, x, y);
            }
        ist_outline_free(&o);
    }
}
