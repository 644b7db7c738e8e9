/* JPEG in: gray and colour against the same library's encoder, refusals, truncation. */
#include "io/image.h"
#include "io/image_size.h"

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

static size_t encode_as(int flags, const uint8_t *pixels, int format, int sampling, int quality, unsigned char **jpeg) {
    unsigned long size = 0;
    tjhandle handle = tjInitCompress();
    *jpeg = NULL;
    cr_assert_eq(tjCompress2(handle, pixels, W, 0, H, format, jpeg, &size, sampling, quality, flags), 0);
    tjDestroy(handle);
    return size;
}

static size_t encode(const uint8_t *pixels, int format, int sampling, int quality, unsigned char **jpeg) {
    return encode_as(0, pixels, format, sampling, quality, jpeg);
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

/* Whatever the length, a file that is accepted has the pixels of the whole one; *accepted is how many are. */
static void cut_everywhere(const unsigned char *jpeg, size_t n, int *accepted) {
    ist_bitmap whole, b;
    ist_error err;
    cr_assert_eq(ist_bitmap_decode(jpeg, n, "t.jpg", 10000, &whole, &err), IST_OK, "%s", err.text);
    int wrong = *accepted = 0;
    for (size_t k = 0; k < n; k++) {
        unsigned char *cut = malloc(k + 1); /* of its own, so that reading beyond it is seen */
        memcpy(cut, jpeg, k);
        if (!ist_bitmap_decode(cut, k, "t.jpg", 10000, &b, &err)) {
            ++*accepted;
            wrong += memcmp(b.pixels, whole.pixels, whole.stride * H) != 0;
            ist_bitmap_free(&b);
        }
        free(cut);
    }
    cr_expect_eq(wrong, 0, "%d of %d have other pixels", wrong, *accepted);
    ist_bitmap_free(&whole);
}

/* Two bytes are the marker that ends the image. Without it nobody can tell whether a progressive one has all scans. */
Test(io_jpeg, only_the_end_marker_may_be_missing) {
    static const struct {
        const char *restart;
        int flags, format, sampling, accepted;
    } cases[] = {{NULL, 0, TJPF_RGB, TJSAMP_420, 2},
                 {NULL, 0, TJPF_RGB, TJSAMP_444, 2},
                 {NULL, 0, TJPF_GRAY, TJSAMP_GRAY, 2},
                 {"1", 0, TJPF_RGB, TJSAMP_420, 2},
                 {NULL, TJFLAG_PROGRESSIVE, TJPF_RGB, TJSAMP_420, 0},
                 {NULL, TJFLAG_PROGRESSIVE, TJPF_GRAY, TJSAMP_GRAY, 0}};
    uint8_t pixels[W * H * 3];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char *jpeg;
        int accepted;
        if (cases[i].restart) setenv("TJ_RESTART", cases[i].restart, 1);
        gradient(pixels, cases[i].format == TJPF_GRAY ? 1 : 3);
        size_t n = encode_as(cases[i].flags, pixels, cases[i].format, cases[i].sampling, 85, &jpeg);
        unsetenv("TJ_RESTART");
        cut_everywhere(jpeg, n, &accepted);
        cr_expect_eq(accepted, cases[i].accepted, "case %zu: %d", i, accepted);
        tjFree(jpeg);
    }
}

/* Cameras pad between segments, and in front of the end of the image. */
Test(io_jpeg, padding_hides_no_truncation) {
    static const unsigned char padding[] = {0, 1, 2, 3, 0xFF, 0, 7};
    uint8_t pixels[W * H * 3];
    unsigned char *jpeg, padded[20000];
    ist_bitmap plain, b;
    ist_error err;
    int accepted;
    gradient(pixels, 3);
    size_t n = encode(pixels, TJPF_RGB, TJSAMP_420, 85, &jpeg), at = 4 + (size_t)(jpeg[4] << 8 | jpeg[5]);
    const size_t places[] = {at, n - 2};
    cr_assert_lt(n + sizeof padding, sizeof padded);
    cr_assert_eq(jpeg[at], 0xFF, "the first segment ends there");
    cr_assert_eq(ist_bitmap_decode(jpeg, n, "t.jpg", 10000, &plain, &err), IST_OK, "%s", err.text);
    for (size_t i = 0; i < 2; i++) {
        memcpy(padded, jpeg, places[i]);
        memcpy(padded + places[i], padding, sizeof padding);
        memcpy(padded + places[i] + sizeof padding, jpeg + places[i], n - places[i]);
        cr_assert_eq(ist_bitmap_decode(padded, n + sizeof padding, "t.jpg", 10000, &b, &err), IST_OK, "%s", err.text);
        cr_expect_arr_eq(b.pixels, plain.pixels, plain.stride * H);
        ist_bitmap_free(&b);
        if (i) continue; /* a file that is cut within what is of no use is a whole one without its end */
        cut_everywhere(padded, n + sizeof padding, &accepted);
        cr_expect_eq(accepted, 2, "%d", accepted);
    }
    ist_bitmap_free(&plain);
    tjFree(jpeg);
}

/* A file that Pillow 12.0 wrote, and what its convert("RGB") makes of it; fuzz/corpus keeps it without its first
 * marker. */
Test(io_jpeg, cmyk_becomes_what_pillow_makes_of_it) {
    static const uint8_t want[36] = {28, 8,  24, 3,   17,  46,  8, 101, 52, 38,  35,  7,  35, 41,  133, 91, 79, 10,
                                     49, 91, 62, 100, 136, 160, 0, 3,   1,  227, 138, 42, 84, 181, 153, 70, 84, 134};
    size_t n = 0;
    ist_bitmap b;
    ist_error err;
    char *tail = scratch_read(IST_SOURCE_DIR "/tests/fuzz/corpus/jpeg/cmyk", &n), *jpeg = malloc(n + 2);
    cr_assert(tail && jpeg);
    memcpy(jpeg, "\xFF\xD8", 2);
    memcpy(jpeg + 2, tail, n);
    cr_assert_eq(ist_bitmap_decode(jpeg, n + 2, "t.jpg", 100, &b, &err), IST_OK, "%s", err.text);
    cr_assert_eq(b.format, IST_RGB8);
    cr_assert(b.width == 4 && b.height == 3 && b.stride == 12);
    cr_expect_arr_eq(b.pixels, want, sizeof want);
    ist_image_size size = ist_image_measure_bytes(jpeg, n + 2, 100);
    cr_expect_eq(size.decoded, 4 * 3 * 4, "four samples until they are three");
    ist_bitmap_free(&b);
    expect_failure(jpeg, n - 40, 100, IST_E_INPUT, "truncated");
    free(tail), free(jpeg);
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
