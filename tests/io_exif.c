/* EXIF orientation: where it is found, in whole and in damaged data, and what turning by it makes. */
#include "io/exif.h"
#include "io/sources.h"

#include "scratch.h"

#include <stdint.h>
#include <turbojpeg.h>

/* An EXIF block of two entries, of which the second is the orientation. */
static size_t put_exif(uint8_t *to, bool little, uint32_t offset, int orientation) {
    static const uint8_t ii[] = {'I', 'I', '*', 0,    8, 0, 0, 0, 2, 0, 0x0F, 1, 2, 0, 1, 0, 0, 0, 'a',
                                 0,   0,   0,   0x12, 1, 3, 0, 1, 0, 0, 0,    9, 0, 0, 0, 0, 0, 0, 0};
    static const uint8_t mm[] = {'M', 'M', 0, '*', 0,    0, 0, 8, 0, 2, 1, 0x0F, 0, 2, 0, 0, 0, 1, 'a',
                                 0,   0,   0, 1,   0x12, 0, 3, 0, 0, 0, 1, 0,    9, 0, 0, 0, 0, 0, 0};
    memcpy(to, little ? ii : mm, sizeof ii);
    to[little ? 30 : 31] = (uint8_t)orientation;
    to[little ? 4 : 7] = (uint8_t)offset;
    return sizeof ii;
}

static size_t put_segment(uint8_t *to, bool little, uint32_t offset, int orientation) {
    memcpy(to, "\xFF\xE1\0\0Exif\0\0", 10);
    size_t n = 10 + put_exif(to + 10, little, offset, orientation);
    to[3] = (uint8_t)(n - 2);
    return n;
}

Test(io_exif, found_in_every_kind_of_file) {
    uint8_t file[300];
    for (int o = 1; o <= 8; o++)
        for (int little = 0; little < 2; little++) {
            /* a segment before it, and padding */
            memcpy(file, "\xFF\xD8\xFF\xE0\0\4ab\xFF\xFF", 10);
            size_t n = 10 + put_segment(file + 9, little, 8, o) - 1;
            cr_expect_eq(ist_exif_orientation(file, n), o);
            for (size_t k = 0; k < n; k++) cr_expect_eq(ist_exif_orientation(file, k), 0, "cut to %zu", k);
            /* PNG: the size of a chunk, its name, the data, a checksum */
            memcpy(file,
                   "\x89PNG\r\n\x1A\n\0\0\0\2abcdxychck\0\0\0\x26"
                   "eXIf",
                   30);
            n = 30 + put_exif(file + 30, little, 8, o);
            cr_expect_eq(ist_exif_orientation(file, n), o);
            cr_expect_eq(ist_exif_orientation(file, n - 1), 0);
            /* WebP: chunks have an even length */
            memcpy(file, "RIFF\0\0\0\0WEBPVP8 \1\0\0\0xyEXIF\x26\0\0\0", 30);
            n = 30 + put_exif(file + 30, little, 8, o);
            cr_expect_eq(ist_exif_orientation(file, n), o);
            cr_expect_eq(ist_exif_orientation(file, n - 1), 0);
        }
}

