/* PNG in: every colour type, depth and interlace, made here with libpng; damage; limits. PNG out. */
#include "io/image.h"

#include "io/atomic_file.h"

#include "scratch.h"

#include <png.h>
#include <stdint.h>
#include <sys/stat.h>

/* One image of the matrix. Sample values are a fixed function of the position, so that the expected pixels need no
 * second decoder. */
typedef struct variant {
    int width, height, depth, color, interlace, transparent;
} variant;

enum { PALETTE = 5 };

typedef struct memory_file {
    uint8_t bytes[1 << 16];
    size_t count;
} memory_file;

static void append(png_structp png, png_bytep data, size_t n) {
    memory_file *f = png_get_io_ptr(png);
    cr_assert_leq(f->count + n, sizeof f->bytes);
    memcpy(f->bytes + f->count, data, n);
    f->count += n;
}

static void no_flush(png_structp png) {
    (void)png;
}

/* Sample c of pixel (x, y), in the range of the depth (palette: an index). */
static unsigned sample(const variant *v, int x, int y, int c) {
    unsigned value = (unsigned)(x * 2971 + y * 733 + c * 12345 + x * y * 17);
    return v->color == PNG_COLOR_TYPE_PALETTE ? value % PALETTE : value & ((1u << v->depth) - 1);
}

static int file_channels(int color) {
    return color == PNG_COLOR_TYPE_RGB          ? 3
           : color == PNG_COLOR_TYPE_RGBA       ? 4
           : color == PNG_COLOR_TYPE_GRAY_ALPHA ? 2
                                                : 1;
}

static void pack_row(const variant *v, int y, uint8_t *row) {
    int channels = file_channels(v->color), bit = 0;
    memset(row, 0, 4096);
    for (int x = 0; x < v->width; x++)
        for (int c = 0; c < channels; c++) {
            unsigned s = sample(v, x, y, c);
            if (v->depth == 16) {
                row[bit / 8] = (uint8_t)(s >> 8);
                row[bit / 8 + 1] = (uint8_t)s;
            } else {
                row[bit / 8] |= (uint8_t)(s << (8 - v->depth - bit % 8));
            }
            bit += v->depth;
        }
}

static const png_color palette[PALETTE] = {{0, 1, 2}, {255, 128, 3}, {10, 200, 30}, {7, 7, 7}, {90, 0, 255}};
static png_byte palette_alpha[3] = {0, 77, 255}; /* entries beyond are opaque */

static void set_transparency(const variant *v, png_structp png, png_infop info) {
    png_color_16 color = {0};
    if (v->color == PNG_COLOR_TYPE_PALETTE) {
        png_set_tRNS(png, info, palette_alpha, 3, NULL);
        return;
    }
    color.gray = (png_uint_16)sample(v, 1, 0, 0); /* the colour of pixel (1, 0) */
    color.red = (png_uint_16)sample(v, 1, 0, 0);
    color.green = (png_uint_16)sample(v, 1, 0, 1);
    color.blue = (png_uint_16)sample(v, 1, 0, 2);
    png_set_tRNS(png, info, NULL, 0, &color);
}

