/* TIFF in through libtiff, page by page: gray, RGB, palette and CMYK, 1 to 8, 12 and 16 bits, with alpha, gray and RGB
 * of 32-bit floats, gray of 16 bits with a sign, in strips or tiles, samples together or apart, any coding that libtiff
 * has. Samples of less than 8 bits become 8 and those of 12 become 16, scaled; those with a sign are moved up; the
 * other way round (white is 0) is turned. Floats stay what they are: frames.c makes samples of them.
 *
 * Reduced copies and masks of a page (NewSubfileType) are no pages. Nothing of the file is in memory but the strip or
 * tile that is decoded. What libtiff complains of while it decodes is damage. */
#include "io/image_cmyk.h"
#include "io/image_float.h"
#include "io/image_format.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tiffio.h>

#define MAX_ALLOCATION ((tmsize_t)1 << 30) /* a single one of libtiff's */

typedef struct tiff_file {
    const ist_byte_source *source;
    uint64_t at;
    const char *name;
    size_t max_pixels;
    TIFF *tiff;
    bool complained, decoding; /* said something; a warning counts too */
    char message[120];         /* what it said first */
    uint64_t *pages;           /* offsets of their directories */
    size_t count, capacity;
} tiff_file;

/* What a page is, checked. */
typedef struct tiff_page {
    uint32_t width, height;
    unsigned bits, samples, channels; /* stored per pixel; of the bitmap */
    uint16_t photometric;
    bool apart, tiled, inverted, has_sign;
    uint32_t block_width, block_height; /* of a tile, or of a strip */
    size_t block_bytes;
    ist_pixel_format format;
    const uint16_t *palette[3];
} tiff_page;

/* ---- libtiff's view of the file ---- */

static tmsize_t on_read(thandle_t handle, void *to, tmsize_t size) {
    tiff_file *t = handle;
    size_t n = ist_byte_source_read(t->source, t->at, to, (size_t)size);
    t->at += n;
    return (tmsize_t)n;
}

static tmsize_t on_write(thandle_t handle, void *from, tmsize_t size) {
    (void)handle, (void)from, (void)size;
    return 0;
}

static toff_t on_seek(thandle_t handle, toff_t offset, int whence) {
    tiff_file *t = handle;
    t->at = (whence == SEEK_CUR ? t->at : whence == SEEK_END ? t->source->size : 0) + offset;
    return t->at;
}

static toff_t on_size(thandle_t handle) {
    return ((tiff_file *)handle)->source->size;
}

static int on_close(thandle_t handle) {
    (void)handle;
    return 0;
}

static void complain(tiff_file *t, const char *format, va_list arguments) {
    if (t->complained) return;
    t->complained = true;
    vsnprintf(t->message, sizeof t->message, format, arguments);
}

static int on_error(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments) {
    (void)tiff, (void)module;
    complain(user, format, arguments);
    return 1;
}

static int on_warning(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments) {
    tiff_file *t = user;
    (void)tiff, (void)module;
    if (t->decoding) complain(t, format, arguments);
    return 1;
}

static ist_status fail_tiff(const tiff_file *t, ist_error *err) {
    return ist_fail(err, IST_E_INPUT, "%s: damaged TIFF: %s", t->name,
                    t->complained ? t->message : "a page cannot be read");
}

/* ---- pages ---- */

static unsigned field(const tiff_file *t, uint32_t tag) {
    uint16_t value = 0;
    TIFFGetFieldDefaulted(t->tiff, tag, &value);
    return value;
}

/* Channels of what is read; 0: it is not. */
static unsigned channels_of(const tiff_page *p) {
    unsigned colors = p->photometric == PHOTOMETRIC_RGB || p->photometric == PHOTOMETRIC_YCBCR ? 3 : 1;
    if (p->photometric == PHOTOMETRIC_PALETTE) return p->samples == 1 && p->bits <= 8 ? 3 : 0;
    if (p->photometric == PHOTOMETRIC_SEPARATED) return p->samples == 4 && p->bits == 8 ? 3 : 0;
    if (p->bits < 8 && p->samples != 1) return 0;
    return p->samples >= colors && p->samples <= colors + 1 ? p->samples : 0;
}

static ist_status refuse(const tiff_file *t, const tiff_page *p, unsigned kind, ist_error *err) {
    static const char *const names[] = {"", "unsigned", "signed", "floating point"};
    return ist_fail(err, IST_E_INPUT,
                    "%s: %u %s samples of %u bits per pixel in photometric interpretation %u: no such TIFF is read",
                    t->name, p->samples, kind < 4 ? names[kind] : "other", p->bits, (unsigned)p->photometric);
}

