/* WebP in, against the same library's encoder. */
#include "io/image_format.h"
#include "io/sources.h"

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

/* ---- animations ---- */

enum { COUNT = 4, ROOM = 1 << 14 };

static uint8_t *put(uint8_t *p, unsigned value, int bytes) {
    for (int i = 0; i < bytes; i++) *p++ = (uint8_t)(value >> 8 * i);
    return p;
}

/* W x H, opaque: frame 0 has all of it, the others a square of 4 x 4 at (4 i, 2 i), each of another gray over what was
 * there. */
static size_t make_animation(uint8_t *file) {
    uint8_t *p = file;
    memcpy(p, "RIFF....WEBPVP8X\x0A\0\0\0\2\0\0\0", 24);
    p = put(put(p + 24, W - 1, 3), H - 1, 3);
    memcpy(p, "ANIM\6\0\0\0\xFF\xFF\xFF\xFF\0\0", 14);
    p += 14;
    for (int i = 0; i < COUNT; i++) {
        uint8_t pixels[W * H * 3], *still = NULL;
        const int w = i ? 4 : W, h = i ? 4 : H;
        memset(pixels, 40 + 50 * i, sizeof pixels);
        const size_t n = WebPEncodeLosslessRGB(pixels, w, h, w * 3, &still) - 12; /* the chunk of its pixels */
        memcpy(p, "ANMF", 4);
        p = put(p + 4, (unsigned)(16 + n), 4);
        p = put(put(put(put(p, (unsigned)(2 * i), 3), (unsigned)i, 3), (unsigned)w - 1, 3), (unsigned)h - 1, 3);
        p = put(put(p, 100, 3), 2, 1); /* ms; not blended, and it stays */
        memcpy(p, still + 12, n);
        p += n;
        WebPFree(still);
    }
    put(file + 4, (unsigned)(p - file - 8), 4);
    return (size_t)(p - file);
}

static void check_frame(const ist_bitmap *b, int frame) {
    cr_assert(b->width == W && b->height == H && b->format == IST_RGB8);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            int want = 40;
            for (int i = 1; i <= frame; i++)
                if (x >= 4 * i && x < 4 * i + 4 && y >= 2 * i && y < 2 * i + 4) want = 40 + 50 * i;
            cr_assert_eq(((uint8_t *)b->pixels)[(y * W + x) * 3 + 1], want, "frame %d, (%d, %d)", frame, x, y);
        }
}

/* As they are shown, forward and back, from a file and from memory; one image each in a list. */
Test(io_webp, animations_are_read_frame_by_frame) {
    static uint8_t file[ROOM];
    const size_t n = make_animation(file);
    scratch s = scratch_make();
    const char *path = scratch_path(&s, "a.webp");
    scratch_write(path, file, n);
    for (int way = 0; way < 2; way++) {
        ist_frames *frames = NULL;
        ist_error err = {0};
        ist_status status = way ? ist_frames_open(path, W * H, &frames, &err)
                                : ist_frames_open_bytes(file, n, "t.webp", W * H, &frames, &err);
        cr_assert_eq(status, IST_OK, "%s", err.text);
        cr_assert_eq(ist_frames_count(frames), COUNT);
        cr_expect_eq(ist_frames_size(frames).decoded, (size_t)W * H * 3);
        for (int i = 0; i < 2 * COUNT; i++) {
            ist_bitmap b;
            const int k = i < COUNT ? i : 2 * COUNT - 1 - i;
            cr_assert_eq(ist_frames_read(frames, (size_t)k, &b, &err), IST_OK, "%s", err.text);
            check_frame(&b, k);
            ist_bitmap_free(&b);
        }
        ist_frames_close(&frames);
    }
    ist_sources list = {0};
    ist_error err = {0};
    cr_assert_eq(ist_sources_add(&list, path, false, NULL, &err), IST_OK);
    cr_assert_eq(ist_sources_finish(&list, &err), IST_OK);
    cr_assert_eq(list.count, COUNT);
    cr_expect(strstr(list.items[2].path, "a.webp#3") && !strcmp(list.items[2].stem, "a.0003"), "%s, %s",
              list.items[2].path, list.items[2].stem);
    ist_sources_free(&list);
    scratch_remove(&s);
}

/* What is damaged costs its frame and those behind it; a cut file is none; a canvas beyond the limit is never made. */
Test(io_webp, animations_and_their_damage) {
    static uint8_t file[ROOM];
    const size_t n = make_animation(file);
    ist_frames *frames = NULL;
    ist_error err = {0};
    ist_bitmap b;
    expect_failure(file, n, W * H, IST_E_INPUT, "has 4 frames");
    for (size_t cut = 30; cut < n; cut += 7) {
        cr_expect_eq(ist_frames_open_bytes(file, cut, "t.webp", W * H, &frames, &err), IST_E_INPUT, "%zu bytes", cut);
        cr_expect_null(frames);
    }
    cr_assert_eq(ist_frames_open_bytes(file, n, "t.webp", W * H - 1, &frames, &err), IST_OK, "%s", err.text);
    cr_expect_eq(ist_frames_read(frames, 0, &b, &err), IST_E_LIMIT);
    cr_expect_str_eq(err.text, "t.webp: 23 x 14 pixels are more than the limit of 321");
    ist_frames_close(&frames);
    size_t last = n; /* the last frame's pixels, behind their size */
    while (memcmp(file + last, "VP8L", 4)) last--;
    memset(file + last + 13, 0xFF, n - last - 13);
    cr_assert_eq(ist_frames_open_bytes(file, n, "t.webp", W * H, &frames, &err), IST_OK, "%s", err.text);
    for (int turn = 0; turn < 2; turn++) {
        cr_expect_eq(ist_frames_read(frames, COUNT - 1, &b, &err), IST_E_INPUT);
        cr_expect_str_eq(err.text, "t.webp: damaged WebP: frame 4 cannot be decoded");
        cr_assert_eq(ist_frames_read(frames, COUNT - 2, &b, &err), IST_OK, "%s", err.text);
        check_frame(&b, COUNT - 2);
        ist_bitmap_free(&b);
    }
    ist_frames_close(&frames);
}
