/* BMP and PNM in, from bytes written here, and the table of formats. */
#include "io/image_format.h"

#include "scratch.h"

/* Text with its length: files here have zero bytes. */
#define FILE_OF(text) text, sizeof text - 1

static void expect_pixels(const char *bytes, size_t count, int width, int height, ist_pixel_format format,
                          const void *pixels) {
    ist_bitmap b;
    ist_error err = {0};
    cr_assert_eq(ist_bitmap_decode(bytes, count, "t", 100, &b, &err), IST_OK, "%s", err.text);
    cr_assert(b.width == width && b.height == height, "%d x %d", b.width, b.height);
    cr_assert_eq(b.format, format, "format 0x%x", (unsigned)b.format);
    cr_expect_arr_eq(b.pixels, pixels, b.stride * (size_t)height);
    ist_image_size size = ist_image_measure_bytes(bytes, count, 100);
    cr_expect_eq(size.pixels, (size_t)width * (size_t)height);
    cr_expect_geq(size.decoded, b.stride * (size_t)height);
    ist_bitmap_free(&b);
    /* every beginning of it is refused or is the whole: of a copy, so that reading beyond it is seen */
    for (size_t n = 1; n < count; n++) {
        char *cut = malloc(n);
        memcpy(cut, bytes, n);
        if (!ist_bitmap_decode(cut, n, "t", 100, &b, &err)) {
            cr_expect_arr_eq(b.pixels, pixels, b.stride * (size_t)height, "cut to %zu", n);
            ist_bitmap_free(&b);
        } else {
            cr_expect_null(b.pixels);
            cr_expect_not_null(strstr(err.text, "t: "), "%s", err.text);
        }
        free(cut);
    }
}

static void expect_failure(const char *bytes, size_t count, ist_status status, const char *part) {
    ist_bitmap b;
    ist_error err = {0};
    cr_expect_eq(ist_bitmap_decode(bytes, count, "t", 100, &b, &err), status, "%s", err.text);
    cr_expect_not_null(strstr(err.text, part), "'%s' lacks '%s'", err.text, part);
    cr_expect_null(b.pixels);
}

Test(io_formats, pnm_of_all_kinds) {
    expect_pixels(FILE_OF("P1\n# bits\n3 2\n101\n0 1 0"), 3, 2, IST_GRAY8, "\0\xFF\0\xFF\0\xFF");
    expect_pixels(FILE_OF("P4 9 2\n\xAA\x80\x0F\0"), 9, 2, IST_GRAY8,
                  "\0\xFF\0\xFF\0\xFF\0\xFF\0\xFF\xFF\xFF\xFF\0\0\0\0\xFF");
    expect_pixels(FILE_OF("P2 3 1 255 255 # more\n 8\t7 "), 3, 1, IST_GRAY8, "\xFF\10\7");
    expect_pixels(FILE_OF("P5\n3 1\n255\n#a\n"), 3, 1, IST_GRAY8, "#a\n");
    expect_pixels(FILE_OF("P3 1 1 255 1 2 3 "), 1, 1, IST_RGB8, "\1\2\3");
    expect_pixels(FILE_OF("P6 1 2 255\nabcdef"), 1, 2, IST_RGB8, "abcdef");
    expect_pixels(FILE_OF("P7\nWIDTH 1\nHEIGHT 1\nDEPTH 4\nMAXVAL 255\nTUPLTYPE RGB_ALPHA\nENDHDR\nabcd"), 1, 1,
                  IST_RGBA8, "abcd");
    expect_pixels(FILE_OF("P7\nHEIGHT 1\nWIDTH 1\nDEPTH 2\nMAXVAL 65535\nENDHDR\n\1\2\3\4"), 1, 1, IST_GRAYA16,
                  (const uint16_t[]){0x102, 0x304});
}

/* The largest value is white, whatever it is: rounded, as Pillow does. */
Test(io_formats, pnm_values_are_scaled) {
    expect_pixels(FILE_OF("P5 4 1 100\n\0\1\x32\x64"), 4, 1, IST_GRAY8, "\0\3\x80\xFF");
    expect_pixels(FILE_OF("P5 3 1 4095\n\0\0\1\2\x0F\xFF"), 3, 1, IST_GRAY16, (const uint16_t[]){0, 4129, 65535});
    expect_pixels(FILE_OF("P5 2 1 65535\n\1\2\xFF\xFE"), 2, 1, IST_GRAY16, (const uint16_t[]){0x102, 0xFFFE});
    expect_pixels(FILE_OF("P5 2 1 7\n\7\x9"), 2, 1, IST_GRAY8, "\xFF\xFF");
}

