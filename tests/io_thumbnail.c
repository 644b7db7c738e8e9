/* Small copies of pictures: sizes, means, and JPEG that the decoder reads again. */
#include "io/thumbnail.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const int whole[2]; /* window: 0 and 65535 */

static void expect_size(int width, int height, int side, int w, int h) {
    int x, y;
    ist_thumbnail_size(width, height, side, &x, &y);
    cr_expect(x == w && y == h, "%d x %d at %d: %d x %d, want %d x %d", width, height, side, x, y, w, h);
}

Test(io_thumbnail, keeps_the_shape_and_never_grows) {
    expect_size(100, 50, 720, 100, 50);
    expect_size(720, 720, 720, 720, 720);
    expect_size(1440, 720, 720, 720, 360);
    expect_size(720, 1441, 720, 359, 720);
    expect_size(100000, 3, 720, 720, 1);
    expect_size(1, 65535, 10, 1, 10);
}

/* Quarters of a picture, each of one colour with noise around it that averages out. */
Test(io_thumbnail, pixels_are_means) {
    enum { SIDE = 256 };
    static uint8_t pixels[SIDE][SIDE][3];
    static const uint8_t colors[4][3] = {{200, 40, 40}, {40, 200, 40}, {40, 40, 200}, {120, 120, 120}};
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            for (int c = 0; c < 3; c++)
                pixels[y][x][c] = (uint8_t)(colors[x / 128 + 2 * (y / 128)][c] + ((x + y) % 2 ? 30 : -30));
    ist_bitmap image = {.width = SIDE, .height = SIDE, .format = IST_RGB8, .stride = 3 * SIDE, .pixels = pixels}, back;
    ist_thumbnail small;
    ist_error err;
    cr_assert_eq(ist_thumbnail_make(&image, whole, 64, 90, &small, &err), IST_OK, "%s", err.text);
    cr_expect(small.width == 64 && small.height == 64);
    cr_assert_eq(ist_bitmap_decode(small.bytes, small.count, "small", IST_MAX_PIXELS, &back, &err), IST_OK, "%s",
                 err.text);
    cr_assert(back.width == 64 && back.height == 64 && back.format == IST_RGB8);
    for (int q = 0; q < 4; q++)
        for (int c = 0; c < 3; c++) {
            int x = 16 + 32 * (q % 2), y = 16 + 32 * (q / 2);
            int value = ((uint8_t *)back.pixels)[(size_t)y * back.stride + 3 * (size_t)x + (size_t)c];
            cr_expect_leq(abs(value - colors[q][c]), 3, "quarter %d channel %d: %d", q, c, value);
        }
    ist_bitmap_free(&back);
    ist_thumbnail_free(&small);
    cr_expect_null(small.bytes);
}

Test(io_thumbnail, gray_of_16_bits_and_one_pixel) {
    uint16_t pixel = 0x8080;
    ist_bitmap image = {.width = 1, .height = 1, .format = IST_GRAY16, .stride = 2, .pixels = &pixel}, back;
    ist_thumbnail small;
    ist_error err;
    cr_assert_eq(ist_thumbnail_make(&image, whole, 720, 85, &small, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_bitmap_decode(small.bytes, small.count, "small", IST_MAX_PIXELS, &back, &err), IST_OK, "%s",
                 err.text);
    cr_expect_leq(abs(*(uint8_t *)back.pixels - 128), 1);
    ist_bitmap_free(&back);
    ist_thumbnail_free(&small);
    const int window[2] = {0x7000, 0x8080};
    cr_assert_eq(ist_thumbnail_make(&image, window, 720, 85, &small, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_bitmap_decode(small.bytes, small.count, "small", IST_MAX_PIXELS, &back, &err), IST_OK);
    cr_expect_geq(*(uint8_t *)back.pixels, 254);
    ist_bitmap_free(&back);
    ist_thumbnail_free(&small);
}
