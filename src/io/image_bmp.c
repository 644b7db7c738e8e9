/* BMP in: 1, 4, 8, 16, 24 and 32 bits per pixel, palettes, masks of bits, both run-length codings; headers from OS/2's
 * to version 5. Rows come top first, whichever way they are stored.
 *
 * An own reader: the format is a header and rows. Debian's readers of it are either part of what reads a hundred
 * formats or, as libnsbmp, give 32 bits of all. Every offset is checked against the file before it is used, and the
 * work goes with the pixels and the bytes that there are. */
#include "io/image_format.h"

#include <stdint.h>
#include <string.h>

enum { FILE_HEADER = 14, CORE_HEADER = 12, INFO_HEADER = 40, V2_HEADER = 52, V3_HEADER = 56, MOST_HEADER = 124 };
enum { COLOR_RGB, COLOR_RLE8, COLOR_RLE4, COLOR_MASKS, COLOR_JPEG, COLOR_PNG, COLOR_ALPHA_MASKS };

typedef struct bmp {
    const uint8_t *bytes;
    size_t count;
    const char *name;
    ist_error *err;
    size_t width, height;
    bool top_down, core;
    unsigned bits, coding;
    size_t header, pixels; /* bytes of the second header; where pixels begin */
    uint32_t masks[4];     /* red, green, blue, alpha */
    uint8_t palette[256][3];
    size_t colors;
    bool gray; /* all of the palette is */
} bmp;