Test(io_formats, pnm_that_is_damaged) {
    expect_failure(FILE_OF("P5 3 2 255\nabcde"), IST_E_INPUT, "truncated after 16 bytes");
    expect_failure(FILE_OF("P5 0 2 255\n"), IST_E_INPUT, "0 x 2 pixels");
    expect_failure(FILE_OF("P5 11 10 255\n"), IST_E_LIMIT, "11 x 10 pixels");
    expect_failure(FILE_OF("P5 999999999 999999999 255\n"), IST_E_LIMIT, "999999999 x 999999999 pixels");
    expect_failure(FILE_OF("P5 9999999999 1 255\n"), IST_E_INPUT, "header");
    expect_failure(FILE_OF("P5 3 2 65536\nabcdef"), IST_E_INPUT, "header");
    expect_failure(FILE_OF("P2 3 1 255 1 2 "), IST_E_INPUT, "truncated");
    expect_failure(FILE_OF("P2 3 1 255 1 2 x    "), IST_E_INPUT, "value is missing");
    expect_failure(FILE_OF("P1 3 1 1 2 0 1"), IST_E_INPUT, "value is missing");
    expect_failure(FILE_OF("P7\nWIDTH 1\nHEIGHT 1\nDEPTH 5\nMAXVAL 255\nENDHDR\nabcde"), IST_E_INPUT, "5 channels");
    expect_failure(FILE_OF("P7\nWIDTH 1\nCOLOUR 1\nENDHDR\nabcde"), IST_E_INPUT, "header");
    expect_failure(FILE_OF("P5 1 1 255\naP5 1 1 255\nb"), IST_E_INPUT, "several images");
}

/* Two headers: sides, bits per pixel, coding; then what follows them. */
static size_t make_bmp(char *out, int width, int height, int bits, int coding, int colors, const char *more,
                       size_t count, size_t pixels_at) {
    memset(out, 0, 54);
    memcpy(out, "BM", 2);
    out[10] = (char)pixels_at;
    out[14] = 40;
    for (int i = 0; i < 4; i++) out[18 + i] = (char)(width >> 8 * i), out[22 + i] = (char)(height >> 8 * i);
    out[26] = 1, out[28] = (char)bits, out[30] = (char)coding, out[46] = (char)colors;
    memcpy(out + 54, more, count);
    return 54 + count;
}

#define BMP(width, height, bits, coding, colors, at, more)                                                             \
    file, make_bmp(file, width, height, bits, coding, colors, more, sizeof more - 1, at)

Test(io_formats, bmp_of_all_depths) {
    char file[400];
    expect_pixels(BMP(3, 2, 24, 0, 0, 54, "abcdefghi\0\0\0jklmnopqr\0\0\0"), 3, 2, IST_RGB8, "lkjonmrqpcbafedihg");
    expect_pixels(BMP(3, -2, 24, 0, 0, 54, "abcdefghi\0\0\0jklmnopqr\0\0\0"), 3, 2, IST_RGB8, "cbafedihglkjonmrqp");
    expect_pixels(BMP(1, 1, 32, 0, 0, 54, "abcd"), 1, 1, IST_RGB8, "cba");
    expect_pixels(BMP(2, 1, 16, 0, 0, 54, "\x1F\x7C\xE0\3"), 2, 1, IST_RGB8, "\xFF\0\xFF\0\xFF\0");
    /* 565 by its masks */
    expect_pixels(BMP(2, 1, 16, 3, 0, 66, "\0\xF8\0\0\xE0\7\0\0\x1F\0\0\0\0\xF8\xE0\3"), 2, 1, IST_RGB8,
                  "\xFF\0\0\0\x7D\0");
    /* a palette of colours, one of grays, which the bitmap is then, and bits */
    expect_pixels(BMP(3, 1, 8, 0, 2, 62, "abc\0def\0\0\1\0\0"), 3, 1, IST_RGB8, "cbafedcba");
    expect_pixels(BMP(3, 1, 8, 0, 2, 62, "aaa\0bbb\0\0\1\2\0"), 3, 1, IST_GRAY8, "ab\0");
    expect_pixels(BMP(3, 1, 4, 0, 2, 62, "aaa\0bbb\0\x01\x10\0\0"), 3, 1, IST_GRAY8, "abb");
    expect_pixels(BMP(10, 1, 1, 0, 2, 62, "aaa\0bbb\0\x81\x40\0\0"), 10, 1, IST_GRAY8, "baaaaaabab");
}

