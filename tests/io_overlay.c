/* Drawing: where pixels change, where they do not, and what colour they become. */
#include "io/overlay.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* fontconfig keeps its configuration until the process ends; the leak sanitizer asks this function. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:libfontconfig";
}

static ist_bitmap filled(int w, int h, ist_pixel_format format, int value) {
    ist_bitmap b;
    cr_assert_eq(ist_bitmap_allocate("t", (size_t)w, (size_t)h, format, 1 << 24, &b, NULL), IST_OK);
    memset(b.pixels, value, b.stride * (size_t)h);
    return b;
}

static const uint8_t *at(const ist_bitmap *b, int x, int y) {
    return (const uint8_t *)b->pixels + (size_t)y * b->stride + 3 * (size_t)x;
}

static ist_labels two_labels(void) {
    const char *names[2] = {"bone", "n\xC3\xA9"
                                    "edle\xFF"};
    ist_labels l;
    cr_assert_eq(ist_labels_make(2, names, &l, NULL), IST_OK);
    return l;
}

/* With labels of its own where the view has none. */
static ist_bitmap draw_view(const ist_bitmap *image, const ist_object *objects, int count, ist_overlay_view view) {
    ist_frame f = {.width = image->width, .height = image->height, .object_count = count, .objects = objects};
    ist_labels l = two_labels();
    ist_bitmap out;
    ist_error err;
    if (!view.labels) view.labels = &l;
    cr_assert_eq(ist_overlay_draw(image, &f, &view, &out, &err), IST_OK, "%s", err.text);
    cr_assert_eq(out.format, IST_RGB8);
    cr_assert(out.width == image->width && out.height == image->height);
    ist_labels_free(&l);
    return out;
}

static ist_bitmap draw(const ist_bitmap *image, const ist_object *objects, int count, ist_match_mode match) {
    return draw_view(image, objects, count, (ist_overlay_view){.match = match});
}