static uint32_t little16(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t little32(const uint8_t *p) {
    return little16(p) | little16(p + 2) << 16;
}

/* Sides from a header of at least 26 bytes; false: it is of no known size. */
static bool read_sides(const uint8_t *p, size_t count, size_t *width, size_t *height, bool *top_down, bool *core) {
    if (count < FILE_HEADER + CORE_HEADER) return false;
    uint32_t header = little32(p + FILE_HEADER);
    *core = header == CORE_HEADER;
    if (*core) {
        *width = little16(p + 18);
        *height = little16(p + 20);
        *top_down = false;
        return true;
    }
    int32_t w = (int32_t)little32(p + 18), h = (int32_t)little32(p + 22);
    if (header < INFO_HEADER || header > MOST_HEADER || w < 0 || h == INT32_MIN) return false;
    *width = (size_t)w;
    *top_down = h < 0;
    *height = (size_t)(h < 0 ? -h : h);
    return true;
}

void ist_bmp_measure(const unsigned char *head, size_t count, size_t max_pixels, ist_image_size *size, bool *unclear) {
    size_t width, height;
    bool top_down, core;
    (void)unclear;
    if (read_sides(head, count, &width, &height, &top_down, &core)) /* 32 bits may have an alpha channel */
        ist_image_size_set(size, width, height, little16(head + (core ? 24 : 28)) == 32 ? 4 : 3, max_pixels);
}

static ist_status fail_bmp(const bmp *b, const char *what) {
    return ist_fail(b->err, IST_E_INPUT, "%s: damaged BMP: %s", b->name, what);
}

static ist_status truncated(const bmp *b) {
    return ist_fail(b->err, IST_E_INPUT, "%s: the BMP is truncated after %zu bytes", b->name, b->count);
}

static ist_status read_masks(bmp *b) {
    static const uint32_t usual[2][4] = {{0x7C00, 0x3E0, 0x1F, 0}, {0xFF0000, 0xFF00, 0xFF, 0}};
    bool with_alpha = b->coding == COLOR_ALPHA_MASKS || b->header >= V3_HEADER;
    if (b->bits != 16 && b->bits != 32) return IST_OK;
    memcpy(b->masks, usual[b->bits == 32], sizeof b->masks);
    if (b->coding == COLOR_RGB) return IST_OK;
    size_t at = FILE_HEADER + INFO_HEADER, many = with_alpha ? 4 : 3; /* behind the header, or in a longer one */
    if (b->count < at + 4 * many) return truncated(b);
    for (size_t i = 0; i < many; i++) b->masks[i] = little32(b->bytes + at + 4 * i);
    for (size_t i = 0; i < 3; i++)
        if (!b->masks[i] || (b->bits == 16 && b->masks[i] > UINT16_MAX)) return fail_bmp(b, "a colour has no bits");
    return IST_OK;
}

static ist_status read_palette(bmp *b) {
    if (b->bits > 8) return IST_OK;
    size_t entry = b->core ? 3 : 4, most = (size_t)1 << b->bits, colors = b->core ? 0 : little32(b->bytes + 46);
    size_t at = FILE_HEADER + b->header;
    if (b->header == INFO_HEADER && b->coding == COLOR_MASKS) at += 12;
    b->colors = !colors || colors > most ? most : colors;
    if (at + b->colors * entry > b->count) return truncated(b);
    b->gray = true;
    for (size_t i = 0; i < b->colors; i++) {
        const uint8_t *p = b->bytes + at + i * entry;
        for (int c = 0; c < 3; c++) b->palette[i][c] = p[2 - c];
        b->gray = b->gray && p[0] == p[1] && p[1] == p[2];
    }
    return IST_OK;
}

static ist_status read_header(bmp *b) {
    if (b->count < FILE_HEADER + CORE_HEADER) return truncated(b);
    b->header = little32(b->bytes + FILE_HEADER);
    if (!read_sides(b->bytes, b->count, &b->width, &b->height, &b->top_down, &b->core))
        return fail_bmp(b, "its header is of no known kind");
    if (b->count < FILE_HEADER + b->header) return truncated(b);
    b->bits = little16(b->bytes + (b->core ? 24 : 28));
    b->coding = b->core ? COLOR_RGB : little32(b->bytes + 30);
    b->pixels = little32(b->bytes + 10);
    bool deep = b->bits == 16 || b->bits == 24 || b->bits == 32, flat = b->bits == 1 || b->bits == 4 || b->bits == 8;
    if (b->coding == COLOR_JPEG || b->coding == COLOR_PNG)
        return ist_fail(b->err, IST_E_INPUT, "%s: a BMP that holds a JPEG or PNG is not read", b->name);
    bool fits = b->coding == COLOR_RGB    ? deep || flat
                : b->coding == COLOR_RLE8 ? b->bits == 8
                : b->coding == COLOR_RLE4 ? b->bits == 4
                                          : b->bits == 16 || b->bits == 32;
    if (!fits || b->coding > COLOR_ALPHA_MASKS)
        return ist_fail(b->err, IST_E_INPUT, "%s: damaged BMP: %u bits per pixel in coding %u", b->name, b->bits,
                        b->coding);
    if (b->top_down && (b->coding == COLOR_RLE8 || b->coding == COLOR_RLE4))
        return fail_bmp(b, "runs that begin at the top");
    if (b->pixels < FILE_HEADER + b->header || b->pixels > b->count) return truncated(b);
    IST_TRY(read_masks(b));
    return read_palette(b);
}

static uint8_t *row_of(const bmp *b, const ist_bitmap *out, size_t stored) {
    return (uint8_t *)out->pixels + (b->top_down ? stored : b->height - 1 - stored) * out->stride;
}

/* A colour of the palette; one beyond it is black, as elsewhere. */
static void put_index(const bmp *b, uint8_t *row, size_t x, unsigned index) {
    static const uint8_t black[3] = {0};
    const uint8_t *color = index < b->colors ? b->palette[index] : black;
    if (b->gray)
        row[x] = color[0];
    else
        memcpy(row + 3 * x, color, 3);
}

/* The bits that `mask` names, as 8: rounded to where all of them set is 255. */
static uint8_t masked(uint32_t value, uint32_t mask) {
    if (!mask) return 255;
    unsigned shift = (unsigned)__builtin_ctz(mask);
    uint64_t most = mask >> shift;
    return (uint8_t)((((uint64_t)(value & mask) >> shift) * 255 + most / 2) / most);
}

static void unpack_row(const bmp *b, const uint8_t *from, uint8_t *to) {
    size_t channels = b->masks[3] ? 4 : 3;
    for (size_t x = 0; x < b->width; x++) {
        if (b->bits <= 8) {
            size_t bit = x * b->bits;
            put_index(b, to, x, from[bit / 8] >> (8 - b->bits - bit % 8) & ((1u << b->bits) - 1));
        } else if (b->bits == 24) {
            for (size_t c = 0; c < 3; c++) to[3 * x + c] = from[3 * x + 2 - c];
        } else {
            uint32_t value = b->bits == 16 ? little16(from + 2 * x) : little32(from + 4 * x);
            for (size_t c = 0; c < channels; c++) to[channels * x + c] = masked(value, b->masks[c]);
        }
    }
}

static ist_status read_rows(const bmp *b, ist_bitmap *out) {
    size_t row = (b->width * b->bits + 31) / 32 * 4, used = (b->width * b->bits + 7) / 8;
    for (size_t y = 0; y < b->height; y++) { /* the padding of the last row may be missing */
        size_t at = b->pixels + y * row;
        if (at > b->count || b->count - at < used) return truncated(b);
        unpack_row(b, b->bytes + at, row_of(b, out, y));
    }
    return IST_OK;
}

/* Runs of RLE8 and RLE4. Pixels that they skip have colour 0. */
static ist_status read_runs(const bmp *b, ist_bitmap *out) {
    size_t x = 0, y = 0, at = b->pixels;
    bool four = b->coding == COLOR_RLE4;
    for (size_t i = 0; i < b->height; i++)
        for (size_t k = 0; k < b->width; k++) put_index(b, row_of(b, out, i), k, 0);
    for (;;) {
        if (at + 2 > b->count) return truncated(b);
        unsigned n = b->bytes[at], v = b->bytes[at + 1];
        at += 2;
        if (!n && v == 1) return IST_OK;
        if (!n && v == 0) {
            x = 0;
            if (++y > b->height) return fail_bmp(b, "more rows than it has");
        } else if (!n && v == 2) {
            if (at + 2 > b->count) return truncated(b);
            x += b->bytes[at];
            y += b->bytes[at + 1];
            at += 2;
            if (x > b->width || y > b->height) return fail_bmp(b, "a step out of the picture");
        } else {
            size_t many = n ? n : v, bytes = n ? 0 : four ? (many + 1) / 2 : many;
            if (bytes > b->count - at) return truncated(b);
            if (y >= b->height || many > b->width - x) return fail_bmp(b, "a run beyond the end of its row");
            for (size_t i = 0; i < many; i++) {
                unsigned byte = n ? v : b->bytes[at + (four ? i / 2 : i)];
                put_index(b, row_of(b, out, y), x + i, four ? byte >> (i % 2 ? 0 : 4) & 15 : byte);
            }
            x += many;
            at += bytes + bytes % 2;
            if (at > b->count) return truncated(b);
        }
    }
}

ist_status ist_bmp_decode(const void *bytes, size_t count, const char *name, size_t max_pixels, ist_bitmap *out,
                          ist_error *err) {
    bmp b = {.bytes = bytes, .count = count, .name = name, .err = err};
    *out = (ist_bitmap){0};
    IST_TRY(read_header(&b));
    ist_pixel_format format = b.bits <= 8 && b.gray ? IST_GRAY8 : b.masks[3] ? IST_RGBA8 : IST_RGB8;
    IST_TRY(ist_bitmap_allocate(name, b.width, b.height, format, max_pixels, out, err));
    ist_status status = b.coding == COLOR_RLE8 || b.coding == COLOR_RLE4 ? read_runs(&b, out) : read_rows(&b, out);
    if (status) ist_bitmap_free(out);
    return status;
}
