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

static ist_bitmap draw(const ist_bitmap *image, const ist_object *objects, int count, ist_match_mode match) {
    ist_frame f = {.width = image->width, .height = image->height, .object_count = count, .objects = objects};
    ist_labels l = two_labels();
    ist_bitmap out;
    ist_error err;
    cr_assert_eq(ist_overlay_draw(image, &f, &l, match, &out, &err), IST_OK, "%s", err.text);
    cr_assert_eq(out.format, IST_RGB8);
    cr_assert(out.width == image->width && out.height == image->height);
    ist_labels_free(&l);
    return out;
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

/* Pixels of the plate's uppermost row, where there are no letters. */
static int plate_width(ist_match_mode mode, int match) {
    ist_bitmap image = filled(400, 300, IST_GRAY8, 0);
    const ist_object o = {.label = 0, .score = 0.5f, .box = {100, 80, 300, 250}, .match = match};
    ist_bitmap out = draw(&image, &o, 1, mode);
    static const uint8_t black[3];
    int width = 0;
    for (int y = 0; y < 80 && !width; y++)
        for (int x = 0; x < 400; x++) width += memcmp(at(&out, x, y), black, 3) != 0;
    ist_bitmap_free(&image);
    ist_bitmap_free(&out);
    return width;
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
        ist_overlay_place(400, 300, 2, &cases[i].box, &p, 1);
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
    ist_overlay_place(400, 300, 2, (const int(*)[4])boxes, plates, 12);
    cr_expect_eq(check_places(400, 300, plates, 12), 12);
    for (int i = 0; i < 12; i++) /* not far from it */
        cr_expect(abs(plates[i].x - 100) <= 180 && abs(plates[i].y - 80) <= 120, "label %d at %d,%d", i, plates[i].x,
                  plates[i].y);
}

Test(io_overlay, labels_never_meet) {
    uint32_t seed = 7;
    for (int round = 0; round < 60; round++) {
        enum { MOST = 300 };
        static int boxes[MOST][4];
        static ist_overlay_plate plates[MOST];
        int width = 40 + round * 11, height = 30 + round * 7, count = 1 + round * 5;
        long area = 0;
        for (int i = 0; i < count; i++) {
            int values[6];
            for (int k = 0; k < 6; k++) values[k] = (int)((seed = seed * 1664525u + 1013904223u) >> 16);
            int x = values[0] % (width + 40) - 20, y = values[1] % (height + 40) - 20;
            memcpy(boxes[i], (const int[4]){x, y, x + values[2] % 90, y + values[3] % 90}, sizeof boxes[i]);
            plates[i] = (ist_overlay_plate){.width = 10 + values[4] % 50, .height = 10 + values[5] % 4};
            area += (long)plates[i].width * plates[i].height;
        }
        ist_overlay_place(width, height, 2, (const int(*)[4])boxes, plates, count);
        int placed = check_places(width, height, plates, count);
        if (area * 4 < (long)width * height) cr_expect_eq(placed, count, "round %d: %d of %d", round, placed, count);
        cr_expect(placed > 0 || width < 60, "round %d", round);
    }
}

Test(io_overlay, what_fits_nowhere_is_left_out) {
    const int boxes[2][4] = {{0, 0, 50, 40}, {0, 0, 50, 40}};
    ist_overlay_plate plates[2] = {{.width = 40, .height = 30}, {.width = 40, .height = 30}};
    ist_overlay_place(50, 40, 2, boxes, plates, 2);
    cr_expect(plates[0].placed && !plates[1].placed, "the better one stays");
    ist_overlay_plate wide = {.width = 51, .height = 9};
    ist_overlay_place(50, 40, 2, boxes, &wide, 1);
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
