/* What headers say about memory, beside what decoding then takes. */
#include "io/image_size.h"

#include "io/image.h"
#include "scratch.h"

#include <stdint.h>

static const char *corpus(const char *name) {
    static char path[400];
    snprintf(path, sizeof path, IST_SOURCE_DIR "/tests/fuzz/corpus/png/%s", name);
    return path;
}

Test(io_image_size, headers_say_what_decoding_takes) {
    static const char *const names[] = {"bit.png", "ga.png",  "gray.jpg",    "gray.png", "gray16.png", "interlaced.png",
                                        "pal.png", "rgb.jpg", "paltrns.png", "rgb.png",  "rgba.png",   "trns.png"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ist_bitmap b;
        ist_error err;
        struct stat st;
        cr_assert_eq(ist_bitmap_read(corpus(names[i]), 1 << 24, &b, &err), IST_OK, "%s", err.text);
        cr_assert_eq(stat(corpus(names[i]), &st), 0);
        ist_image_size s = ist_image_measure(corpus(names[i]), 1 << 24);
        size_t bytes = b.stride * (size_t)b.height;
        cr_expect_eq(s.pixels, (size_t)b.width * (size_t)b.height, "%s", names[i]);
        cr_expect(s.decoded >= bytes && s.decoded <= 2 * bytes, "%s: %zu for %zu bytes", names[i], s.decoded, bytes);
        cr_expect_geq(s.passing, (size_t)st.st_size);
        cr_expect_eq(ist_image_measure(corpus(names[i]), s.pixels - 1).pixels, 0, "%s is beyond the limit", names[i]);
        ist_bitmap_free(&b);
    }
}

/* SOI, an APP1 segment of 300 bytes, SOF: the frame is found behind others; a progressive one takes its coefficients.
 */
static size_t make_jpeg(uint8_t *out, int sof, int components) {
    size_t n = 0;
    const uint8_t head[] = {0xFF, 0xD8, 0xFF, 0xE1, 300 >> 8, 300 & 255};
    memcpy(out, head, sizeof head);
    n = 4 + 300;
    memset(out + sizeof head, 0xFF, n - sizeof head);
    const uint8_t frame[] = {0xFF, 0xFF, (uint8_t)sof, 0, 17, 8, 0x12, 0x00, 0x10, 0x01, (uint8_t)components};
    memcpy(out + n, frame, sizeof frame);
    return n + sizeof frame;
}

Test(io_image_size, jpeg_frames_are_found) {
    static const struct {
        int sof, components;
        size_t bytes, more;
    } cases[] = {{0xC0, 3, 3, 0}, {0xC1, 1, 1, 0}, {0xC2, 3, 3, 6}, {0xC2, 1, 1, 2}, {0xC9, 3, 3, 6}};
    scratch s = scratch_make();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bytes[400];
        size_t n = make_jpeg(bytes, cases[i].sof, cases[i].components), pixels = 0x1200 * 0x1001;
        scratch_write(scratch_path(&s, "a.jpg"), bytes, n);
        ist_image_size size = ist_image_measure(scratch_path(&s, "a.jpg"), 1 << 26);
        cr_expect_eq(size.pixels, pixels, "case %zu: %zu", i, size.pixels);
        cr_expect_eq(size.decoded, pixels * cases[i].bytes, "case %zu", i);
        cr_expect_eq(size.passing, pixels * cases[i].more + n, "case %zu: %zu", i, size.passing);
    }
    scratch_remove(&s);
}

Test(io_image_size, what_is_no_image_takes_nothing_and_what_is_unclear_the_most) {
    scratch s = scratch_make();
    const char *path = scratch_path(&s, "a");
    scratch_put(path, "no image at all, but long enough for a header");
    cr_expect_eq(ist_image_measure(path, 1000).pixels, 0);
    scratch_put(path, "");
    cr_expect_eq(ist_image_measure(path, 1000).pixels, 0);
    cr_expect_eq(ist_image_measure(scratch_path(&s, "gone"), 1000).pixels, 0);
    cr_expect_eq(ist_image_measure(s.path, 1000).pixels, 0);
    scratch_put(path, "\xFF\xD8\xFF\xE1\x01\x01 and then nothing");
    ist_image_size size = ist_image_measure(path, 1000);
    cr_expect(size.pixels == 1000 && size.decoded == 3000, "%zu, %zu", size.pixels, size.decoded);
    scratch_remove(&s);
}
