/* TIFF in, against libtiff's own writer: kinds of pixels, layouts, pages; what is refused; lists and their memory. */
#include "io/image_format.h"
#include "io/sources.h"

#include "scratch.h"
#include "support/tiff_pages.h"

#include <math.h>
#include <tiffio.h>

enum { W = 37, H = 29 };

typedef struct kind {
    int bits, samples, photometric, compression, tile, rows, apart;
} kind;

/* Sample c of pixel (x, y), within its bits. */
static unsigned value_of(const kind *k, int x, int y, int c) {
    return (unsigned)(x * 2531 + y * 977 + c * 4099 + x * y) & ((1u << k->bits) - 1);
}

static void put(uint8_t *row, size_t i, int bits, unsigned value) {
    if (bits == 16) {
        uint16_t wide = (uint16_t)value;
        memcpy(row + 2 * i, &wide, 2);
        return;
    }
    for (int b = 0; b < bits; b++) { /* most significant first, packed */
        size_t at = i * (size_t)bits + (size_t)b;
        if (value >> (bits - 1 - b) & 1) row[at / 8] |= (uint8_t)(0x80 >> at % 8);
    }
}

/* A block of the picture from (x0, y0) on, of one plane or (-1) all. */
static void fill(const kind *k, uint8_t *block, size_t row, int x0, int y0, int width, int height, int plane) {
    int samples = plane < 0 ? k->samples : 1;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < samples; c++)
                put(block + (size_t)y * row, (size_t)(x * samples + c), k->bits,
                    value_of(k, x0 + x, y0 + y, plane < 0 ? c : plane));
}

static void write_page(TIFF *tiff, const kind *k) {
    TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, W);
    TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, H);
    TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, k->bits);
    TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, k->samples);
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, k->photometric);
    TIFFSetField(tiff, TIFFTAG_COMPRESSION, k->compression);
    TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, k->apart ? PLANARCONFIG_SEPARATE : PLANARCONFIG_CONTIG);
    if (k->samples == 2 || (k->samples == 4 && k->photometric == PHOTOMETRIC_RGB))
        TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, 1, (uint16_t[]){EXTRASAMPLE_UNASSALPHA});
    uint16_t palette[3][256];
    for (int i = 0; i < 256; i++)
        for (int c = 0; c < 3; c++) palette[c][i] = (uint16_t)((i * 7 + c * 50) % 256 * 257);
    if (k->photometric == PHOTOMETRIC_PALETTE) TIFFSetField(tiff, TIFFTAG_COLORMAP, palette[0], palette[1], palette[2]);
    int width = k->tile ? k->tile : W, height = k->tile ? k->tile : k->rows ? k->rows : H;
    if (k->tile) {
        TIFFSetField(tiff, TIFFTAG_TILEWIDTH, width);
        TIFFSetField(tiff, TIFFTAG_TILELENGTH, height);
    } else {
        TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, height);
    }
    size_t row = ((size_t)width * (size_t)(k->apart ? 1 : k->samples) * (size_t)k->bits + 7) / 8;
    uint8_t *block = malloc(row * (size_t)height);
    for (int plane = k->apart ? 0 : -1; plane < (k->apart ? k->samples : 0); plane++)
        for (int y = 0; y < H; y += height)
            for (int x = 0; x < W; x += width) {
                int rows = k->tile || H - y > height ? height : H - y;
                uint16_t sample = (uint16_t)(plane < 0 ? 0 : plane);
                memset(block, 0, row * (size_t)height);
                fill(k, block, row, x, y, width, rows, plane);
                uint32_t at = k->tile ? TIFFComputeTile(tiff, (uint32_t)x, (uint32_t)y, 0, sample)
                                      : TIFFComputeStrip(tiff, (uint32_t)y, sample);
                tmsize_t n = (tmsize_t)(row * (size_t)rows);
                cr_assert_eq(
                    k->tile ? TIFFWriteEncodedTile(tiff, at, block, n) : TIFFWriteEncodedStrip(tiff, at, block, n), n);
            }
    free(block);
    cr_assert(TIFFWriteDirectory(tiff));
}

