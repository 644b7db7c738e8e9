/* PNG in: every colour type, depth and interlace, made here with libpng; damage; limits. PNG out. */
#include "io/image.h"

#include "io/atomic_file.h"

#include "scratch.h"

#include <png.h>
#include <stdint.h>
#include <sys/stat.h>
#include <zlib.h>

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

static void append_bytes(memory_file *f, const void *data, size_t n) {
    cr_assert_leq(f->count + n, sizeof f->bytes);
    if (n) memcpy(f->bytes + f->count, data, n);
    f->count += n;
}

static void append(png_structp png, png_bytep data, size_t n) {
    append_bytes(png_get_io_ptr(png), data, n);
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

/* ---- the plain form, chunk by chunk ---- */

/* Rows that libpng decompresses, as the program under test calls for them. */
static int libpng_rows;
void __real_png_read_row(png_structrp png, png_bytep row, png_bytep display);
void __wrap_png_read_row(png_structrp png, png_bytep row, png_bytep display);
void __wrap_png_read_row(png_structrp png, png_bytep row, png_bytep display) {
    libpng_rows++;
    __real_png_read_row(png, row, display);
}

static void put_chunk(memory_file *f, const char *name, const uint8_t *data, size_t count) {
    uint8_t head[8] = {0, 0, (uint8_t)(count >> 8), (uint8_t)count};
    memcpy(head + 4, name, 4);
    uLong sum = crc32(0, head + 4, 4);
    if (count) sum = crc32(sum, data, (uInt)count);
    uint8_t tail[4] = {(uint8_t)(sum >> 24), (uint8_t)(sum >> 16), (uint8_t)(sum >> 8), (uint8_t)sum};
    append_bytes(f, head, 8);
    append_bytes(f, data, count);
    append_bytes(f, tail, 4);
}

enum { PLAIN_WIDTH = 11, PLAIN_HEIGHT = 15 };

typedef struct plain_file {
    int channels;
    size_t chunk;          /* bytes per IDAT chunk */
    const char *between;   /* the name of a chunk after the first IDAT, or NULL */
    int rows;              /* rows that are there */
    int damage, by;        /* a byte of the compressed data, negative: from its end, and what is added to it */
    int filter;            /* of row 3 */
    int interlaced, depth; /* what the header says, depth 0: 8 */
    int transparent;       /* a tRNS chunk */
} plain_file;

/* Row y as filter y % 5 (row 3: as said) sees bytes that are a function of the position. */
static void make_plain(const plain_file *p, memory_file *f) {
    static const uint8_t colors[] = {0, 4, 2, 6};
    uint8_t header[13] = {
        0, 0, 0, PLAIN_WIDTH, 0, 0, 0, PLAIN_HEIGHT, (uint8_t)(p->depth ? p->depth : 8), colors[p->channels - 1]};
    header[12] = (uint8_t)p->interlaced;
    size_t row = 1 + (size_t)p->channels * PLAIN_WIDTH, count = row * (size_t)p->rows;
    uint8_t rows[2000], stream[3000];
    uLongf size = sizeof stream;
    for (size_t i = 0; i < count; i++)
        rows[i] = i % row ? (uint8_t)(i * i * 7 + i / 5) : (uint8_t)(i / row == 3 ? p->filter : (int)(i / row % 5));
    cr_assert_eq(compress2(stream, &size, rows, (uLong)count, 6), Z_OK);
    stream[0] = 0x78, stream[1] = 0x01;
    if (p->by) stream[p->damage < 0 ? (int)size + p->damage : p->damage] += (uint8_t)p->by;
    f->count = 0;
    append_bytes(f, "\x89PNG\r\n\x1A\n", 8);
    put_chunk(f, "IHDR", header, sizeof header);
    if (p->transparent) put_chunk(f, "tRNS", (const uint8_t *)"\0\1\0\2\0\3", p->channels == 1 ? 2 : 6);
    for (size_t i = 0; i < size; i += p->chunk) {
        put_chunk(f, "IDAT", stream + i, size - i < p->chunk ? size - i : p->chunk);
        if (!i && p->between) put_chunk(f, p->between, (const uint8_t *)"x", 1);
    }
    put_chunk(f, "IEND", NULL, 0);
}

/* By libpng alone: whether it reads the file, and its pixels. */
static int read_by_libpng(const void *bytes, size_t count, png_uint_32 format, void *pixels) {
    png_image image = {.version = PNG_IMAGE_VERSION};
    if (!png_image_begin_read_from_memory(&image, bytes, count)) return 0;
    image.format = format;
    int read = png_image_finish_read(&image, NULL, pixels, 0, NULL);
    png_image_free(&image);
    return read;
}

/* Reads the file as libpng does; `rows` of it by libpng. */
static void check_plain(plain_file p, int rows) {
    static const png_uint_32 formats[] = {PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};
    static memory_file f;
    uint8_t expected[2000];
    ist_bitmap b;
    ist_error err = {0};
    p.filter = p.filter ? p.filter : 3;
    p.rows = p.rows ? p.rows : PLAIN_HEIGHT;
    make_plain(&p, &f);
    libpng_rows = 0;
    ist_status status = ist_bitmap_decode(f.bytes, f.count, "t.png", 1000, &b, &err);
    cr_expect_eq(libpng_rows, rows, "%d channels, chunks of %zu: %d rows by libpng", p.channels, p.chunk, libpng_rows);
    cr_assert_eq(!status, read_by_libpng(f.bytes, f.count, formats[p.channels - 1], expected), "%s", err.text);
    if (status) return;
    cr_expect_eq(b.stride, (size_t)p.channels * PLAIN_WIDTH);
    cr_expect_arr_eq(b.pixels, expected, b.stride * PLAIN_HEIGHT);
    ist_bitmap_free(&b);
}

Test(io_png, every_filter_of_the_plain_form_in_chunks_of_any_size) {
    static const size_t chunks[] = {1, 2, 3, 100, 3000};
    for (int i = 0; i < 5; i++)
        for (int channels = 1; channels <= 4; channels++)
            for (int filter = 1; filter <= 4; filter++)
                check_plain((plain_file){.channels = channels, .chunk = chunks[i], .filter = filter},
                            chunks[i] > 1 ? 0 : PLAIN_HEIGHT); /* zlib's header is looked for in the first chunk */
}

static void expect_other_form(const plain_file *p, ist_status status, ist_pixel_format format) {
    static memory_file f;
    ist_bitmap b;
    make_plain(p, &f);
    libpng_rows = 0;
    cr_assert_eq(ist_bitmap_decode(f.bytes, f.count, "t.png", 1000, &b, NULL), status);
    cr_expect_gt(libpng_rows, 0);
    if (!status) cr_expect_eq(b.format, format);
    ist_bitmap_free(&b);
}

Test(io_png, what_only_looks_like_the_plain_form) {
    plain_file p = {.channels = 1, .chunk = 3000, .rows = PLAIN_HEIGHT, .filter = 1, .transparent = 1};
    expect_other_form(&p, IST_OK, IST_GRAYA8);
    p.channels = 3;
    expect_other_form(&p, IST_OK, IST_RGBA8);
    p.transparent = 0, p.interlaced = 1; /* seven images: more rows than are there */
    expect_other_form(&p, IST_E_INPUT, 0);
    p.interlaced = 0, p.depth = 16;
    expect_other_form(&p, IST_E_INPUT, 0);
}

Test(io_png, what_is_wrong_with_the_plain_form_is_for_libpng_to_say) {
    for (int channels = 1; channels <= 4; channels++) {
        plain_file p = {.channels = channels, .chunk = 64};
        p.rows = PLAIN_HEIGHT + 1; /* too much: libpng takes what it needs */
        check_plain(p, PLAIN_HEIGHT);
        p.rows = PLAIN_HEIGHT - 1;
        check_plain(p, PLAIN_HEIGHT);
        p.rows = PLAIN_HEIGHT;
        p.filter = 5;
        check_plain(p, 4);
        p.filter = 0;
        p.damage = -1, p.by = 1; /* the checksum, which libpng does not always reach */
        check_plain(p, PLAIN_HEIGHT);
        p.by = 0;
        p.between = "teXt"; /* data chunks that do not follow each other */
        static memory_file f;
        p.filter = 1, make_plain(&p, &f);
        expect_failure(f.bytes, f.count, 1000, IST_E_INPUT, "damaged PNG");
    }
}

Test(io_png, every_damaged_byte_of_the_compressed_rows) {
    for (int at = 0; at < 60; at++) {
        static memory_file f;
        uint8_t expected[2000];
        plain_file p = {.channels = 3, .chunk = 50, .rows = PLAIN_HEIGHT, .filter = 4, .damage = at, .by = 1 + 37 * at};
        ist_bitmap b = {0};
        make_plain(&p, &f);
        int read = !ist_bitmap_decode(f.bytes, f.count, "t.png", 1000, &b, NULL);
        cr_expect_eq(read, read_by_libpng(f.bytes, f.count, PNG_FORMAT_RGB, expected), "byte %d", at);
        if (read) cr_expect_arr_eq(b.pixels, expected, b.stride * PLAIN_HEIGHT);
        ist_bitmap_free(&b);
    }
}

Test(io_png, what_is_no_image_is_named_so) {
    expect_failure("GIF89a..........", 16, 100, IST_E_INPUT, "is no image (PNG, JPEG, DICOM");
    expect_failure("\x89PNG", 4, 100, IST_E_INPUT, "truncated after 4 bytes");
    expect_failure("hello", 5, 100, IST_E_INPUT, "is no image");
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
    if (format != IST_GRAY16) { /* png_image's 16 bits are linear */
        uint8_t again[3 * 37 * 5];
        png_image image = {.version = PNG_IMAGE_VERSION};
        cr_assert(png_image_begin_read_from_file(&image, path), "%s", image.message);
        image.format = format == IST_RGB8 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
        cr_assert(png_image_finish_read(&image, NULL, again, 0, NULL), "%s", image.message);
        cr_expect_arr_eq(again, b.pixels, b.stride * 5);
    }
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
