/* COCO run-length encoding against pycocotools (tests/golden/rle.json) and against a decoder of its own. */
#include "io/rle.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Packs a dense column-major mask the way the engine does: tight box, rows rounded outwards to words. */
static ist_mask pack(const uint8_t *dense, int w, int h, int tight) {
    int x0 = w, x1 = -1, y0 = h, y1 = -1;
    for (int x = 0; x < w; x++)
        for (int y = 0; y < h; y++)
            if (dense[x * h + y]) {
                x0 = x < x0 ? x : x0;
                x1 = x > x1 ? x : x1;
                y0 = y < y0 ? y : y0;
                y1 = y > y1 ? y : y1;
            }
    if (!tight) x0 = 0, x1 = w - 1, y0 = 0, y1 = h - 1;
    if (x1 < x0) return (ist_mask){0};
    y0 = y0 / 32 * 32;
    ist_mask m = {.x0 = x0, .y0 = y0, .columns = x1 - x0 + 1, .words = (y1 - y0) / 32 + 1};
    uint32_t *bits = calloc((size_t)(m.columns * m.words), sizeof *bits);
    for (int x = x0; x <= x1; x++)
        for (int y = y0; y <= y1; y++)
            if (dense[x * h + y]) bits[(x - x0) * m.words + (y - y0) / 32] |= 1u << (y - y0) % 32;
    m.bits = bits;
    return m;
}

static uint8_t *from_runs(const json_t *runs, size_t pixels) {
    uint8_t *dense = calloc(pixels, 1);
    size_t at = 0, i;
    json_t *run;
    json_array_foreach(runs, i, run) {
        size_t n = (size_t)json_integer_value(run);
        cr_assert_leq(at + n, pixels);
        memset(dense + at, (int)(i % 2), n);
        at += n;
    }
    cr_assert_eq(at, pixels);
    return dense;
}

static void check_case(const json_t *c, int tight) {
    const char *name = json_string_value(json_object_get(c, "name"));
    const json_t *runs = json_object_get(c, "runs");
    int w = (int)json_integer_value(json_object_get(c, "width")),
        h = (int)json_integer_value(json_object_get(c, "height"));
    uint8_t *dense = from_runs(runs, (size_t)w * (size_t)h);
    ist_mask mask = pack(dense, w, h, tight);
    ist_rle rle = {0};
    ist_text text = {0};
    ist_error err;
    cr_assert_eq(ist_rle_encode(&mask, w, h, &rle, &err), IST_OK, "%s: %s", name, err.text);
    cr_expect_eq(rle.count, json_array_size(runs), "%s: %zu runs", name, rle.count);
    for (size_t i = 0; i < rle.count && i < json_array_size(runs); i++)
        cr_expect_eq(rle.counts[i], (uint32_t)json_integer_value(json_array_get(runs, i)), "%s: run %zu", name, i);
    ist_rle_text(&rle, &text);
    cr_expect_str_eq(text.data, json_string_value(json_object_get(c, "counts")), "%s", name);
    cr_expect_eq(ist_rle_area(&rle), (uint64_t)json_integer_value(json_object_get(c, "area")), "%s", name);
    ist_text_free(&text);
    ist_rle_free(&rle);
    free((void *)(uintptr_t)mask.bits);
    free(dense);
}

Test(io_rle, equals_pycocotools) {
    json_t *cases = json_load_file(IST_GOLDEN_DIR "/rle.json", 0, NULL);
    size_t i;
    json_t *c;
    cr_assert_geq(json_array_size(cases), 50);
    json_array_foreach(cases, i, c) {
        check_case(c, 0);
        check_case(c, 1);
    }
    json_decref(cases);
}

/* The text form back to runs. */
static size_t decode(const char *s, uint32_t *counts) {
    size_t n = 0;
    while (*s) {
        int64_t x = 0;
        int shift = 0, c;
        do {
            c = *s++ - 48;
            x |= (int64_t)(c & 31) << shift;
            shift += 5;
        } while (c & 32);
        if (c & 16) x -= (int64_t)1 << shift;
        if (n > 2) x += counts[n - 2];
        counts[n++] = (uint32_t)x;
    }
    return n;
}

Test(io_rle, random_masks_round_trip) {
    uint32_t seed = 7;
    for (int trial = 0; trial < 400; trial++) {
        seed = seed * 1664525u + 1013904223u;
        int w = 1 + (int)(seed >> 8) % 40, h = 1 + (int)(seed >> 16) % 130, density = 1 + trial % 15;
        uint8_t *dense = calloc((size_t)(w * h), 1);
        uint64_t area = 0;
        for (int i = 0; i < w * h; i++) {
            seed = seed * 1664525u + 1013904223u;
            dense[i] = (int)(seed >> 28) < density;
            area += dense[i];
        }
        ist_mask mask = pack(dense, w, h, trial % 2);
        ist_rle rle = {0};
        ist_text text = {0};
        uint32_t *counts = calloc((size_t)(w * h) + 2, sizeof *counts);
        cr_assert_eq(ist_rle_encode(&mask, w, h, &rle, NULL), IST_OK);
        ist_rle_text(&rle, &text);
        size_t n = decode(text.data, counts);
        cr_assert_eq(n, rle.count);
        cr_assert_eq(ist_rle_area(&rle), area);
        int at = 0;
        for (size_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < counts[i]; k++) cr_assert_eq(dense[at++], i % 2, "trial %d pixel %d", trial, at);
        cr_assert_eq(at, w * h);
        free(counts);
        ist_text_free(&text);
        ist_rle_free(&rle);
        free((void *)(uintptr_t)mask.bits);
        free(dense);
    }
}