/* Sample c of a channel as the bitmap must have it. */
static unsigned wanted(const kind *k, int x, int y, int c) {
    unsigned full = k->bits > 8 ? 65535 : 255;
    if (k->photometric == PHOTOMETRIC_PALETTE) return (value_of(k, x, y, 0) * 7 + (unsigned)c * 50) % 256;
    unsigned v = value_of(k, x, y, c), most = (1u << k->bits) - 1;
    if (k->bits == 12) v = v << 4 | v >> 8;
    if (k->bits < 8) v = v * full / most;
    return c == 0 && k->photometric == PHOTOMETRIC_MINISWHITE ? full - v : v;
}

static void check(const kind *k, const ist_bitmap *b) {
    int channels = k->photometric == PHOTOMETRIC_PALETTE ? 3 : k->samples, wrong = 0;
    cr_assert(b->width == W && b->height == H);
    cr_assert_eq((int)b->format, (k->bits > 8 ? 0x20 : 0x10) + channels);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            for (int c = 0; c < channels; c++) {
                const uint8_t *p = (const uint8_t *)b->pixels + (size_t)y * b->stride;
                size_t i = (size_t)(x * channels + c);
                uint16_t wide;
                memcpy(&wide, p + 2 * (k->bits > 8 ? i : 0), 2);
                wrong += (k->bits > 8 ? wide : p[i]) != wanted(k, x, y, c);
            }
    cr_expect_eq(wrong, 0, "%d bits, %d samples, photometric %d, compression %d: %d are wrong", k->bits, k->samples,
                 k->photometric, k->compression, wrong);
}

static const kind kinds[] = {
    {8, 1, PHOTOMETRIC_MINISBLACK, COMPRESSION_NONE, 0, 0, 0},
    {8, 1, PHOTOMETRIC_MINISWHITE, COMPRESSION_LZW, 0, 7, 0},
    {16, 1, PHOTOMETRIC_MINISBLACK, COMPRESSION_ADOBE_DEFLATE, 16, 0, 0},
    {16, 1, PHOTOMETRIC_MINISWHITE, COMPRESSION_NONE, 0, 3, 0},
    {8, 2, PHOTOMETRIC_MINISBLACK, COMPRESSION_PACKBITS, 0, 7, 0},
    {8, 3, PHOTOMETRIC_RGB, COMPRESSION_LZW, 0, 7, 0},
    {8, 3, PHOTOMETRIC_RGB, COMPRESSION_LZW, 16, 0, 1},
    {8, 4, PHOTOMETRIC_RGB, COMPRESSION_ADOBE_DEFLATE, 32, 0, 0},
    {16, 3, PHOTOMETRIC_RGB, COMPRESSION_LZW, 0, 5, 1},
    {16, 4, PHOTOMETRIC_RGB, COMPRESSION_NONE, 0, 0, 0},
    {12, 1, PHOTOMETRIC_MINISBLACK, COMPRESSION_NONE, 0, 4, 0},
    {12, 3, PHOTOMETRIC_RGB, COMPRESSION_LZW, 0, 4, 0},
    {1, 1, PHOTOMETRIC_MINISBLACK, COMPRESSION_CCITTFAX4, 0, 9, 0},
    {1, 1, PHOTOMETRIC_MINISWHITE, COMPRESSION_NONE, 16, 0, 0},
    {2, 1, PHOTOMETRIC_MINISBLACK, COMPRESSION_NONE, 0, 0, 0},
    {4, 1, PHOTOMETRIC_MINISBLACK, COMPRESSION_LZW, 0, 8, 0},
    {8, 1, PHOTOMETRIC_PALETTE, COMPRESSION_LZW, 0, 8, 0},
    {4, 1, PHOTOMETRIC_PALETTE, COMPRESSION_NONE, 0, 0, 0},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* All of them as the pages of one file, in both orders of bytes, as a file of pages and, at once, of the large form. */
Test(io_tiff, pages_of_all_kinds) {
    const char *const modes[] = {"wl", "wb", "w8"};
    scratch s = scratch_make();
    const char *path = scratch_path(&s, "all.tif");
    for (size_t m = 0; m < 3; m++) {
        ist_frames *f = NULL;
        ist_error err = {0};
        TIFF *tiff = TIFFOpen(path, modes[m]);
        for (size_t i = 0; i < KINDS; i++) write_page(tiff, &kinds[i]);
        TIFFClose(tiff);
        cr_assert_eq(ist_frames_open(path, 10000, &f, &err), IST_OK, "%s", err.text);
        cr_assert_eq(ist_frames_count(f), KINDS);
        cr_expect_eq(ist_frames_size(f).pixels, (size_t)W * H);
        cr_expect_eq(ist_frames_size(f).decoded, (size_t)W * H * 8);
        for (size_t i = 0; i < 2 * KINDS; i++) { /* forward, and back */
            size_t page = i < KINDS ? i : 2 * KINDS - 1 - i;
            ist_bitmap b;
            cr_assert_eq(ist_frames_read(f, page, &b, &err), IST_OK, "page %zu: %s", page, err.text);
            check(&kinds[page], &b);
            ist_bitmap_free(&b);
        }
        ist_frames_close(&f);
    }
    scratch_remove(&s);
}

/* ---- values that are no whole numbers from zero on ---- */

/* A row of samples of a SAMPLEFORMAT. */
static void write_values(const char *path, int width, int samples, int bits, int format, int photometric,
                         int compression, const void *values) {
    TIFF *tiff = TIFFOpen(path, "w");
    TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, width);
    TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, 1);
    TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, bits);
    TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, samples);
    TIFFSetField(tiff, TIFFTAG_SAMPLEFORMAT, format);
    TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, photometric);
    TIFFSetField(tiff, TIFFTAG_COMPRESSION, compression);
    tmsize_t count = (tmsize_t)width * samples * bits / 8;
    cr_assert_eq(TIFFWriteEncodedStrip(tiff, 0, (void *)(uintptr_t)values, count), count);
    TIFFClose(tiff);
}

