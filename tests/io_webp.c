/* WebP in, against the same library's encoder. */
#include "io/image_format.h"

#include "scratch.h"

#include <webp/encode.h>

enum { W = 23, H = 14 };

static void fill(uint8_t *pixels, int channels) {
    for (int i = 0; i < W * H * channels; i++) pixels[i] = (uint8_t)(i * 37 + i / 50);
}

static void expect_failure(const uint8_t *bytes, size_t count, size_t limit, ist_status status, const char *part) {
    ist_bitmap b;
    ist_error err = {0};
    cr_expect_eq(ist_bitmap_decode(bytes, count, "t.webp", limit, &b, &err), status, "%s", err.text);
    cr_expect_not_null(strstr(err.text, part), "'%s' lacks '%s'", err.text, part);
    cr_expect_null(b.pixels);
}

Test(io_webp, lossless_is_exact_and_cuts_are_refused) {
    for (int channels = 3; channels <= 4; channels++) {
        uint8_t pixels[W * H * 4], *file = NULL;
        ist_bitmap b;
        ist_error err = {0};
        fill(pixels, channels);
        for (int i = 3; channels == 4 && i < W * H * 4; i += 4) pixels[i] |= 1; /* clear pixels may lose their colour */
        size_t n = channels == 3 ? WebPEncodeLosslessRGB(pixels, W, H, W * 3, &file)
                                 : WebPEncodeLosslessRGBA(pixels, W, H, W * 4, &file);
        cr_assert(n);
        cr_assert_eq(ist_bitmap_decode(file, n, "t.webp", W * H, &b, &err), IST_OK, "%s", err.text);
        cr_assert(b.width == W && b.height == H);
        cr_expect_eq(b.format, channels == 3 ? IST_RGB8 : IST_RGBA8);
        cr_expect_arr_eq(b.pixels, pixels, b.stride * H);
        ist_image_size size = ist_image_measure_bytes(file, n, W * H);
        cr_expect_eq(size.pixels, (size_t)W * H);
        cr_expect_geq(size.decoded, b.stride * H);
        ist_bitmap_free(&b);
        expect_failure(file, n, W * H - 1, IST_E_LIMIT, "23 x 14 pixels");
        expect_failure(file, n / 2, W * H, IST_E_INPUT, "truncated after");
        expect_failure(file, 14, W * H, IST_E_INPUT, "truncated after 14 bytes");
        file[n / 2] ^= 0x55;
        if (ist_bitmap_decode(file, n, "t.webp", W * H, &b, &err)) cr_expect_null(b.pixels);
        ist_bitmap_free(&b);
        WebPFree(file);
    }
}

/* The header of an extended file that says it is animated. */
Test(io_webp, animations_are_refused) {
    static const uint8_t file[] = "RIFF\x16\0\0\0WEBPVP8X\x0A\0\0\0\2\0\0\0\x16\0\0\x0D\0\0";
    expect_failure(file, sizeof file - 1, 1000, IST_E_INPUT, "animated WebP");
}