Test(io_rle, bits_below_the_image_are_ignored) {
    const uint32_t bits[2] = {UINT32_MAX, UINT32_MAX};
    ist_mask mask = {.columns = 2, .words = 1, .bits = bits};
    ist_rle rle = {0};
    cr_assert_eq(ist_rle_encode(&mask, 3, 5, &rle, NULL), IST_OK);
    cr_assert_eq(rle.count, 3);
    cr_expect_eq(rle.counts[0], 0);
    cr_expect_eq(rle.counts[1], 10);
    cr_expect_eq(rle.counts[2], 5);
    ist_rle_free(&rle);
}

Test(io_rle, a_mask_outside_of_the_image_is_refused) {
    const uint32_t bits[1] = {1};
    ist_rle rle = {0};
    ist_error err;
    ist_mask right = {.x0 = 3, .columns = 1, .words = 1, .bits = bits};
    ist_mask below = {.y0 = 32, .columns = 1, .words = 1, .bits = bits};
    cr_expect_eq(ist_rle_encode(&right, 3, 5, &rle, &err), IST_E_ARGUMENT);
    cr_expect_eq(ist_rle_encode(&below, 3, 32, &rle, &err), IST_E_ARGUMENT);
    cr_expect_eq(ist_rle_encode(&right, 70000, 70000, &rle, &err), IST_E_LIMIT);
    ist_rle_free(&rle);
}

static void expect_damaged(const char *text, uint64_t pixels, const char *part) {
    ist_rle rle = {0};
    ist_error err = {0};
    cr_expect_eq(ist_rle_parse(text, strlen(text), pixels, &rle, &err), IST_E_INPUT, "%s", text);
    cr_expect_not_null(strstr(err.text, part), "'%s' lacks '%s'", err.text, part);
    ist_rle_free(&rle);
}

Test(io_rle, text_reads_back_as_pycocotools_wrote_it) {
    json_t *cases = json_load_file(IST_GOLDEN_DIR "/rle.json", 0, NULL), *c;
    ist_rle rle = {0};
    size_t i;
    json_array_foreach(cases, i, c) {
        const char *text = json_string_value(json_object_get(c, "counts"));
        const json_t *runs = json_object_get(c, "runs");
        uint64_t pixels = (uint64_t)json_integer_value(json_object_get(c, "width")) *
                          (uint64_t)json_integer_value(json_object_get(c, "height"));
        ist_error err;
        cr_assert_eq(ist_rle_parse(text, strlen(text), pixels, &rle, &err), IST_OK, "%s", err.text);
        cr_assert_eq(rle.count, json_array_size(runs));
        for (size_t k = 0; k < rle.count; k++)
            cr_assert_eq(rle.counts[k], (uint32_t)json_integer_value(json_array_get(runs, k)));
        if (strlen(text) < 3) continue;
        cr_expect_eq(ist_rle_parse(text, strlen(text) - 1, pixels, &rle, &err), IST_E_INPUT, "%s", text);
        cr_expect_eq(ist_rle_parse(text, strlen(text), pixels - 1, &rle, &err), IST_E_INPUT, "%s", text);
        cr_expect_eq(ist_rle_parse(text, strlen(text), pixels + 1, &rle, &err), IST_E_INPUT, "%s", text);
    }
    ist_rle_free(&rle);
    json_decref(cases);
}

Test(io_rle, damaged_text) {
    expect_damaged("", 12, "0 pixels in an image of 12");
    expect_damaged("3/", 12, "byte 2 of 2");
    expect_damaged("3p", 12, "byte 2 of 2");
    expect_damaged("3P", 12, "byte 2 of 2"); /* more was to follow */
    expect_damaged("ooooooooooo", 12, "damaged");
    expect_damaged("O", 12, "run 0 of -1 pixels");
    expect_damaged("3000", 12, "3 pixels in an image of 12");
    expect_damaged("320O", 12, "6 pixels in an image of 12"); /* one fewer than the second */
    expect_damaged("321M", 12, "run 3 of -1 pixels");
    expect_damaged("=", 12, "run 0 of 13 pixels");
    expect_damaged("\xFF", 12, "byte 1 of 1");
}

Test(io_rle, overlap_and_box) {
    uint32_t a_runs[7] = {0, 3, 2, 4, 0, 2, 1}, b_runs[5] = {2, 4, 1, 0, 5};
    ist_rle a = {.counts = a_runs, .count = 7}, b = {.counts = b_runs, .count = 5}, none = {0};
    double box[4];
    cr_expect_eq(ist_rle_overlap(&a, &b), 2); /* ones at 0..2, 5..10 and at 2..5 */
    cr_expect_eq(ist_rle_overlap(&b, &a), 2);
    cr_expect_eq(ist_rle_overlap(&a, &a), 9);
    cr_expect_eq(ist_rle_overlap(&a, &none), 0);
    ist_rle_box(&b, 3, box);
    cr_expect(box[0] == 0 && box[1] == 0 && box[2] == 2 && box[3] == 3);
    ist_rle_box(&b, 12, box); /* one column; a run of no pixels is nowhere */
    cr_expect(box[0] == 0 && box[1] == 2 && box[2] == 1 && box[3] == 4);
    ist_rle_box(&none, 3, box);
    cr_expect(box[0] == 0 && box[1] == 0 && box[2] == 0 && box[3] == 0);
}