/* Read for the window of `values`, or (NULL) none. */
static ist_status read_values(const char *path, const double *values, ist_bitmap *b, ist_error *err) {
    ist_sources sources = {0};
    if (values) sources.values[0] = values[0], sources.values[1] = values[1];
    IST_TRY(ist_sources_add(&sources, path, false, NULL, err));
    cr_assert_eq(sources.count, 1);
    ist_status status = ist_source_read(&sources.items[0], 1 << 20, b, err);
    ist_sources_free(&sources);
    return status;
}

/* A window's bounds are 0 and 65535, all between them is where a window of real numbers would have it. */
Test(io_tiff, floats_for_a_window) {
    static const float values[8] = {-0.25f, 0, 0.5f, 0.3f, 1, 2e30f, NAN, -INFINITY};
    static const double window[2] = {0, 0.75};
    scratch s = scratch_make();
    const char *path = scratch_path(&s, "floats.tif");
    const int compressions[2] = {COMPRESSION_NONE, COMPRESSION_ADOBE_DEFLATE};
    for (int i = 0; i < 2; i++) {
        ist_bitmap b;
        ist_error err = {0};
        int made[2];
        write_values(path, 8, 1, 32, SAMPLEFORMAT_IEEEFP, PHOTOMETRIC_MINISBLACK, compressions[i], values);
        cr_assert_eq(read_values(path, window, &b, &err), IST_OK, "%s", err.text);
        cr_assert(b.format == IST_GRAY16 && b.stride == 16 && b.needs_window);
        ist_bitmap_window(&b, 0, 0.75, made);
        cr_expect(made[0] == 0 && made[1] == 65535);
        const uint16_t *p = b.pixels, want[8] = {0, 0, 43690, 26214, 65535, 65535, 0, 0};
        for (int k = 0; k < 8; k++) cr_expect_eq(p[k], want[k], "%g is %d, not %d", (double)values[k], p[k], want[k]);
        ist_bitmap_free(&b);
    }
    scratch_remove(&s);
}