static ist_status describe(tiff_file *t, tiff_page *p, ist_error *err) {
    unsigned kind = field(t, TIFFTAG_SAMPLEFORMAT);
    uint16_t *palette[3];
    *p = (tiff_page){.bits = field(t, TIFFTAG_BITSPERSAMPLE), .samples = field(t, TIFFTAG_SAMPLESPERPIXEL)};
    if (!TIFFGetField(t->tiff, TIFFTAG_IMAGEWIDTH, &p->width) ||
        !TIFFGetField(t->tiff, TIFFTAG_IMAGELENGTH, &p->height) ||
        !TIFFGetField(t->tiff, TIFFTAG_PHOTOMETRIC, &p->photometric))
        return ist_fail(err, IST_E_INPUT, "%s: damaged TIFF: a page has no size or no photometric interpretation",
                        t->name);
    if (p->photometric == PHOTOMETRIC_YCBCR) {
        if (field(t, TIFFTAG_COMPRESSION) != COMPRESSION_JPEG) return refuse(t, p, kind, err);
        TIFFSetField(t->tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    }
    bool deep = p->bits == 8 || p->bits == 12 || p->bits == 16, flat = p->bits == 1 || p->bits == 2 || p->bits == 4;
    p->inverted = p->photometric == PHOTOMETRIC_MINISWHITE;
    p->channels = p->inverted || p->photometric == PHOTOMETRIC_MINISBLACK || p->photometric == PHOTOMETRIC_RGB ||
                          p->photometric == PHOTOMETRIC_PALETTE || p->photometric == PHOTOMETRIC_SEPARATED ||
                          p->photometric == PHOTOMETRIC_YCBCR
                      ? channels_of(p)
                      : 0;
    bool real = kind == SAMPLEFORMAT_IEEEFP && p->bits == 32 && (p->samples == 1 || p->samples == 3) && !p->inverted;
    p->has_sign = kind == SAMPLEFORMAT_INT && p->bits == 16 && p->samples == 1 && !p->inverted;
    bool whole = (deep || flat) && (kind == SAMPLEFORMAT_UINT || p->has_sign);
    if (!p->channels || !(whole || real)) return refuse(t, p, kind, err);
    if (p->photometric == PHOTOMETRIC_PALETTE) {
        if (!TIFFGetField(t->tiff, TIFFTAG_COLORMAP, &palette[0], &palette[1], &palette[2]))
            return ist_fail(err, IST_E_INPUT, "%s: damaged TIFF: a page has no palette", t->name);
        for (int c = 0; c < 3; c++) p->palette[c] = palette[c];
    }
    p->format = (ist_pixel_format)((real ? IST_FLOAT_BYTES : p->bits > 8 ? 2 : 1) << 4 | (int)p->channels);
    p->apart = p->samples > 1 && field(t, TIFFTAG_PLANARCONFIG) == PLANARCONFIG_SEPARATE;
    p->tiled = TIFFIsTiled(t->tiff);
    return IST_OK;
}

/* How the pixels lie in blocks; after the size of the page was checked against the limit. */
static ist_status describe_blocks(const tiff_file *t, tiff_page *p, ist_error *err) {
    p->block_width = p->width;
    p->block_height = p->height;
    if (p->tiled) {
        if (!TIFFGetField(t->tiff, TIFFTAG_TILEWIDTH, &p->block_width) ||
            !TIFFGetField(t->tiff, TIFFTAG_TILELENGTH, &p->block_height))
            return ist_fail(err, IST_E_INPUT, "%s: damaged TIFF: its tiles have no size", t->name);
    } else {
        uint32_t rows = 0;
        TIFFGetFieldDefaulted(t->tiff, TIFFTAG_ROWSPERSTRIP, &rows);
        if (rows && rows < p->height) p->block_height = rows;
    }
    size_t samples = p->apart ? 1 : p->samples, bits;
    if (!p->block_width || !p->block_height || p->block_width > t->max_pixels / p->block_height)
        return ist_fail(err, IST_E_LIMIT, "%s: tiles of %u x %u pixels are more than the limit of %zu", t->name,
                        p->block_width, p->block_height, t->max_pixels);
    bits = (size_t)p->block_width * samples * p->bits;
    p->block_bytes = (bits + 7) / 8 * p->block_height;
    tmsize_t want = p->tiled ? TIFFTileSize(t->tiff) : TIFFStripSize(t->tiff);
    if (want < 0 || (size_t)want != p->block_bytes)
        return ist_fail(err, IST_E_INPUT, "%s: damaged TIFF: its blocks have %lld bytes, and %zu are needed", t->name,
                        (long long)want, p->block_bytes);
    return IST_OK;
}

/* Coded a block has no more than the file, and hardly more than decoded. */
static void measure_page(const tiff_file *t, const tiff_page *p, ist_image_size *largest) {
    ist_image_size s = {0};
    ist_image_size_set(&s, p->width, p->height, p->channels * (p->bits > 8 ? 2u : 1u), t->max_pixels);
    size_t coded = 2 * p->block_bytes;
    s.passing = p->block_bytes + (t->source->size < coded ? (size_t)t->source->size : coded);
    if (ist_format_bytes(p->format) == IST_FLOAT_BYTES) s.passing += s.decoded; /* before they are narrowed */
    if (s.pixels > largest->pixels) largest->pixels = s.pixels;
    if (s.decoded > largest->decoded) largest->decoded = s.decoded;
    if (s.pixels && s.passing > largest->passing) largest->passing = s.passing;
}

/* Follows the chain of directories, which libtiff ends where it is a circle. A page that is not read is one all the
 * same: reading it says why. */
static ist_status find_pages(tiff_file *t, ist_image_size *largest, ist_error *err) {
    do {
        uint32_t kind = 0;
        tiff_page page;
        TIFFGetField(t->tiff, TIFFTAG_SUBFILETYPE, &kind);
        if (t->count && kind & (FILETYPE_REDUCEDIMAGE | FILETYPE_MASK)) continue;
        if (!ist_grow((void **)&t->pages, &t->capacity, t->count + 1, sizeof *t->pages))
            return ist_fail(err, IST_E_MEMORY, "%s: out of memory for %zu pages", t->name, t->count);
        t->pages[t->count++] = TIFFCurrentDirOffset(t->tiff);
        if (!describe(t, &page, NULL) && !describe_blocks(t, &page, NULL)) measure_page(t, &page, largest);
    } while (!TIFFLastDirectory(t->tiff) && TIFFReadDirectory(t->tiff));
    if (!TIFFLastDirectory(t->tiff)) return fail_tiff(t, err);
    return IST_OK;
}

static void close_tiff(void *state) {
    tiff_file *t = state;
    if (t->tiff) TIFFClose(t->tiff);
    free(t->pages);
    free(t);
}

static ist_status open_tiff(const ist_byte_source *source, const char *name, size_t max_pixels, void **state,
                            size_t *frames, ist_image_size *largest, ist_error *err) {
    tiff_file *t = calloc(1, sizeof *t);
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    ist_status status = t && options ? IST_OK : ist_fail(err, IST_E_MEMORY, "%s: out of memory", name);
    if (!status) {
        *t = (tiff_file){.source = source, .name = name, .max_pixels = max_pixels};
        TIFFOpenOptionsSetMaxSingleMemAlloc(options, MAX_ALLOCATION);
        TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, t);
        TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, t);
        t->tiff = TIFFClientOpenExt(name, "rm", t, on_read, on_write, on_seek, on_close, on_size, NULL, NULL, options);
        status = t->tiff ? find_pages(t, largest, err) : fail_tiff(t, err);
    }
    TIFFOpenOptionsFree(options);
    if (status) {
        if (t) close_tiff(t);
        return status;
    }
    *state = t;
    *frames = t->count;
    return IST_OK;
}

