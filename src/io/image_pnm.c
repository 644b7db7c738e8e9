/* PNM in: PBM, PGM and PPM, plain and raw, and PAM. Samples of up to 8 bits become 8, all others 16; where the largest
 * value is not all ones they are scaled to it, rounded, as Pillow does.
 *
 * An own reader: netpbm's library ends the process at a bad file. Sizes are checked before memory is asked for, and a
 * raw file must have the bytes that its header promises before any is. */
#include "io/image_format.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct pnm {
    const uint8_t *bytes;
    size_t count, at;
    int kind; /* 1 .. 7 */
    size_t width, height, depth;
    uint32_t most; /* the largest value */
} pnm;

/* Skips blanks, and comments up to the end of their lines. */
static void skip_blanks(pnm *p) {
    while (p->at < p->count && (isspace(p->bytes[p->at]) || p->bytes[p->at] == '#')) {
        if (p->bytes[p->at] == '#')
            while (p->at < p->count && p->bytes[p->at] != '\n' && p->bytes[p->at] != '\r') p->at++;
        else
            p->at++;
    }
}

/* A number of at most nine digits; false: none is there. */
static bool read_number(pnm *p, size_t *value) {
    skip_blanks(p);
    size_t digits = 0;
    for (*value = 0; p->at < p->count && isdigit(p->bytes[p->at]) && digits < 9; digits++)
        *value = *value * 10 + (size_t)(p->bytes[p->at++] - '0');
    return digits && !(p->at < p->count && isdigit(p->bytes[p->at]));
}

/* PAM's header: words and numbers up to ENDHDR. The kind of tuple says no more than their depth. */
static bool read_pam(pnm *p) {
    size_t most = 0;
    for (;;) {
        char word[12] = "";
        size_t n = 0;
        skip_blanks(p);
        while (p->at < p->count && isupper(p->bytes[p->at]) && n + 1 < sizeof word) word[n++] = (char)p->bytes[p->at++];
        bool known = true;
        if (!strcmp(word, "ENDHDR"))
            break;
        else if (!strcmp(word, "WIDTH"))
            known = read_number(p, &p->width);
        else if (!strcmp(word, "HEIGHT"))
            known = read_number(p, &p->height);
        else if (!strcmp(word, "DEPTH"))
            known = read_number(p, &p->depth);
        else if (!strcmp(word, "MAXVAL"))
            known = read_number(p, &most);
        else if (!strcmp(word, "TUPLTYPE"))
            while (p->at < p->count && p->bytes[p->at] != '\n') p->at++;
        else
            known = false;
        if (!known) return false;
    }
    p->most = (uint32_t)(most > UINT16_MAX ? 0 : most);
    return p->at < p->count && p->bytes[p->at++] == '\n';
}

/* False: what is there is no header, or not all of one. */
static bool read_header(pnm *p) {
    size_t most = 1;
    p->kind = p->count > 1 ? p->bytes[1] - '0' : 0;
    p->at = 2;
    if (p->kind == 7) return read_pam(p);
    p->depth = p->kind == 3 || p->kind == 6 ? 3 : 1;
    if (!read_number(p, &p->width) || !read_number(p, &p->height)) return false;
    if (p->kind != 1 && p->kind != 4 && !read_number(p, &most)) return false;
    p->most = (uint32_t)(most > UINT16_MAX ? 0 : most);
    return p->at < p->count && isspace(p->bytes[p->at++]);
}

static ist_pixel_format format_of(const pnm *p) {
    return (ist_pixel_format)((p->most > 255 ? 2 : 1) << 4 | (int)p->depth);
}

void ist_pnm_measure(const unsigned char *head, size_t count, size_t max_pixels, ist_image_size *size, bool *unclear) {
    pnm p = {.bytes = head, .count = count};
    if (read_header(&p) && p.depth && p.depth <= 4)
        ist_image_size_set(size, p.width, p.height, p.depth * (p.most > 255 ? 2u : 1u), max_pixels);
    else
        *unclear = count == IST_IMAGE_HEAD; /* comments may be long */
}