/* Without one: the range of the values, where a few are far away not theirs; colours alike. */
Test(io_tiff, floats_as_far_as_they_go) {
    enum { N = 3000 };
    static float values[N];
    scratch s = scratch_make();
    const char *path = scratch_path(&s, "floats.tif");
    ist_bitmap b;
    ist_error err = {0};
    int window[2];
    for (int i = 0; i < N; i++) values[i] = -3 + (float)i / 1000;
    for (int wild = 0; wild < 2; wild++) {
        if (wild) values[1] = -1e30f, values[2] = 7e20f, values[3] = NAN, values[4] = INFINITY;
        write_values(path, N / 3, 3, 32, SAMPLEFORMAT_IEEEFP, PHOTOMETRIC_RGB, COMPRESSION_LZW, values);
        cr_assert_eq(read_values(path, NULL, &b, &err), IST_OK, "%s", err.text);
        cr_assert(b.format == IST_RGB16 && b.width == N / 3);
        const double low = b.value_zero, high = low + 65535 * b.value_step;
        if (wild) cr_expect(low < -12 && low > -16 && high > 10 && high < 14, "%g to %g", low, high);
        if (!wild)
            cr_expect(low == (double)values[0] && fabs(high - (double)values[N - 1]) < 1e-6, "%g, %g", low, high);
        for (int i = 5; i < N; i++) {
            const double v = low + b.value_step * ((const uint16_t *)b.pixels)[i];
            cr_assert_float_eq(v, (double)values[i], 0.51 * b.value_step, "%g is %g", (double)values[i], v);
        }
        ist_bitmap_window(&b, -2, -1, window);
        cr_expect(fabs(low + b.value_step * window[0] + 2) <= b.value_step && window[0] < window[1]);
        ist_bitmap_free(&b);
    }
    for (int i = 0; i < N; i++) values[i] = i % 2 ? NAN : INFINITY;
    write_values(path, N, 1, 32, SAMPLEFORMAT_IEEEFP, PHOTOMETRIC_MINISBLACK, COMPRESSION_NONE, values);
    cr_expect_eq(read_values(path, NULL, &b, &err), IST_E_INPUT);
    cr_expect(strstr(err.text, "none of its samples is a number"), "%s", err.text);
    for (int i = 0; i < N; i++) values[i] = 5;
    write_values(path, N, 1, 32, SAMPLEFORMAT_IEEEFP, PHOTOMETRIC_MINISBLACK, COMPRESSION_NONE, values);
    cr_assert_eq(read_values(path, NULL, &b, &err), IST_OK);
    cr_expect(((uint16_t *)b.pixels)[7] == 0 && b.value_zero == 5);
    ist_bitmap_free(&b);
    scratch_remove(&s);
}

Test(io_tiff, values_with_a_sign) {
    static const int16_t values[5] = {-32768, -1, 0, 40, 32767};
    scratch s = scratch_make();
    const char *path = scratch_path(&s, "sign.tif");
    ist_bitmap b;
    ist_error err = {0};
    int window[2];
    write_values(path, 5, 1, 16, SAMPLEFORMAT_INT, PHOTOMETRIC_MINISBLACK, COMPRESSION_NONE, values);
    cr_assert_eq(read_values(path, NULL, &b, &err), IST_OK, "%s", err.text);
    cr_assert(b.format == IST_GRAY16 && !b.needs_window);
    for (int i = 0; i < 5; i++) cr_expect_eq(((uint16_t *)b.pixels)[i], values[i] + 32768);
    ist_bitmap_window(&b, -160, 240, window);
    cr_expect(window[0] == 32608 && window[1] == 33008);
    ist_bitmap_free(&b);
    scratch_remove(&s);
}