Test(io_formats, bmp_in_runs) {
    char file[400];
    /* rows from below: three of colour 1, end of row, a step over one, two as they are, padded, end */
    expect_pixels(BMP(5, 2, 8, 1, 2, 62, "aaa\0bbb\0\3\1\0\0\0\2\1\0\0\3\1\0\1\0\0\1"), 5, 2, IST_GRAY8,
                  "ababa"
                  "bbbaa");
    expect_pixels(BMP(5, 1, 4, 2, 2, 62, "aaa\0bbb\0\0\5\x10\x11\x10\0\0\1"), 5, 1, IST_GRAY8, "babbb");
    expect_pixels(BMP(5, 1, 4, 2, 2, 62, "aaa\0bbb\0\3\x10\2\x11\0\1"), 5, 1, IST_GRAY8, "babbb");
    expect_failure(BMP(5, 1, 8, 1, 2, 62, "aaa\0bbb\0\6\1\0\1"), IST_E_INPUT, "beyond the end of its row");
    expect_failure(BMP(5, 1, 8, 1, 2, 62, "aaa\0bbb\0\0\2\6\0\0\1"), IST_E_INPUT, "step out of the picture");
    expect_failure(BMP(5, 1, 8, 1, 2, 62, "aaa\0bbb\0\0\0\0\0\0\0"), IST_E_INPUT, "more rows");
    expect_failure(BMP(5, 1, 8, 1, 2, 62, "aaa\0bbb\0\3\1"), IST_E_INPUT, "truncated");
}

Test(io_formats, bmp_that_is_damaged) {
    char file[400];
    expect_failure(BMP(3, 2, 24, 0, 0, 54, "abcdefghi\0\0\0jkl"), IST_E_INPUT, "truncated after 69 bytes");
    expect_failure(BMP(11, 10, 24, 0, 0, 54, "a"), IST_E_LIMIT, "11 x 10 pixels");
    expect_failure(BMP(0, 10, 24, 0, 0, 54, "a"), IST_E_INPUT, "0 x 10 pixels");
    expect_failure(BMP(-1, 10, 24, 0, 0, 54, "a"), IST_E_INPUT, "no known kind");
    expect_failure(BMP(1, 1, 24, 0, 0, 99, "abc\0"), IST_E_INPUT, "truncated");
    expect_failure(BMP(1, 1, 7, 0, 0, 54, "abc\0"), IST_E_INPUT, "7 bits per pixel in coding 0");
    expect_failure(BMP(1, 1, 24, 4, 0, 54, "abc\0"), IST_E_INPUT, "holds a JPEG or PNG");
    expect_failure(BMP(1, 1, 16, 3, 0, 66, "\0\0\0\0\0\0\0\0\0\0\0\0ab\0\0"), IST_E_INPUT, "has no bits");
}

Test(io_formats, names_tell_what_is_an_image_of_a_folder) {
    const char *const yes[] = {"a.png", "b/A.TIFF", "c.Tif", "x.webp", "x.bmp", "x.pgm", "y.z.jpeg"};
    const char *const no[] = {"a.txt", "png", ".png", "a.pn", "a.pngx", "a.", "a.tif/b", "a. "};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) cr_expect(ist_is_image_name(yes[i]), "%s", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) cr_expect_not(ist_is_image_name(no[i]), "%s", no[i]);
}

/* What the build has no library for is named, not taken for damage. */
Test(io_formats, formats_left_out_are_told) {
    const ist_image_format *f;
    const struct {
        const char *name, *head;
        size_t count;
    } heads[] = {{"TIFF", FILE_OF("II*\0\10\0\0\0\0\0\0\0\0\0")}, {"WebP", FILE_OF("RIFF\0\0\0\0WEBPVP8 ")}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        ist_bitmap b;
        ist_error err = {0};
        cr_assert_not_null(f = ist_image_format_of((const unsigned char *)heads[i].head, heads[i].count));
        cr_expect_str_eq(f->name, heads[i].name);
        cr_expect_eq(ist_bitmap_decode(heads[i].head, heads[i].count, "t", 100, &b, &err), IST_E_INPUT);
        cr_expect_eq(strstr(err.text, "built without") != NULL, !ist_image_format_is_read(f), "%s", err.text);
    }
}