/* ---- pixels ---- */

/* Sample i of a row, as it is stored. */
static unsigned sample_at(const uint8_t *row, size_t i, unsigned bits) {
    uint16_t wide;
    if (bits == 8) return row[i];
    if (bits == 16) {
        memcpy(&wide, row + 2 * i, sizeof wide);
        return wide;
    }
    if (bits == 12) {
        const uint8_t *p = row + i / 2 * 3;
        return i % 2 ? (p[1] & 15u) << 8 | p[2] : (unsigned)p[0] << 4 | p[1] >> 4;
    }
    return row[i * bits / 8] >> (8 - bits - i * bits % 8) & ((1u << bits) - 1);
}

/* Scaled to what the bitmap has. */
static unsigned widened(unsigned value, unsigned bits) {
    if (bits == 12) return value << 4 | value >> 8;
    return bits < 8 ? value * (255 / ((1u << bits) - 1)) : value;
}

/* `many` pixels of a row, of all samples or of sample `plane` alone. */
static void unpack(const tiff_page *p, const uint8_t *from, size_t many, unsigned plane, uint8_t *to) {
    unsigned full = p->bits > 8 ? 65535 : 255, samples = p->apart ? 1 : p->channels;
    for (size_t x = 0; x < many; x++) {
        if (p->photometric == PHOTOMETRIC_PALETTE) {
            for (int c = 0; c < 3; c++)
                to[3 * x + (size_t)c] = (uint8_t)(p->palette[c][sample_at(from, x, p->bits)] >> 8);
            continue;
        }
        for (unsigned c = 0; c < samples; c++) {
            unsigned channel = p->apart ? plane : c;
            if (p->bits == 32) {
                memcpy(to + IST_FLOAT_BYTES * (x * p->channels + channel), from + IST_FLOAT_BYTES * (x * samples + c),
                       IST_FLOAT_BYTES);
                continue;
            }
            unsigned value = widened(sample_at(from, x * samples + c, p->bits), p->bits);
            size_t at = x * p->channels + channel;
            if (p->inverted && channel == 0) value = full - value;
            if (p->has_sign) value ^= 0x8000;
            if (p->bits <= 8)
                to[at] = (uint8_t)value;
            else
                memcpy(to + 2 * at, &(uint16_t){(uint16_t)value}, 2);
        }
    }
}