/* Values of Pillow 12's convert("RGB"). */
Test(io_tiff, cmyk_becomes_what_pillow_makes_of_it) {
    static const uint8_t ink[4][4] = {{0, 0, 0, 0}, {255, 0, 0, 0}, {10, 100, 200, 50}, {77, 3, 250, 129}};
    static const uint8_t rgb[12] = {255, 255, 255, 0, 255, 255, 197, 125, 44, 88, 125, 2};
    scratch s = scratch_make();
    const char *path = scratch_path(&s, "cmyk.tif");
    ist_bitmap b;
    ist_error err = {0};
    TIFF *tiff = TIFFOpen(path, "w");
    TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, 4);
    TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, 1);
    TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, 8);
    TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, 4);
    TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_SEPARATED);
    cr_assert_eq(TIFFWriteEncodedStrip(tiff, 0, (void *)(uintptr_t)ink, sizeof ink), sizeof ink);
    TIFFClose(tiff);
    cr_assert_eq(ist_bitmap_read(path, 100, &b, &err), IST_OK, "%s", err.text);
    cr_assert_eq(b.format, IST_RGB8);
    cr_expect_arr_eq(b.pixels, rgb, sizeof rgb);
    ist_bitmap_free(&b);
    scratch_remove(&s);
}

static void expect_refused(const char *path, size_t limit, ist_status status, const char *part) {
    ist_bitmap b;
    ist_error err = {0};
    cr_expect_eq(ist_bitmap_read(path, limit, &b, &err), status, "%s", err.text);
    cr_expect_not_null(strstr(err.text, part), "'%s' lacks '%s'", err.text, part);
    cr_expect_null(b.pixels);
}

Test(io_tiff, what_is_not_read_is_named) {
    scratch s = scratch_make();
    const char *path = scratch_path(&s, "a.tif");
    const kind plain = {8, 1, PHOTOMETRIC_MINISBLACK, COMPRESSION_LZW, 0, 7, 0};
    TIFF *tiff = TIFFOpen(path, "w");
    write_page(tiff, &plain);
    write_page(tiff, &plain);
    TIFFClose(tiff);
    expect_refused(path, 10000, IST_E_INPUT, "has 2 frames");
    tiff = TIFFOpen(path, "w");
    TIFFSetField(tiff, TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_INT);
    write_page(tiff, &plain);
    TIFFClose(tiff);
    expect_refused(path, 10000, IST_E_INPUT, "1 signed samples of 8 bits");
    tiff = TIFFOpen(path, "w");
    write_page(tiff, &plain);
    TIFFClose(tiff);
    expect_refused(path, W * H - 1, IST_E_LIMIT, "37 x 29 pixels");
    /* any cut is refused: directories come last */
    size_t count;
    char *bytes = scratch_read(path, &count);
    for (size_t n = 4; n < count; n += 13) {
        scratch_write(path, bytes, n);
        expect_refused(path, 10000, IST_E_INPUT, "damaged TIFF");
    }
    /* its pixels are LZW, of which a strip is now something else */
    memset(bytes + 40, 0xA5, 60);
    scratch_write(path, bytes, count);
    expect_refused(path, 10000, IST_E_INPUT, "damaged TIFF");
    free(bytes);
    scratch_remove(&s);
}

/* Thumbnails are no pages. */
Test(io_tiff, reduced_copies_are_left_out) {
    scratch s = scratch_make();
    const char *path = scratch_path(&s, "a.tif");
    ist_frames *f = NULL;
    ist_error err = {0};
    const kind plain = {8, 1, PHOTOMETRIC_MINISBLACK, COMPRESSION_NONE, 0, 7, 0};
    TIFF *tiff = TIFFOpen(path, "w");
    for (uint32_t i = 0; i < 4; i++) {
        TIFFSetField(tiff, TIFFTAG_SUBFILETYPE, i % 2 ? FILETYPE_REDUCEDIMAGE : FILETYPE_PAGE);
        write_page(tiff, &plain);
    }
    TIFFClose(tiff);
    cr_assert_eq(ist_frames_open(path, 10000, &f, &err), IST_OK, "%s", err.text);
    cr_expect_eq(ist_frames_count(f), 2);
    ist_frames_close(&f);
    scratch_remove(&s);
}

