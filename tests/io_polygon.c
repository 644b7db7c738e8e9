/* Polygons to run lengths against pycocotools (tests/golden/eval/polygons.json), and their limits. */
#include "io/polygon.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void draw(ist_raster *r, const json_t *polygon) {
    size_t n = json_array_size(polygon);
    double *xy = malloc(n * sizeof *xy);
    ist_error err;
    for (size_t i = 0; i < n; i++) xy[i] = json_number_value(json_array_get(polygon, i));
    cr_assert_eq(ist_raster_add(r, xy, n / 2, &err), IST_OK, "%s", err.text);
    free(xy);
}

Test(io_polygon, equals_pycocotools) {
    json_t *cases = json_load_file(IST_GOLDEN_DIR "/eval/polygons.json", 0, NULL), *c, *polygon;
    ist_raster r = {0};
    ist_rle rle = {0};
    size_t i, k;
    cr_assert_geq(json_array_size(cases), 60);
    json_array_foreach(cases, i, c) {
        const char *counts = json_string_value(json_object_get(c, "counts"));
        ist_text text = {0};
        double box[4];
        r.width = (int)json_integer_value(json_object_get(c, "width"));
        r.height = (int)json_integer_value(json_object_get(c, "height"));
        json_array_foreach(json_object_get(c, "polygons"), k, polygon) draw(&r, polygon);
        cr_assert_eq(ist_raster_finish(&r, &rle, NULL), IST_OK);
        ist_rle_text(&rle, &text);
        cr_expect_str_eq(text.data, counts, "case %zu", i);
        cr_expect_eq(ist_rle_area(&rle), (uint64_t)json_integer_value(json_object_get(c, "area")), "case %zu", i);
        ist_rle_box(&rle, r.height, box);
        for (k = 0; k < 4; k++)
            cr_expect_eq(box[k], json_number_value(json_array_get(json_object_get(c, "box"), k)), "case %zu", i);
        ist_text_free(&text);
    }
    ist_raster_free(&r);
    ist_rle_free(&rle);
    json_decref(cases);
}

static uint64_t area_of(int width, int height, size_t count, const double *xy) {
    ist_raster r = {.width = width, .height = height};
    ist_rle rle = {0};
    ist_error err;
    cr_assert_eq(ist_raster_add(&r, xy, count, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_raster_finish(&r, &rle, &err), IST_OK, "%s", err.text);
    uint64_t area = ist_rle_area(&rle), total = 0;
    for (size_t i = 0; i < rle.count; i++) total += rle.counts[i];
    cr_expect_eq(total, (uint64_t)width * (uint64_t)height);
    ist_raster_free(&r);
    ist_rle_free(&rle);
    return area;
}

Test(io_polygon, outlines_far_outside_are_cut_at_the_edges) {
    const double everything[8] = {-1e8, -1e8, -1e8, 1e8, 1e8, 1e8, 1e8, -1e8};
    const double diagonal[6] = {-1e8, -1e8, 1e8, 1e8, -1e8, 1e8}, above[6] = {-5, -9, 20, -9, 8, -1};
    cr_expect_eq(area_of(7, 5, 4, everything), 35);
    cr_expect_eq(area_of(6, 6, 3, diagonal), 21); /* a diagonal pixel counts */
    cr_expect_eq(area_of(7, 5, 3, above), 0);
}

Test(io_polygon, degenerate_outlines_are_empty) {
    const double line[4] = {1, 1, 5, 4}, point[6] = {2, 2, 2, 2, 2, 2}, column[6] = {2, 0, 2, 5, 2, 1};
    cr_expect_eq(area_of(7, 5, 2, line), 0);
    cr_expect_eq(area_of(7, 5, 3, point), 0);
    cr_expect_eq(area_of(7, 5, 3, column), 0);
    cr_expect_eq(area_of(7, 5, 0, line), 0);
}

Test(io_polygon, limits) {
    enum { COUNT = 40 };
    static double zigzag[2 * COUNT];
    const double far[6] = {0, 0, 1e9, 0, 0, 1};
    ist_raster r = {.width = 1 << 20, .height = 1};
    ist_error err;
    cr_expect_eq(ist_raster_add(&r, far, 3, &err), IST_E_INPUT);
    cr_expect_not_null(strstr(err.text, "1e+09"), "%s", err.text);
    for (int i = 0; i < COUNT; i++) zigzag[2 * i] = i % 2 ? 1 << 20 : 0;
    cr_expect_eq(ist_raster_add(&r, zigzag, COUNT, &err), IST_E_LIMIT);
    cr_expect_not_null(strstr(err.text, "16777216"), "%s", err.text);
    ist_raster_free(&r);
}