/* CMYK whose samples are apart is put together by the caller. */
static void unpack_row(const tiff_page *p, const uint8_t *from, size_t many, unsigned plane, uint8_t *to) {
    if (p->photometric == PHOTOMETRIC_SEPARATED)
        ist_cmyk_to_rgb(from, to, many, false);
    else
        unpack(p, from, many, plane, to);
}

static ist_status read_block(tiff_file *t, const tiff_page *p, uint32_t x, uint32_t y, unsigned plane, uint8_t *block,
                             ist_bitmap *out, ist_error *err) {
    uint32_t rows = p->height - y < p->block_height ? p->height - y : p->block_height;
    uint32_t many = p->width - x < p->block_width ? p->width - x : p->block_width;
    size_t row = p->block_bytes / p->block_height, want = p->tiled ? p->block_bytes : rows * row;
    uint16_t sample = (uint16_t)(p->apart ? plane : 0);
    tmsize_t got =
        p->tiled
            ? TIFFReadEncodedTile(t->tiff, TIFFComputeTile(t->tiff, x, y, 0, sample), block, (tmsize_t)p->block_bytes)
            : TIFFReadEncodedStrip(t->tiff, TIFFComputeStrip(t->tiff, y, sample), block, (tmsize_t)want);
    if (got < 0 || (size_t)got < want || t->complained) return fail_tiff(t, err);
    size_t pixel = out->stride / p->width;
    for (uint32_t i = 0; i < rows; i++)
        unpack_row(p, block + i * row, many, plane, (uint8_t *)out->pixels + (y + i) * out->stride + x * pixel);
    return IST_OK;
}

static ist_status read_blocks(tiff_file *t, const tiff_page *p, ist_bitmap *out, ist_error *err) {
    uint8_t *block = malloc(p->block_bytes);
    if (!block) return ist_fail(err, IST_E_MEMORY, "%s: out of memory for %zu bytes", t->name, p->block_bytes);
    ist_status status = IST_OK;
    for (unsigned plane = 0; plane < (p->apart ? p->samples : 1) && !status; plane++)
        for (uint32_t y = 0; y < p->height && !status; y += p->block_height)
            for (uint32_t x = 0; x < p->width && !status; x += p->block_width)
                status = read_block(t, p, x, y, plane, block, out, err);
    free(block);
    return status;
}

static ist_status read_tiff(void *state, size_t frame, ist_bitmap *out, ist_error *err) {
    tiff_file *t = state;
    tiff_page page;
    t->complained = t->decoding = false;
    if (!TIFFSetSubDirectory(t->tiff, t->pages[frame])) return fail_tiff(t, err);
    IST_TRY(describe(t, &page, err));
    if (page.photometric == PHOTOMETRIC_SEPARATED && page.apart) return refuse(t, &page, SAMPLEFORMAT_UINT, err);
    IST_TRY(ist_bitmap_allocate(t->name, page.width, page.height, page.format, t->max_pixels, out, err));
    ist_status status = describe_blocks(t, &page, err);
    t->decoding = true;
    t->complained = false;
    if (!status) status = read_blocks(t, &page, out, err);
    t->decoding = false;
    if (status) {
        ist_bitmap_free(out);
        return status;
    }
    if (page.has_sign) out->value_zero = INT16_MIN, out->value_step = 1;
    unsigned orientation = field(t, TIFFTAG_ORIENTATION);
    out->orientation = orientation <= 8 ? (int)orientation : 0;
    return IST_OK;
}

const ist_container ist_tiff_container = {.open = open_tiff, .read = read_tiff, .close = close_tiff};