Test(io_overlay, without_objects_the_image_stays) {
    static const struct {
        ist_pixel_format format;
        int value;
        uint8_t want;
    } cases[] = {{IST_GRAY8, 77, 77},      {IST_GRAYA8, 77, 77},     {IST_RGB8, 77, 77},   {IST_RGBA8, 77, 77},
                 {IST_GRAY16, 0x80, 0x80}, {IST_GRAYA16, 0xFF, 255}, {IST_RGB16, 0x01, 1}, {IST_RGBA16, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ist_bitmap image = filled(9, 7, cases[i].format, cases[i].value), out = draw(&image, NULL, 0, IST_MATCH_NONE);
        for (size_t k = 0; k < out.stride * 7; k++)
            cr_assert_eq(((uint8_t *)out.pixels)[k], cases[i].want, "case %zu", i);
        ist_bitmap_free(&image);
        ist_bitmap_free(&out);
    }
}

Test(io_overlay, sixteen_bits_round_to_eight) {
    ist_bitmap image = filled(2, 1, IST_GRAY16, 0);
    ((uint16_t *)image.pixels)[0] = 128; /* 128 / 257 = 0.498 */
    ((uint16_t *)image.pixels)[1] = 129; /* 129 / 257 = 0.502 */
    ist_bitmap out = draw(&image, NULL, 0, IST_MATCH_NONE);
    cr_expect_eq(at(&out, 0, 0)[0], 0);
    cr_expect_eq(at(&out, 1, 0)[0], 1);
    ist_bitmap_free(&image);
    ist_bitmap_free(&out);
}

/* Shown as the networks saw it. */
Test(io_overlay, windows) {
    ist_bitmap image = filled(5, 1, IST_GRAY16, 0), out;
    const uint16_t values[5] = {0, 1000, 1008, 3000, 5000};
    const uint8_t want[5] = {0, 0, 1, 128, 255};
    memcpy(image.pixels, values, sizeof values);
    const ist_frame frame = {.width = 5, .height = 1, .window_low = 1000, .window_high = 5000};
    const ist_overlay_view view = {.labels = &(ist_labels){0}};
    ist_error err;
    cr_assert_eq(ist_overlay_draw(&image, &frame, &view, &out, &err), IST_OK, "%s", err.text);
    for (int x = 0; x < 5; x++) cr_expect_eq(at(&out, x, 0)[0], want[x], "%d", at(&out, x, 0)[0]);
    ist_bitmap_free(&image);
    ist_bitmap_free(&out);
}

Test(io_overlay, box_lines_have_the_class_colour) {
    ist_bitmap image = filled(400, 300, IST_GRAY8, 0);
    const ist_object o = {.label = 1, .score = 0.5f, .box = {100, 80, 300, 250}, .match = -1};
    uint8_t rgb[3];
    ist_bitmap out = draw(&image, &o, 1, IST_MATCH_NONE);
    ist_overlay_color(1, rgb);
    cr_expect_arr_eq(at(&out, 200, 250), rgb, 3, "bottom");
    cr_expect_arr_eq(at(&out, 300, 200), rgb, 3, "right");
    cr_expect_arr_eq(at(&out, 100, 200), rgb, 3, "left");
    cr_expect_arr_eq(at(&out, 102, 75), rgb, 3, "the label's plate lies above");
    static const uint8_t black[3];
    cr_expect_arr_eq(at(&out, 200, 160), black, 3, "inside");
    cr_expect_arr_eq(at(&out, 350, 160), black, 3, "outside");
    ist_bitmap_free(&image);
    ist_bitmap_free(&out);
}

Test(io_overlay, tracks_colour_before_classes) {
    ist_bitmap image = filled(200, 200, IST_GRAY8, 0);
    const ist_object o = {.label = 1, .score = 0.5f, .box = {50, 50, 150, 150}, .match = 5};
    uint8_t rgb[3];
    ist_bitmap out = draw(&image, &o, 1, IST_MATCH_TRACKS);
    ist_overlay_color(5, rgb);
    cr_expect_arr_eq(at(&out, 100, 150), rgb, 3);
    ist_bitmap_free(&image);
    ist_bitmap_free(&out);
}

/* Pixels of the plate's uppermost row, where there are no letters; with `trust` the object has been judged. */
static int judged_plate_width(ist_match_mode mode, int match, const ist_trust *trust) {
    ist_bitmap image = filled(400, 300, IST_GRAY8, 0), out;
    const ist_object o = {.label = 0, .score = 0.5f, .box = {100, 80, 300, 250}, .match = match};
    const ist_frame f = {
        .width = 400, .height = 300, .object_count = 1, .objects = &o, .trust = trust, .trust_count = trust != NULL};
    ist_labels l = two_labels();
    ist_error err;
    cr_assert_eq(ist_overlay_draw(&image, &f, &(ist_overlay_view){.labels = &l, .match = mode}, &out, &err), IST_OK,
                 "%s", err.text);
    ist_labels_free(&l);
    static const uint8_t black[3];
    int width = 0;
    for (int y = 0; y < 80 && !width; y++)
        for (int x = 0; x < 400; x++) width += memcmp(at(&out, x, y), black, 3) != 0;
    ist_bitmap_free(&image);
    ist_bitmap_free(&out);
    return width;
}

static int plate_width(ist_match_mode mode, int match) {
    return judged_plate_width(mode, match, NULL);
}

Test(io_overlay, labels_say_the_state) {
    static const char *const want[] = {"#7 bone 0.50 LOST", "#7 bone 0.50 RELOCALIZING", "#7 bone 0.50 VISIBLE"};
    for (int state = IST_LOST; state <= IST_VISIBLE; state++) {
        const ist_trust trust = {.track = 7, .object = 0, .state = (ist_visibility)state};
        ist_bitmap text;
        cr_assert_eq(ist_overlay_text(want[state], 12, &text, NULL), IST_OK);
        cr_expect_eq(judged_plate_width(IST_MATCH_TRACKS, 7, &trust), text.width + 4, "%s", want[state]);
        ist_bitmap_free(&text);
    }
}

Test(io_overlay, labels_say_the_track_or_the_target) {
    static const struct {
        ist_match_mode mode;
        int match;
        const char *want;
    } cases[] = {{IST_MATCH_NONE, 7, "bone 0.50"},           {IST_MATCH_TRACKS, 7, "#7 bone 0.50"},
                 {IST_MATCH_TRACKS, -1, "bone 0.50"},        {IST_MATCH_TARGETS, 7, "bone 0.50 =7"},
                 {IST_MATCH_TARGETS_SET, 0, "bone 0.50 =0"}, {IST_MATCH_TARGETS, -1, "bone 0.50"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ist_bitmap text;
        cr_assert_eq(ist_overlay_text(cases[i].want, 12, &text, NULL), IST_OK);
        cr_expect_eq(plate_width(cases[i].mode, cases[i].match), text.width + 4, "%s", cases[i].want);
        ist_bitmap_free(&text);
    }
}

/* ---- places of labels ---- */

static bool meet(const ist_overlay_plate *a, const ist_overlay_plate *b) {
    return a->x < b->x + b->width && b->x < a->x + a->width && a->y < b->y + b->height && b->y < a->y + a->height;
}

/* How many were placed; all of those inside the image and apart. */
static int check_places(int width, int height, const ist_overlay_plate *plates, int count) {
    int placed = 0;
    for (int i = 0; i < count; i++) {
        const ist_overlay_plate *p = &plates[i];
        if (!p->placed) continue;
        placed++;
        cr_expect(p->x >= 0 && p->y >= 0 && p->x + p->width <= width && p->y + p->height <= height,
                  "label %d leaves the image: %d,%d %dx%d", i, p->x, p->y, p->width, p->height);
        for (int k = 0; k < i; k++)
            cr_expect(!plates[k].placed || !meet(p, &plates[k]), "labels %d and %d cover each other", k, i);
    }
    return placed;
}

Test(io_overlay, a_label_lies_at_its_box) {
    static const struct {
        int box[4], x, y;
    } cases[] = {{{100, 80, 300, 250}, 99, 59},  /* above */
                 {{100, 5, 300, 250}, 99, 5},    /* no room there: inside */
                 {{100, -9, 300, 250}, 99, 0},   /* the box leaves the image */
                 {{380, 80, 399, 250}, 340, 59}, /* moved to the left */
                 {{-50, 290, -9, 299}, 0, 269},  {{500, 400, 600, 500}, 340, 280}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ist_overlay_plate p = {.width = 60, .height = 20};
        ist_overlay_place(400, 300, 2, &cases[i].box, &p, 0, 1);
        cr_expect(p.placed && p.x == cases[i].x && p.y == cases[i].y, "case %zu: %d,%d", i, p.x, p.y);
    }
}

Test(io_overlay, labels_of_one_box_lie_side_by_side) {
    int boxes[12][4];
    ist_overlay_plate plates[12];
    for (int i = 0; i < 12; i++) {
        memcpy(boxes[i], (const int[4]){100, 80, 180, 120}, sizeof boxes[i]);
        plates[i] = (ist_overlay_plate){.width = 60 + i, .height = 20};
    }
    ist_overlay_place(400, 300, 2, (const int(*)[4])boxes, plates, 0, 12);
    cr_expect_eq(check_places(400, 300, plates, 12), 12);
    for (int i = 0; i < 12; i++) /* not far from it */
        cr_expect(abs(plates[i].x - 100) <= 180 && abs(plates[i].y - 80) <= 120, "label %d at %d,%d", i, plates[i].x,
                  plates[i].y);
}

static int next(uint32_t *seed, int below) {
    *seed = *seed * 1664525u + 1013904223u;
    return (int)(*seed >> 8) % below;
}

/* Boxes inside, at the border and outside, upside down, all in one place; images down to one pixel; discs of points. */
Test(io_overlay, labels_never_meet) {
    enum { MOST = 300, DISCS = 20 };
    uint32_t seed = 7;
    for (int round = 0; round < 240; round++) {
        static int boxes[DISCS + MOST][4];
        static ist_overlay_plate plates[DISCS + MOST];
        bool tiny = round % 4 == 1, crowd = round % 4 == 2;
        int width = tiny ? 1 + round / 4 : 40 + round * 3, height = tiny ? 1 + round % 23 : 30 + round * 2;
        int count = 1 + round % 60 * 5, fixed = round % 3 ? 0 : DISCS;
        long area = 0;
        for (int i = 0; i < fixed; i++)
            plates[i] = (ist_overlay_plate){next(&seed, width + 20) - 10, next(&seed, height + 20) - 10, 9, 9, true};
        for (int i = fixed; i < fixed + count; i++) {
            int x = crowd ? width / 3 : next(&seed, width + 40) - 20,
                y = crowd ? height / 3 : next(&seed, height + 40) - 20;
            const int box[4] = {x, y, x + next(&seed, 90) - (round % 7 ? 0 : 30), y + next(&seed, 90)};
            memcpy(boxes[i], box, sizeof box);
            plates[i] = (ist_overlay_plate){.width = 10 + next(&seed, 50), .height = 10 + next(&seed, 4)};
            area += (long)plates[i].width * plates[i].height;
        }
        ist_overlay_place(width, height, 2, (const int(*)[4])boxes, plates, fixed, fixed + count);
        int placed = check_places(width, height, plates + fixed, count);
        for (int i = 0; i < fixed; i++)
            for (int k = fixed; k < fixed + count; k++)
                cr_expect(!plates[k].placed || !meet(&plates[i], &plates[k]), "round %d: label %d lies on a point",
                          round, k);
        if (!fixed && area * 4 < (long)width * height)
            cr_expect_eq(placed, count, "round %d: %d of %d", round, placed, count);
        cr_expect(placed > 0 || width < 120, "round %d", round);
    }
}

/* A name that does not fit is cut, so that the label is there, with its numbers. */
Test(io_overlay, long_names_are_cut) {
    static const uint8_t black[3];
    char name[3000];
    for (size_t i = 0; i + 2 < sizeof name; i += 2) memcpy(name + i, "\xC3\xA9", 3);
    const char *names[1] = {name};
    for (int width = 60; width <= 1000; width += 94) {
        ist_bitmap image = filled(width, 200, IST_GRAY8, 0);
        const ist_object o = {.label = 0, .score = 0.5f, .box = {10, 150, 50, 180}, .match = -1};
        ist_labels l;
        cr_assert_eq(ist_labels_make(1, names, &l, NULL), IST_OK);
        ist_bitmap out = draw_view(&image, &o, 1, (ist_overlay_view){.labels = &l});
        int right = 0, left = width;
        for (int y = 0; y < 145; y++)
            for (int x = 0; x < width; x++)
                if (memcmp(at(&out, x, y), black, 3)) right = x > right ? x : right, left = x < left ? x : left;
        cr_expect(left < right, "%d: there is no label", width);
        cr_expect_gt(right - left, width / 2, "%d: %d pixels", width, right - left);
        ist_labels_free(&l);
        ist_bitmap_free(&image);
        ist_bitmap_free(&out);
    }
}

Test(io_overlay, what_fits_nowhere_is_left_out) {
    const int boxes[2][4] = {{0, 0, 50, 40}, {0, 0, 50, 40}};
    ist_overlay_plate plates[2] = {{.width = 40, .height = 30}, {.width = 40, .height = 30}};
    ist_overlay_place(50, 40, 2, boxes, plates, 0, 2);
    cr_expect(plates[0].placed && !plates[1].placed, "the better one stays");
    ist_overlay_plate wide = {.width = 51, .height = 9};
    ist_overlay_place(50, 40, 2, boxes, &wide, 0, 1);
    cr_expect(!wide.placed);
}

/* The lower one loses lines where the upper box is drawn over them, but not its label. */
Test(io_overlay, both_labels_of_overlapping_boxes_are_seen) {
    ist_bitmap image = filled(400, 300, IST_GRAY8, 0);
    const ist_object o[2] = {{.label = 0, .score = 0.9f, .box = {100, 80, 300, 250}, .match = -1},
                             {.label = 1, .score = 0.5f, .box = {102, 81, 290, 240}, .match = -1}};
    ist_bitmap out = draw(&image, o, 2, IST_MATCH_NONE), alone = draw(&image, o + 1, 1, IST_MATCH_NONE);
    int seen[2] = {0}, want = 0;
    uint8_t rgb[2][3];
    for (int k = 0; k < 2; k++) ist_overlay_color(k, rgb[k]);
    for (int y = 0; y < 300; y++)
        for (int x = 0; x < 400; x++) {
            for (int k = 0; k < 2; k++) seen[k] += !memcmp(at(&out, x, y), rgb[k], 3);
            want += !memcmp(at(&alone, x, y), rgb[1], 3);
        }
    cr_expect_gt(seen[0], 800);
    cr_expect_gt(seen[1], want * 3 / 4, "of %d pixels %d are left", want, seen[1]);
    ist_bitmap_free(&image);
    ist_bitmap_free(&out);
    ist_bitmap_free(&alone);
}

Test(io_overlay, labels_shrink_to_narrow_images) {
    ist_bitmap image = filled(64, 64, IST_GRAY8, 0);
    const ist_object o = {.label = 0, .score = 0.5f, .box = {5, 40, 60, 60}, .match = -1};
    ist_bitmap out = draw(&image, &o, 1, IST_MATCH_NONE);
    uint8_t rgb[3];
    ist_overlay_color(0, rgb);
    int plate = 0; /* above the box */
    for (int y = 0; y < 38; y++)
        for (int x = 0; x < 64; x++) plate += !memcmp(at(&out, x, y), rgb, 3);
    cr_expect_gt(plate, 100, "%d pixels", plate);
    ist_bitmap_free(&image);
    ist_bitmap_free(&out);
}

Test(io_overlay, masks_are_tinted_inside_and_solid_at_the_contour) {
    ist_bitmap image = filled(64, 64, IST_GRAY8, 0);
    uint32_t bits[20];
    for (int c = 0; c < 20; c++) bits[c] = 0x000FFFF0u; /* rows 4..19 of columns 40..59 */
    const ist_object o = {.label = 0,
                          .box = {-40, -40, -30, -30},
                          .match = -1,
                          .mask = {.x0 = 40, .y0 = 32, .columns = 20, .words = 1, .bits = bits}};
    uint8_t rgb[3];
    ist_bitmap out = draw(&image, &o, 1, IST_MATCH_NONE);
    ist_overlay_color(0, rgb);
    cr_expect_arr_eq(at(&out, 40, 45), rgb, 3, "left edge");
    cr_expect_arr_eq(at(&out, 50, 36), rgb, 3, "top edge");
    const uint8_t *inside = at(&out, 50, 45);
    cr_expect(inside[0] > 0 && inside[0] < rgb[0], "inside is tinted: %d", inside[0]);
    cr_expect_eq(at(&out, 50, 35)[0], 0, "above is untouched");
    cr_expect_eq(at(&out, 60, 45)[0], 0, "right of it is untouched");
    ist_bitmap_free(&image);
    ist_bitmap_free(&out);
}

Test(io_overlay, anything_may_lie_outside) {
    static const float boxes[][4] = {
        {-1e30f, -1e30f, 1e30f, 1e30f}, {50, 50, 40, 40}, {500, 500, 600, 600}, {-9, -9, 0, 0}};
    for (int size = 1; size <= 40; size += 13)
        for (size_t i = 0; i < 4; i++) {
            ist_bitmap image = filled(size, size, IST_RGB8, 9);
            ist_object o = {.label = 1, .score = 1, .match = -1};
            memcpy(o.box, boxes[i], sizeof o.box);
            ist_bitmap out = draw(&image, &o, 1, IST_MATCH_NONE);
            ist_bitmap_free(&image);
            ist_bitmap_free(&out);
        }
}

Test(io_overlay, text_has_ink_and_grows) {
    ist_bitmap a, b;
    cr_assert_eq(ist_overlay_text("bone 0.91", 14, &a, NULL), IST_OK);
    cr_assert_eq(ist_overlay_text("bone 0.91", 28, &b, NULL), IST_OK);
    long ink = 0;
    for (size_t i = 0; i < a.stride * (size_t)a.height; i++) ink += ((uint8_t *)a.pixels)[i];
    cr_expect_gt(ink, 255 * 20, "%ld", ink);
    cr_expect(b.width > a.width && b.height > a.height);
    ist_bitmap_free(&a);
    ist_bitmap_free(&b);
    cr_assert_eq(ist_overlay_text("", 14, &a, NULL), IST_OK);
    cr_expect_geq(a.width, 1);
    ist_bitmap_free(&a);
}

Test(io_overlay, colours_are_bright_and_differ) {
    uint8_t c[24][3];
    for (int i = 0; i < 24; i++) {
        ist_overlay_color(i, c[i]);
        int top = c[i][0] > c[i][1] ? c[i][0] : c[i][1];
        cr_expect_eq(c[i][2] > top ? c[i][2] : top, 255);
        for (int k = i - 1; k >= 0; k--)
            cr_expect_gt(abs(c[i][0] - c[k][0]) + abs(c[i][1] - c[k][1]) + abs(c[i][2] - c[k][2]), 20, "%d and %d", i,
                         k);
    }
}

/* ---- objects of prompts and of everything ---- */

/* A filled rectangle as a mask; bits has room for it. */
static ist_object rectangle(int x0, int y0, int x1, int y1, uint32_t *bits) {
    int top = y0 / 32 * 32, words = (y1 - top + 32) / 32;
    ist_object o = {.match = -1,
                    .area = (x1 - x0 + 1) * (y1 - y0 + 1),
                    .mask_box = {x0, y0, x1, y1},
                    .box = {(float)x0, (float)y0, (float)x1 + 1, (float)y1 + 1},
                    .mask = {.x0 = x0, .y0 = top, .columns = x1 - x0 + 1, .words = words, .bits = bits}};
    memset(bits, 0, (size_t)(o.mask.columns * words) * sizeof *bits);
    for (int c = 0; c < o.mask.columns; c++)
        for (int y = y0; y <= y1; y++) bits[c * words + (y - top) / 32] |= 1u << (y - top) % 32;
    return o;
}

static uint8_t tint(uint8_t below, uint8_t color) {
    return (uint8_t)(below + (color - below) * 80 / 255);
}

/* In any order of the objects, and tinted as if the large one were not there. */
Test(io_overlay, told_apart_small_masks_lie_on_large_ones) {
    static uint32_t large[400 * 12], small[400 * 12];
    ist_bitmap image = filled(400, 300, IST_GRAY8, 100);
    for (int order = 0; order < 2; order++) {
        ist_object o[2];
        o[order] = rectangle(20, 20, 380, 280, large);
        o[1 - order] = rectangle(150, 130, 260, 200, small);
        ist_bitmap out = draw_view(&image, o, 2, (ist_overlay_view){.apart = true});
        uint8_t rgb[2][3];
        for (int k = 0; k < 2; k++) ist_overlay_color(k, rgb[k]);
        for (int c = 0; c < 3; c++) {
            cr_expect_eq(at(&out, 60, 250)[c], tint(100, rgb[order][c]), "the large one");
            cr_expect_eq(at(&out, 200, 170)[c], tint(100, rgb[1 - order][c]), "the small one");
            cr_expect_eq(at(&out, 150, 170)[c], rgb[1 - order][c], "its contour");
            cr_expect_eq(at(&out, 10, 10)[c], 100, "nothing");
        }
        ist_bitmap_free(&out);
    }
    ist_bitmap_free(&image);
}

/* Everything of a picture: no two masks side by side in like colours, the same each time, no labels. */
Test(io_overlay, told_apart_neighbours_have_other_colours) {
    enum { SIDE = 20, COUNT = SIDE * SIDE };
    static uint32_t bits[COUNT][40];
    static ist_object o[COUNT];
    uint32_t seed = 3;
    ist_bitmap image = filled(SIDE * 20, SIDE * 20, IST_GRAY8, 0);
    for (int i = 0; i < COUNT; i++) {
        int x = i % SIDE * 20 + 1, y = i / SIDE * 20 + 1, w = 14 + next(&seed, 6), h = 14 + next(&seed, 6);
        o[i] = rectangle(x, y, x + w - 1, y + h - 1, bits[i]);
    }
    ist_bitmap out = draw_view(&image, o, COUNT, (ist_overlay_view){.apart = true});
    ist_bitmap again = draw_view(&image, o, COUNT, (ist_overlay_view){.apart = true});
    cr_expect_arr_eq(out.pixels, again.pixels, out.stride * (size_t)out.height,
                     "the same picture gives the same colours");
    for (int i = 0; i < COUNT; i++) {
        const uint8_t *corner = at(&out, i % SIDE * 20 + 1, i / SIDE * 20 + 1);
        cr_expect_eq(corner[0] > corner[1]   ? corner[0] > corner[2] ? corner[0] : corner[2]
                       : corner[1] > corner[2] ? corner[1]
                                             : corner[2],
                     255, "mask %d has a contour and no label", i);
        for (int k = 1; k <= SIDE; k += SIDE - 1) {
            if (i + k >= COUNT || (k == 1 && i % SIDE == SIDE - 1)) continue;
            const uint8_t *other = at(&out, (i + k) % SIDE * 20 + 1, (i + k) / SIDE * 20 + 1);
            int d = abs(corner[0] - other[0]) + abs(corner[1] - other[1]) + abs(corner[2] - other[2]);
            cr_expect_geq(d, 100, "masks %d and %d", i, i + k);
        }
    }
    ist_bitmap_free(&image);
    ist_bitmap_free(&out);
    ist_bitmap_free(&again);
}

Test(io_overlay, prompts_are_drawn) {
    static uint32_t bits[100 * 4];
    static ist_point points[] = {{60, 70, 1}, {300, 200, 0}, {-2, 150, 1}, {1e30f, -1e30f, 1}};
    ist_prompt_entry entries[] = {{.points = points, .point_count = 4}, {.box = {220, 60, 360, 140}, .boxed = true}};
    const ist_prompt_list prompts = {entries, 2, 2};
    ist_bitmap image = filled(400, 300, IST_GRAY8, 0);
    ist_object o[2] = {rectangle(30, 40, 120, 120, bits), {.match = 1, .box = {220, 60, 360, 140}}};
    o[0].match = 0;
    ist_bitmap out = draw_view(&image, o, 2, (ist_overlay_view){.apart = true, .prompts = &prompts});
    static const uint8_t green[3] = {18, 161, 80}, red[3] = {217, 45, 45}, white[3] = {255, 255, 255}, black[3];
    uint8_t rgb[3];
    ist_overlay_color(1, rgb);
    cr_expect_arr_eq(at(&out, 60, 70), green, 3, "in");
    cr_expect_arr_eq(at(&out, 300, 200), red, 3, "out");
    cr_expect_arr_eq(at(&out, 305, 200), white, 3, "a ring around it");
    cr_expect_arr_eq(at(&out, 0, 150), green, 3, "half outside");
    cr_expect_arr_eq(at(&out, 290, 140), rgb, 3, "the box in its object's colour");
    cr_expect_arr_eq(at(&out, 290, 100), black, 3, "which has no mask");
    cr_expect_arr_eq(at(&out, 75, 124), black, 3, "no box around what has none");
    ist_bitmap_free(&image);
    ist_bitmap_free(&out);
}

/* One where the label would lie: it goes elsewhere. */
Test(io_overlay, labels_do_not_cover_points) {
    static uint32_t bits[200 * 8];
    ist_point point = {105, 70, 1};
    ist_prompt_entry entry = {.points = &point, .point_count = 1};
    const ist_prompt_list prompts = {&entry, 1, 1};
    ist_bitmap image = filled(400, 300, IST_GRAY8, 0);
    ist_object o = rectangle(100, 80, 250, 200, bits);
    o.match = 0;
    ist_bitmap out = draw_view(&image, &o, 1, (ist_overlay_view){.apart = true, .prompts = &prompts});
    uint8_t rgb[3];
    int around = 0, plate = 0;
    ist_overlay_color(0, rgb);
    for (int y = 0; y < 300; y++)
        for (int x = 0; x < 400; x++) {
            bool near = abs(x - 105) <= 12 && abs(y - 65) <= 13;
            around += near && !memcmp(at(&out, x, y), rgb, 3);
            plate += !memcmp(at(&out, x, y), rgb, 3);
        }
    cr_expect_eq(around, 0, "%d pixels of the plate beside the point", around);
    cr_expect_gt(plate, 1200, "%d pixels of a plate and a contour", plate);
    ist_bitmap_free(&image);
    ist_bitmap_free(&out);
}