/* A directory whose next one is itself. */
Test(io_tiff, a_circle_ends) {
    scratch s = scratch_make();
    const char *path = scratch_path(&s, "a.tif");
    size_t count;
    write_tiff_pages(path, 2, 4, 4);
    char *bytes = scratch_read(path, &count);
    for (size_t i = 8; i + 4 <= 8 + 102; i++)
        if (i == 8 + 2 + 12 * 8) memcpy(bytes + i, "\10\0\0\0", 4);
    scratch_write(path, bytes, count);
    ist_frames *f = NULL;
    ist_error err = {0};
    ist_status status = ist_frames_open(path, 10000, &f, &err);
    if (!status) cr_expect_eq(ist_frames_count(f), 1);
    cr_expect(status == IST_OK || strstr(err.text, "damaged TIFF"), "%s", err.text);
    ist_frames_close(&f);
    free(bytes);
    scratch_remove(&s);
}

/* Names, stems and sequences of pages in a folder of others, and that each page is read. */
Test(io_tiff, pages_are_images_of_a_list) {
    static const struct {
        const char *name, *stem;
        int width, sequence;
    } want[] = {{"a.png.tif", "a.png", 5, 0},  {"b.tif#1", "b.0001", 6, 1}, {"b.tif#2", "b.0002", 7, 1},
                {"c.tif#1", "c.0001", 8, 2},   {"c.tif#2", "c.0002", 9, 2}, {"c.tif#11", "c.0011", 18, 2},
                {"c.tif#12", "c.0012", 19, 2}, {"d.tif", "d", 3, 3}};
    scratch s = scratch_make();
    ist_sources l = {0};
    ist_error err = {0};
    mkdir(scratch_path(&s, "in"), 0777);
    write_tiff_pages(scratch_path(&s, "in/a.png.tif"), 1, 5, 2);
    write_tiff_pages(scratch_path(&s, "in/b.tif"), 2, 6, 2);
    write_tiff_pages(scratch_path(&s, "in/c.tif"), 12, 8, 2);
    write_tiff_pages(scratch_path(&s, "in/d.tif"), 1, 3, 2);
    scratch_write(scratch_path(&s, "in/e.tif"), "II*\0 broken", 11);
    cr_assert_eq(ist_sources_add(&l, scratch_path(&s, "in"), false, NULL, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_sources_finish(&l, &err), IST_OK, "%s", err.text);
    cr_assert_eq(l.count, 17);
    size_t seen = 0;
    for (size_t i = 0; i < l.count; i++) {
        ist_bitmap b;
        const ist_source *next = i + 1 < l.count ? &l.items[i + 1] : NULL;
        ist_status status = ist_source_read_next(&l.items[i], next, 1000, &b, &err);
        cr_expect_eq(l.items[i].id, (int64_t)i + 1);
        if (i == 16) {
            cr_expect_eq(status, IST_E_INPUT);
            cr_expect_not_null(strstr(err.text, "e.tif: damaged TIFF"), "%s", err.text);
            continue;
        }
        cr_assert_eq(status, IST_OK, "%s", err.text);
        cr_expect_eq(((uint8_t *)b.pixels)[0], 10 + (int)l.items[i].frame);
        cr_expect_eq(l.items[i].file->open != NULL, next->file == l.items[i].file, "open as long as it is read");
        if (seen < 8 && !strcmp(l.items[i].name, want[seen].name)) {
            cr_expect_str_eq(l.items[i].stem, want[seen].stem);
            cr_expect_eq(b.width, want[seen].width);
            cr_expect_eq(l.items[i].sequence, want[seen].sequence);
            seen++;
        }
        ist_bitmap_free(&b);
        cr_assert_eq(ist_source_read(&l.items[i], 1000, &b, &err), IST_OK, "%s", err.text);
        ist_bitmap_free(&b);
    }
    cr_expect_eq(seen, 8);
    /* a page that is gone by then is named as the list names it */
    write_tiff_pages(scratch_path(&s, "in/c.tif"), 3, 8, 2);
    ist_bitmap b;
    cr_expect_eq(ist_source_read(&l.items[14], 1000, &b, &err), IST_E_INPUT);
    cr_expect_not_null(strstr(err.text, "in/c.tif#12: has 3 frames now"), "%s", err.text);
    ist_sources_truncate(&l, 5);
    ist_sources_free(&l);
    scratch_remove(&s);
}
