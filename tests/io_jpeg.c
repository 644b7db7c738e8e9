/* JPEG in: gray and colour against the same library's encoder, refusals, truncation. */
#include "io/image.h"

#include "scratch.h"

#include <math.h>
#include <turbojpeg.h>

enum { W = 61, H = 37 };

static void gradient(uint8_t *pixels, int channels) {
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            for (int c = 0; c < channels; c++)
                pixels[(y * W + x) * channels + c] = (uint8_t)(20 + x * 3 + (c == 1 ? y * 2 : c == 2 ? 60 - y : 0));
}

static size_t encode(const uint8_t *pixels, int format, int sampling, int quality, unsigned char **jpeg) {
    unsigned long size = 0;
    tjhandle handle = tjInitCompress();
    *jpeg = NULL;
    cr_assert_eq(tjCompress2(handle, pixels, W, 0, H, format, jpeg, &size, sampling, quality, 0), 0);
    tjDestroy(handle);
    return size;
}

static void check_close(const uint8_t *want, const ist_bitmap *got, int channels) {
    int worst = 0;
    for (int i = 0; i < W * H * channels; i++) {
        int d = abs(want[i] - ((const uint8_t *)got->pixels)[i]);
        worst = d > worst ? d : worst;
    }
    cr_expect_leq(worst, 4, "largest difference %d", worst);
}

Test(io_jpeg, colour_and_gray_round_trip) {
    uint8_t pixels[W * H * 3];
    unsigned char *jpeg;
    ist_bitmap b;
    ist_error err;
    gradient(pixels, 3);
    size_t n = encode(pixels, TJPF_RGB, TJSAMP_444, 100, &jpeg);
    cr_assert_eq(ist_bitmap_decode(jpeg, n, "t.jpg", 10000, &b, &err), IST_OK, "%s", err.text);
    cr_expect_eq(b.format, IST_RGB8);
    cr_assert(b.width == W && b.height == H && b.stride == 3 * W);
    check_close(pixels, &b, 3);
    ist_bitmap_free(&b);
    tjFree(jpeg);
    gradient(pixels, 1);
    n = encode(pixels, TJPF_GRAY, TJSAMP_GRAY, 100, &jpeg);
    cr_assert_eq(ist_bitmap_decode(jpeg, n, "t.jpg", 10000, &b, &err), IST_OK, "%s", err.text);
    cr_expect_eq(b.format, IST_GRAY8);
    check_close(pixels, &b, 1);
    ist_bitmap_free(&b);
    tjFree(jpeg);
}

static void expect_failure(const void *bytes, size_t n, size_t limit, ist_status status, const char *part) {
    ist_bitmap b;
    ist_error err = {0};
    cr_expect_eq(ist_bitmap_decode(bytes, n, "t.jpg", limit, &b, &err), status, "%s", err.text);
    cr_expect_not_null(strstr(err.text, part), "'%s' lacks '%s'", err.text, part);
    cr_expect_null(b.pixels);
}

Test(io_jpeg, truncated_is_an_error) {
    uint8_t pixels[W * H * 3];
    unsigned char *jpeg;
    gradient(pixels, 3);
    size_t n = encode(pixels, TJPF_RGB, TJSAMP_420, 80, &jpeg);
    expect_failure(jpeg, n - 40, 10000, IST_E_INPUT, "truncated");
    expect_failure(jpeg, n / 2, 10000, IST_E_INPUT, "t.jpg");
    expect_failure(jpeg, 10, 10000, IST_E_INPUT, "t.jpg");
    expect_failure(jpeg, 3, 10000, IST_E_INPUT, "truncated after 3 bytes");
    expect_failure(jpeg, 4, 10000, IST_E_INPUT, "truncated after 4 bytes");
    expect_failure(jpeg, n, W * H - 1, IST_E_LIMIT, "61 x 37 pixels");
    tjFree(jpeg);
}

Test(io_jpeg, cmyk_is_refused) {
    uint8_t pixels[W * H * 4];
    unsigned char *jpeg;
    gradient(pixels, 4);
    size_t n = encode(pixels, TJPF_CMYK, TJSAMP_444, 90, &jpeg);
    expect_failure(jpeg, n, 10000, IST_E_INPUT, "CMYK");
    tjFree(jpeg);
}

Test(io_jpeg, content_decides_not_the_extension) {
    uint8_t pixels[W * H * 3];
    unsigned char *jpeg;
    scratch s = scratch_make();
    ist_bitmap b;
    ist_error err;
    gradient(pixels, 3);
    size_t n = encode(pixels, TJPF_RGB, TJSAMP_444, 90, &jpeg);
    scratch_write(scratch_path(&s, "really-a-jpeg.png"), jpeg, n);
    cr_expect_eq(ist_bitmap_read(scratch_path(&s, "really-a-jpeg.png"), 10000, &b, &err), IST_OK, "%s", err.text);
    ist_bitmap_free(&b);
    tjFree(jpeg);
    scratch_remove(&s);
}