static void put_sample(const pnm *p, ist_bitmap *out, size_t i, uint32_t value) {
    uint32_t full = p->most > 255 ? 65535 : 255;
    if (value > p->most) value = p->most;
    if (p->most != full) value = (value * full + p->most / 2) / p->most; /* at most 65535 * 65535 + 32767 */
    if (full == 255)
        ((uint8_t *)out->pixels)[i] = (uint8_t)value;
    else
        ((uint16_t *)out->pixels)[i] = (uint16_t)value;
}

/* Bits are one for black, and rows begin at a byte. */
static void read_bits(const pnm *p, ist_bitmap *out) {
    size_t row = (p->width + 7) / 8;
    for (size_t y = 0; y < p->height; y++)
        for (size_t x = 0; x < p->width; x++) {
            unsigned byte = p->bytes[p->at + y * row + x / 8];
            ((uint8_t *)out->pixels)[y * out->stride + x] = byte >> (7 - x % 8) & 1 ? 0 : 255;
        }
}

static void read_raw(const pnm *p, ist_bitmap *out, size_t samples) {
    const uint8_t *from = p->bytes + p->at;
    for (size_t i = 0; i < samples; i++)
        put_sample(p, out, i, p->most > 255 ? (uint32_t)from[2 * i] << 8 | from[2 * i + 1] : from[i]);
}

/* Numbers in text; those of bits may stand without blanks between them. */
static bool read_plain(pnm *p, ist_bitmap *out, size_t samples) {
    for (size_t i = 0; i < samples; i++) {
        size_t value;
        if (p->kind == 1) {
            skip_blanks(p);
            if (p->at >= p->count || (p->bytes[p->at] != '0' && p->bytes[p->at] != '1')) return false;
            ((uint8_t *)out->pixels)[i] = p->bytes[p->at++] == '1' ? 0 : 255;
            continue;
        }
        if (!read_number(p, &value)) return false;
        put_sample(p, out, i, value > UINT16_MAX ? UINT16_MAX : (uint32_t)value);
    }
    return true;
}

/* Bytes of the samples, each at least. */
static size_t least_bytes(const pnm *p, size_t samples) {
    if (p->kind < 4) return p->kind == 1 ? samples : 2 * samples - 1;
    return p->kind == 4 ? (p->width + 7) / 8 * p->height : samples * (p->most > 255 ? 2 : 1);
}

ist_status ist_pnm_decode(const void *bytes, size_t count, const char *name, size_t max_pixels, ist_bitmap *out,
                          ist_error *err) {
    pnm p = {.bytes = bytes, .count = count};
    *out = (ist_bitmap){0};
    if (!read_header(&p) || !p.most || !p.depth)
        return ist_fail(err, IST_E_INPUT, "%s: the header of the PNM is damaged or cut", name);
    if (p.depth > 4) return ist_fail(err, IST_E_INPUT, "%s: a PAM of %zu channels, at most 4 are read", name, p.depth);
    if (p.width < 1 || p.height < 1 || p.width > max_pixels / p.height) /* says so, and multiplies nothing */
        return ist_bitmap_allocate(name, p.width, p.height, format_of(&p), max_pixels, out, err);
    size_t samples = p.width * p.height * p.depth, least = least_bytes(&p, samples);
    if (count - p.at < least)
        return ist_fail(err, IST_E_INPUT, "%s: the PNM is truncated after %zu bytes", name, count);
    IST_TRY(ist_bitmap_allocate(name, p.width, p.height, format_of(&p), max_pixels, out, err));
    bool whole = true;
    if (p.kind == 4)
        read_bits(&p, out);
    else if (p.kind > 4)
        read_raw(&p, out, samples);
    else
        whole = read_plain(&p, out, samples);
    if (whole && p.kind >= 4 && count - p.at > least + 2) {
        const uint8_t *next = p.bytes + p.at + least;
        if (ist_image_format_of(next, count - p.at - least) == ist_image_format_of(bytes, count)) {
            ist_bitmap_free(out);
            return ist_fail(err, IST_E_INPUT, "%s: holds several images; a file of one is read", name);
        }
    }
    if (whole) return IST_OK;
    ist_bitmap_free(out);
    return ist_fail(err, IST_E_INPUT, "%s: damaged PNM: a value is missing or is no number", name);
}