Test(io_exif, what_is_damaged_or_unknown_says_nothing) {
    uint8_t file[300] = {0xFF, 0xD8};
    const struct {
        uint32_t offset;
        int orientation;
    } cases[] = {{8, 0}, {8, 9}, {8, 255}, {200, 6}, {36, 6}, {255, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = 2 + put_segment(file + 2, true, cases[i].offset, cases[i].orientation);
        cr_expect_eq(ist_exif_orientation(file, n), 0, "case %zu", i);
    }
    size_t n = 2 + put_segment(file + 2, true, 8, 6);
    file[12] = 'X'; /* neither order of bytes */
    cr_expect_eq(ist_exif_orientation(file, n), 0);
    n = 2 + put_segment(file + 2, true, 8, 6);
    file[20] = 255; /* more entries than there are: the second is still the one */
    cr_expect_eq(ist_exif_orientation(file, n), 6);
    /* behind the pixels nothing counts */
    memcpy(file + 2, "\xFF\xDA\0\4ab", 6);
    n = 8 + put_segment(file + 8, true, 8, 6);
    cr_expect_eq(ist_exif_orientation(file, n), 0);
}

/* What Pillow 12's exif_transpose makes of
 *   0 1 2
 *   3 4 5 */
Test(io_exif, turned_as_pillow_does) {
    static const uint8_t want[9][6] = {{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}, {2, 1, 0, 5, 4, 3},
                                       {5, 4, 3, 2, 1, 0}, {3, 4, 5, 0, 1, 2}, {0, 3, 1, 4, 2, 5},
                                       {3, 0, 4, 1, 5, 2}, {5, 2, 4, 1, 3, 0}, {2, 5, 1, 4, 0, 3}};
    static const ist_pixel_format formats[] = {IST_GRAY8,  IST_GRAYA8,  IST_RGB8,  IST_RGBA8,
                                               IST_GRAY16, IST_GRAYA16, IST_RGB16, IST_RGBA16};
    for (int o = 0; o <= 8; o++)
        for (size_t k = 0; k < 8; k++) {
            ist_bitmap b;
            size_t size = (size_t)(ist_format_channels(formats[k]) * ist_format_bytes(formats[k]));
            cr_assert_eq(ist_bitmap_allocate("t", 3, 2, formats[k], 100, &b, NULL), IST_OK);
            for (size_t i = 0; i < 6 * size; i++) ((uint8_t *)b.pixels)[i] = (uint8_t)(i / size * 10 + i % size);
            b.orientation = o;
            cr_assert_eq(ist_bitmap_turn(&b, NULL), IST_OK);
            cr_expect(b.width == (o >= 5 ? 2 : 3) && b.height == (o >= 5 ? 3 : 2) && b.format == formats[k]);
            cr_expect_eq(b.stride, (size_t)b.width * size);
            cr_expect_leq(b.orientation, 1);
            for (size_t i = 0; i < 6 * size; i++)
                cr_expect_eq(((uint8_t *)b.pixels)[i], want[o][i / size] * 10 + i % size, "orientation %d", o);
            ist_bitmap_free(&b);
        }
}

/* Through a list: only where it is asked for, and what it takes is said before. */
Test(io_exif, a_list_turns_what_it_reads) {
    enum { W = 20, H = 8 };
    uint8_t pixels[W * H], file[4000] = {0xFF, 0xD8};
    scratch s = scratch_make();
    unsigned char *jpeg = NULL;
    unsigned long size = 0;
    for (int i = 0; i < W * H; i++) pixels[i] = (uint8_t)(i % W * 10 + i / W);
    tjhandle handle = tjInitCompress();
    cr_assert_eq(tjCompress2(handle, pixels, W, 0, H, TJPF_GRAY, &jpeg, &size, TJSAMP_GRAY, 100, 0), 0);
    tjDestroy(handle);
    size_t n = 2 + put_segment(file + 2, false, 8, 6);
    memcpy(file + n, jpeg + 2, size - 2);
    scratch_write(scratch_path(&s, "a.jpg"), file, n + size - 2);
    for (int turned = 0; turned < 2; turned++) {
        ist_sources l = {.turned = turned};
        ist_error err = {0};
        ist_bitmap b;
        cr_assert_eq(ist_sources_add(&l, scratch_path(&s, "a.jpg"), false, NULL, &err), IST_OK);
        cr_assert_eq(ist_sources_finish(&l, &err), IST_OK);
        cr_assert_eq(ist_source_read(&l.items[0], 1000, &b, &err), IST_OK, "%s", err.text);
        cr_expect_eq(b.width, turned ? H : W);
        cr_expect_eq(b.height, turned ? W : H);
        cr_expect_eq(b.orientation, turned ? 1 : 6);
        int top_right = ((uint8_t *)b.pixels)[b.width - 1]; /* turned to the right it was the top left one */
        cr_expect(abs(top_right - (turned ? 0 : 190)) < 5, "%d", top_right);
        ist_image_size need = ist_source_measure(&l.items[0], 1000);
        cr_expect_geq(need.decoded + need.passing, (size_t)(turned + 1) * W * H);
        ist_bitmap_free(&b);
        ist_sources_free(&l);
    }
    tjFree(jpeg);
    scratch_remove(&s);
}