static void write_variant(const variant *v, memory_file *f) {
    static uint8_t rows[64][4096];
    png_bytep pointers[64];
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    f->count = 0;
    png_set_write_fn(png, f, append, no_flush);
    png_set_IHDR(png, info, (png_uint_32)v->width, (png_uint_32)v->height, v->depth, v->color,
                 v->interlace ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    if (v->color == PNG_COLOR_TYPE_PALETTE)
        png_set_PLTE(png, info, palette, v->depth == 1 ? 2 : v->depth == 2 ? 4 : PALETTE);
    if (v->transparent) set_transparency(v, png, info);
    png_write_info(png, info);
    for (int y = 0; y < v->height; y++) {
        pack_row(v, y, rows[y]);
        pointers[y] = rows[y];
    }
    png_write_image(png, pointers);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
}

/* What channel c of the decoded pixel must be. */
static unsigned expected(const variant *v, int x, int y, int c, int channels) {
    int has_alpha = channels == 2 || channels == 4, colors = has_alpha ? channels - 1 : channels;
    unsigned s[4], top = v->depth == 16 ? 65535 : 255;
    for (int i = 0; i < 4; i++) s[i] = i < file_channels(v->color) ? sample(v, x, y, i) : 0;
    if (v->color == PNG_COLOR_TYPE_PALETTE) {
        const png_color *p = &palette[s[0]];
        if (c < colors) return c == 0 ? p->red : c == 1 ? p->green : p->blue;
        return s[0] < 3 ? palette_alpha[s[0]] : 255;
    }
    if (c == colors && has_alpha && v->transparent) {
        int equal = 1;
        for (int i = 0; i < colors; i++) equal &= s[i] == sample(v, 1, 0, i);
        return equal ? 0 : top;
    }
    return v->depth < 8 ? s[c] * 255 / ((1u << v->depth) - 1) : s[c];
}

static unsigned decoded(const ist_bitmap *b, int x, int y, int c) {
    size_t at = (size_t)(x * ist_format_channels(b->format) + c);
    const uint8_t *row = (const uint8_t *)b->pixels + (size_t)y * b->stride;
    uint16_t wide;
    if (ist_format_bytes(b->format) == 1) return row[at];
    memcpy(&wide, row + 2 * at, 2);
    return wide;
}

static ist_pixel_format expected_format(const variant *v) {
    int alpha = v->transparent || v->color == PNG_COLOR_TYPE_GRAY_ALPHA || v->color == PNG_COLOR_TYPE_RGBA;
    int gray = v->color == PNG_COLOR_TYPE_GRAY || v->color == PNG_COLOR_TYPE_GRAY_ALPHA;
    return (ist_pixel_format)((v->depth == 16 ? 0x20 : 0x10) | ((gray ? 1 : 3) + alpha));
}

static void check_variant(const variant *v) {
    static memory_file f;
    ist_bitmap b;
    ist_error err;
    write_variant(v, &f);
    cr_assert_eq(ist_bitmap_decode(f.bytes, f.count, "t.png", 10000, &b, &err), IST_OK, "%s", err.text);
    cr_assert_eq(b.format, expected_format(v), "color %d depth %d: format 0x%x", v->color, v->depth,
                 (unsigned)b.format);
    cr_assert(b.width == v->width && b.height == v->height);
    int channels = ist_format_channels(b.format);
    cr_assert_eq(b.stride, (size_t)(v->width * channels * ist_format_bytes(b.format)));
    for (int y = 0; y < v->height; y++)
        for (int x = 0; x < v->width; x++)
            for (int c = 0; c < channels; c++)
                cr_assert_eq(decoded(&b, x, y, c), expected(v, x, y, c, channels),
                             "color %d depth %d interlace %d tRNS %d: (%d,%d,%d) is %u, want %u", v->color, v->depth,
                             v->interlace, v->transparent, x, y, c, decoded(&b, x, y, c),
                             expected(v, x, y, c, channels));
    ist_bitmap_free(&b);
}

static int allowed(int color, int depth) {
    if (color == PNG_COLOR_TYPE_GRAY) return 1;
    if (color == PNG_COLOR_TYPE_PALETTE) return depth == 4 || depth == 8; /* PALETTE entries need three bits */
    return depth >= 8;
}

Test(io_png, every_type_depth_interlace_and_transparency) {
    static const int colors[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_PALETTE,
                                 PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGBA};
    static const int sizes[][2] = {{13, 9}, {1, 1}, {2, 3}, {32, 33}};
    int checked = 0;
    for (int c = 0; c < 5; c++)
        for (int depth = 1; depth <= 16; depth *= 2)
            for (int rest = 0; rest < 16; rest++) {
                variant v = {sizes[rest / 4][0], sizes[rest / 4][1], depth, colors[c], rest & 1, rest >> 1 & 1};
                if (!allowed(v.color, depth) || (v.transparent && (v.color & PNG_COLOR_MASK_ALPHA))) continue;
                check_variant(&v);
                checked++;
            }
    cr_assert_eq(checked, 5 * 16 + 2 * 16 + 2 * 16 + 2 * 8 + 2 * 8);
}

static void expect_failure(const void *bytes, size_t count, size_t limit, ist_status status, const char *part) {
    ist_bitmap b;
    ist_error err = {0};
    cr_expect_eq(ist_bitmap_decode(bytes, count, "t.png", limit, &b, &err), status, "%zu bytes: %s", count, err.text);
    cr_expect_not_null(strstr(err.text, part), "'%s' lacks '%s'", err.text, part);
    cr_expect_not_null(strstr(err.text, "t.png"), "'%s' does not name the file", err.text);
    cr_expect_null(b.pixels);
}

Test(io_png, every_truncation_is_an_error) {
    static memory_file f;
    const variant v = {13, 9, 8, PNG_COLOR_TYPE_RGB, 1, 0};
    write_variant(&v, &f);
    for (size_t n = 0; n < f.count; n++) {
        ist_bitmap b = {0};
        ist_error err = {0};
        cr_assert_eq(ist_bitmap_decode(f.bytes, n, "t.png", 10000, &b, &err), IST_E_INPUT, "%zu of %zu bytes", n,
                     f.count);
    }
    expect_failure(f.bytes, 0, 10000, IST_E_INPUT, "empty");
    expect_failure(f.bytes, f.count - 20, 10000, IST_E_INPUT, "truncated after");
}

Test(io_png, every_flipped_byte_of_a_chunk_is_noticed) {
    static memory_file f;
    const variant v = {5, 4, 8, PNG_COLOR_TYPE_GRAY, 0, 1}; /* IHDR tRNS IDAT IEND */
    write_variant(&v, &f);
    for (size_t i = 0; i < f.count; i++) {
        ist_bitmap b = {0};
        f.bytes[i] ^= 0x10;
        ist_status status = ist_bitmap_decode(f.bytes, f.count, "t.png", 10000, &b, NULL);
        cr_expect_neq(status, IST_OK, "byte %zu", i);
        ist_bitmap_free(&b);
        f.bytes[i] ^= 0x10;
    }
}

Test(io_png, limit_is_checked_before_memory_is_asked_for) {
    static memory_file f;
    const variant v = {13, 9, 8, PNG_COLOR_TYPE_RGB, 0, 0};
    write_variant(&v, &f);
    expect_failure(f.bytes, f.count, 13 * 9 - 1, IST_E_LIMIT, "13 x 9 pixels are more than the limit of 116");
    /* a header that claims 20000 x 20000 */
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    f.count = 0;
    png_set_write_fn(png, &f, append, no_flush);
    png_set_IHDR(png, info, 20000, 20000, 16, PNG_COLOR_TYPE_RGBA, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    png_write_chunk(png, (png_const_bytep) "IDAT", (png_const_bytep) "x", 1); /* the reader looks this far */
    png_destroy_write_struct(&png, &info);
    expect_failure(f.bytes, f.count, IST_MAX_PIXELS, IST_E_LIMIT,
                   "20000 x 20000 pixels are more than the limit of 67108864");
}

Test(io_png, what_is_no_image_is_named_so) {
    expect_failure("GIF89a..........", 16, 100, IST_E_INPUT, "neither a PNG nor a JPEG");
    expect_failure("\x89PNG", 4, 100, IST_E_INPUT, "truncated after 4 bytes");
    expect_failure("hello", 5, 100, IST_E_INPUT, "neither");
}

static void expect_read_failure(const char *path, const char *part) {
    ist_bitmap b = {0};
    ist_error err = {0};
    cr_expect_neq(ist_bitmap_read(path, IST_MAX_PIXELS, &b, &err), IST_OK, "%s", path);
    cr_expect_not_null(strstr(err.text, part), "'%s' lacks '%s'", err.text, part);
    cr_expect_not_null(strstr(err.text, path), "'%s' does not name %s", err.text, path);
}

Test(io_png, files_that_cannot_be_read) {
    scratch s = scratch_make();
    expect_read_failure(scratch_path(&s, "missing.png"), "No such file");
    expect_read_failure(s.path, "folder");
    expect_read_failure("/dev/null", "regular");
    scratch_put(scratch_path(&s, "empty.png"), "");
    expect_read_failure(scratch_path(&s, "empty.png"), "empty");
    if (geteuid() != 0) { /* root reads everything */
        scratch_put(scratch_path(&s, "locked.png"), "x");
        chmod(scratch_path(&s, "locked.png"), 0);
        expect_read_failure(scratch_path(&s, "locked.png"), "Permission denied");
    }
    scratch_remove(&s);
}

static void check_write(ist_pixel_format format) {
    scratch s = scratch_make();
    ist_bitmap b, back;
    ist_error err;
    cr_assert_eq(ist_bitmap_allocate("t", 37, 5, format, 1000, &b, &err), IST_OK);
    for (size_t i = 0; i < b.stride * 5; i++) ((uint8_t *)b.pixels)[i] = (uint8_t)(i * 31 + i / 7);
    const char *path = scratch_path(&s, "new/folder/out.png");
    cr_assert_eq(ist_png_write(path, &b, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_bitmap_read(path, 1000, &back, &err), IST_OK, "%s", err.text);
    cr_expect_eq(back.format, format);
    cr_expect_eq(back.width, 37);
    cr_expect_eq(back.height, 5);
    cr_expect_arr_eq(back.pixels, b.pixels, b.stride * 5);
    ist_bitmap_free(&b);
    ist_bitmap_free(&back);
    scratch_remove(&s);
}

Test(io_png, what_is_written_reads_back) {
    check_write(IST_GRAY8);
    check_write(IST_GRAY16);
    check_write(IST_RGB8);
}

Test(io_png, a_full_disk_is_named_as_such) {
    if (access("/dev/full", W_OK)) cr_skip_test("no /dev/full");
    ist_bitmap b;
    ist_error err;
    uint32_t state = 1;
    cr_assert_eq(ist_bitmap_allocate("t", 300, 300, IST_GRAY8, 1 << 20, &b, &err), IST_OK);
    for (size_t i = 0; i < 300 * 300; i++) ((uint8_t *)b.pixels)[i] = (uint8_t)((state = state * 1664525u + 1) >> 24);
    cr_expect_eq(ist_png_write("/dev/full", &b, &err), IST_E_IO);
    cr_expect(ist_disk_is_full(&err), "%s", err.text);
    ist_bitmap_free(&b);
}

/* Writes `height` lines of 200 pixels whose bytes repeat after `period` pseudo-random ones; the size of the file. */
static long written_size(int height, size_t period) {
    scratch s = scratch_make();
    ist_bitmap b, back;
    ist_error err;
    struct stat file;
    uint32_t state = 1;
    cr_assert_eq(ist_bitmap_allocate("t", 200, (size_t)height, IST_RGB8, 1 << 20, &b, &err), IST_OK);
    uint8_t *p = b.pixels;
    for (size_t i = 0; i < b.stride * (size_t)height; i++) {
        state = state * 1664525u + 1013904223u;
        p[i] = i < period ? (uint8_t)(state >> 24) : p[i - period];
    }
    const char *path = scratch_path(&s, "out.png");
    cr_assert_eq(ist_png_write(path, &b, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_bitmap_read(path, 1 << 20, &back, &err), IST_OK, "%s", err.text);
    cr_expect_arr_eq(back.pixels, b.pixels, b.stride * (size_t)height);
    cr_assert_eq(stat(path, &file), 0);
    ist_bitmap_free(&b);
    ist_bitmap_free(&back);
    scratch_remove(&s);
    return (long)file.st_size;
}

/* What repeats far apart is no run: only the search for repetitions finds it. */
Test(io_png, repetitions_are_found_in_large_images_and_noise_does_not_grow) {
    const int heights[] = {63, 64, 65, 300};
    for (int i = 0; i < 4; i++) {
        long raw = 600L * heights[i];
        cr_expect_leq(written_size(heights[i], 600), raw / 20, "%d lines", heights[i]);
        cr_expect_leq(written_size(heights[i], (size_t)raw), raw + raw / 200 + 400, "%d lines", heights[i]);
    }
}

Test(io_png, writing_other_formats_is_refused) {
    ist_bitmap b = {.width = 1, .height = 1, .format = IST_RGBA8, .stride = 4, .pixels = "abcd"};
    ist_error err;
    cr_expect_eq(ist_png_write("never.png", &b, &err), IST_E_ARGUMENT);
    cr_expect(!scratch_exists("never.png"));
}
