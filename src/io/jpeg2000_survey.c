/* See jpeg2000_survey.h. Letters are the standard's: annex A (markers), B.2 to B.7 (tiles, resolutions, precincts). */
#include "io/jpeg2000_survey.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    SOC = 0xFF4F,
    CAP = 0xFF50,
    SIZ = 0xFF51,
    COD = 0xFF52,
    COC = 0xFF53,
    TLM = 0xFF55,
    PLM = 0xFF57,
    PLT = 0xFF58,
    QCD = 0xFF5C,
    QCC = 0xFF5D,
    RGN = 0xFF5E,
    POC = 0xFF5F,
    PPM = 0xFF60,
    PPT = 0xFF61,
    CRG = 0xFF63,
    COM = 0xFF64,
    SOT = 0xFF90,
    SOD = 0xFF93,
    EOC = 0xFFD9
};

enum {
    MOST_SIDE = 1 << 24,     /* of the reference grid */
    MOST_TILES = 65535,      /* the standard's */
    MOST_SEGMENTS = 1 << 18, /* of markers, in all headers */
    MOST_STYLES = 64,        /* COD and COC, in all headers */
    MOST_PASSES = 164        /* of a code block in one packet, as their number is coded */
};

/* What OpenJPEG takes, rounded up: for a tile with its parts and indexes, a precinct of a band, a code block, and a
 * segment of one. */
enum { TILE_BYTES = 24 << 10, PRECINCT_BYTES = 256, BLOCK_BYTES = 512, SEGMENT_BYTES = 64 };

typedef struct siz {
    uint32_t x0, x1, y0, y1;     /* of the picture */
    uint32_t tx0, ty0, tdx, tdy; /* of the tiles */
    uint32_t tw, th;             /* how many */
} siz;

typedef struct reader {
    const unsigned char *bytes;
    size_t count;
    const char *name;
    const ist_jpeg2000_frame *frame;
    ist_jpeg2000_survey *s; /* what is found */
    siz z;
    size_t tiles;
    unsigned layers, styles, segments; /* layers: the most of any COD so far */
    size_t precincts;                  /* of a component, in the worst of the styles */
    size_t blocks, structures;         /* of a component of one tile, which are there together; but for segments */
    unsigned block_style;              /* all of the styles' bits */
    bool has_style, has_steps;         /* COD, QCD */
    unsigned char *parts;              /* of each tile, whether one was there */
} reader;

static unsigned word(const unsigned char *p) {
    return (unsigned)p[0] << 8 | p[1];
}

static uint32_t dword(const unsigned char *p) {
    return (uint32_t)word(p) << 16 | word(p + 2);
}

static ist_status damaged(const reader *r, const char *what, ist_error *err) {
    return ist_fail(err, IST_E_INPUT, "%s: damaged JPEG 2000: %s", r->name, what);
}

/* ---- SIZ ---- */

static ist_status read_siz(reader *r, const unsigned char *p, size_t length, ist_error *err) {
    const ist_jpeg2000_frame *f = r->frame;
    siz *z = &r->z;
    if (length < 36) return damaged(r, "its sizes are cut", err);
    const unsigned components = word(p + 34), capabilities = word(p);
    if (length != 36 + 3 * (size_t)components) return damaged(r, "its sizes are cut", err);
    if (capabilities & 0x4000) return ist_fail(err, IST_E_INPUT, "%s: High-Throughput JPEG 2000 is not read", r->name);
    if (capabilities & 0x8000)
        return ist_fail(err, IST_E_INPUT, "%s: JPEG 2000 with extensions (part 2) is not read", r->name);
    *z = (siz){.x1 = dword(p + 2),
               .y1 = dword(p + 6),
               .x0 = dword(p + 10),
               .y0 = dword(p + 14),
               .tdx = dword(p + 18),
               .tdy = dword(p + 22),
               .tx0 = dword(p + 26),
               .ty0 = dword(p + 30)};
    if (z->x0 >= z->x1 || z->y0 >= z->y1 || z->x1 - z->x0 != f->width || z->y1 - z->y0 != f->height ||
        components != f->samples)
        return ist_fail(err, IST_E_INPUT,
                        "%s: damaged JPEG 2000: a codestream of %lld x %lld pixels in %u for frames of %zu x %zu in %u",
                        r->name, (long long)z->x1 - z->x0, (long long)z->y1 - z->y0, components, f->width, f->height,
                        f->samples);
    if (z->x1 > MOST_SIDE || z->y1 > MOST_SIDE || !z->tdx || !z->tdy || z->tdx > INT32_MAX || z->tdy > INT32_MAX ||
        z->tx0 > z->x0 || z->ty0 > z->y0 || z->tx0 + z->tdx <= z->x0 || z->ty0 + z->tdy <= z->y0)
        return damaged(r, "its tiles do not lie on the picture", err);
    for (unsigned c = 0; c < components; c++) {
        const unsigned char *q = p + 36 + 3 * c;
        const unsigned bits = (q[0] & 0x7Fu) + 1;
        if (bits > f->bits)
            return ist_fail(err, IST_E_INPUT, "%s: damaged JPEG 2000: samples of %u bits for those of %u", r->name,
                            bits, f->bits);
        if (q[1] != 1 || q[2] != 1)
            return ist_fail(err, IST_E_INPUT, "%s: JPEG 2000 of components with fewer pixels is not read", r->name);
        if (c && (q[0] != p[36])) return damaged(r, "components of different bits", err);
    }
    r->s->bits = (p[36] & 0x7Fu) + 1, r->s->with_sign = p[36] >> 7;
    z->tw = (z->x1 - z->tx0 + (z->tdx - 1)) / z->tdx, z->th = (z->y1 - z->ty0 + (z->tdy - 1)) / z->tdy;
    r->tiles = (size_t)z->tw * z->th;
    if (r->tiles > MOST_TILES || r->tiles * TILE_BYTES > ist_jpeg2000_most_structures(*f))
        return ist_fail(err, IST_E_LIMIT,
                        "%s: a JPEG 2000 of %zu tiles for %zu x %zu pixels takes more memory than they do", r->name,
                        r->tiles, f->width, f->height);
    r->parts = calloc(r->tiles, 1);
    return r->parts ? IST_OK : ist_fail(err, IST_E_MEMORY, "%s: out of memory", r->name);
}

/* ---- COD and COC ---- */

/* Of one side: how many precincts all tiles in a row (or column) have of a resolution that is 2^down times smaller, and
 * how many precincts, and code blocks of a band, the tile with the most. Bands but the first are half the resolution.
 */
typedef struct cuts {
    uint64_t precincts, tile_precincts, tile_blocks;
} cuts;

static cuts cut(uint32_t begin, uint32_t end, uint32_t origin, uint32_t step, unsigned down, unsigned precinct,
                unsigned block, bool halved) {
    cuts c = {0};
    for (uint64_t at = origin; at < end; at += step) {
        uint64_t a = at > begin ? at : begin, b = at + step < end ? at + step : end;
        a = (a + ((uint64_t)1 << down) - 1) >> down, b = (b + ((uint64_t)1 << down) - 1) >> down;
        if (a >= b) continue;
        const uint64_t precincts = ((b + ((uint64_t)1 << precinct) - 1) >> precinct) - (a >> precinct);
        if (halved) a >>= 1, b = (b + 1) >> 1;
        const uint64_t blocks = ((b + ((uint64_t)1 << block) - 1) >> block) - (a >> block);
        c.precincts += precincts;
        if (precincts > c.tile_precincts) c.tile_precincts = precincts;
        if (blocks > c.tile_blocks) c.tile_blocks = blocks;
    }
    return c;
}

/* SPcod, SPcoc. What the worst of the styles comes to counts, as if it were that of all components and tiles. */
static ist_status read_style(reader *r, const unsigned char *p, size_t length, bool own_precincts, ist_error *err) {
    if (length < 5) return damaged(r, "its coding style is cut", err);
    const unsigned levels = p[0], bw = p[1] + 2u, bh = p[2] + 2u;
    if (levels > 32 || bw > 10 || bh > 10 || bw + bh > 12 || p[4] > 1 ||
        length != 5 + (own_precincts ? (size_t)levels + 1 : 0))
        return damaged(r, "a coding style that there is not", err);
    if (p[3] & 0xC0) return ist_fail(err, IST_E_INPUT, "%s: High-Throughput JPEG 2000 is not read", r->name);
    if (r->styles++ == MOST_STYLES)
        return ist_fail(err, IST_E_LIMIT, "%s: a JPEG 2000 of more than %d coding styles", r->name, MOST_STYLES);
    uint64_t precincts = 0, blocks = 0, structures = 0;
    for (unsigned i = 0; i <= levels; i++) {
        const unsigned px = own_precincts ? p[5 + i] & 15u : 15, py = own_precincts ? p[5 + i] >> 4 : 15;
        const unsigned bands = i ? 3 : 1, half = i ? 1 : 0;
        if (px < half || py < half) return damaged(r, "a coding style that there is not", err);
        const cuts x = cut(r->z.x0, r->z.x1, r->z.tx0, r->z.tdx, levels - i, px, bw < px - half ? bw : px - half, i);
        const cuts y = cut(r->z.y0, r->z.y1, r->z.ty0, r->z.tdy, levels - i, py, bh < py - half ? bh : py - half, i);
        precincts += x.precincts * y.precincts;
        const uint64_t tile_blocks = bands * x.tile_blocks * y.tile_blocks;
        blocks += tile_blocks;
        structures += tile_blocks * BLOCK_BYTES + bands * x.tile_precincts * y.tile_precincts * PRECINCT_BYTES;
    }
    if (precincts > r->precincts) r->precincts = precincts;
    if (blocks > r->blocks) r->blocks = blocks;
    if (structures > r->structures) r->structures = structures;
    r->block_style |= p[3];
    return IST_OK;
}

static ist_status read_cod(reader *r, const unsigned char *p, size_t length, ist_error *err) {
    if (length < 10) return damaged(r, "its coding style is cut", err);
    const unsigned layers = word(p + 2);
    if (!layers || p[1] > 4 || p[4] > 1) return damaged(r, "a coding style that there is not", err);
    if (layers > r->layers) r->layers = layers;
    return read_style(r, p + 5, length - 5, p[0] & 1, err);
}

static ist_status read_coc(reader *r, const unsigned char *p, size_t length, ist_error *err) {
    if (length < 2 || p[0] >= r->frame->samples) return damaged(r, "a coding style of no component", err);
    return read_style(r, p + 2, length - 2, p[1] & 1, err);
}

/* Segments are where a code block's passes end: each, every second third, or those of 36 bit planes together. */
static unsigned segments_per_layer(unsigned block_style) {
    return block_style & 4 ? MOST_PASSES : block_style & 1 ? MOST_PASSES * 2 / 3 + 1 : 2;
}

/* A packet is a byte at least. */
static ist_status weigh(reader *r, ist_error *err) {
    ist_jpeg2000_survey *s = r->s;
    if (!r->has_style || !r->has_steps) return damaged(r, "it has no coding style", err);
    if (r->precincts > r->count || r->precincts * r->layers > r->count / r->frame->samples)
        return ist_fail(err, IST_E_INPUT, "%s: damaged JPEG 2000: %zu bytes for %zu packets in each of %u layers",
                        r->name, r->count, r->precincts * r->frame->samples, r->layers);
    const size_t most = ist_jpeg2000_most_structures(*r->frame);
    const size_t segments = (size_t)segments_per_layer(r->block_style) * r->layers * SEGMENT_BYTES;
    s->structures = r->tiles * TILE_BYTES;
    if (r->structures < most) s->structures += r->structures * r->frame->samples;
    if (r->structures >= most || r->blocks > (most / r->frame->samples) / segments ||
        (s->structures += r->blocks * segments * r->frame->samples) > most)
        return ist_fail(err, IST_E_LIMIT,
                        "%s: a JPEG 2000 of %zu %s with %zu code blocks and %u layers for %zu x %zu pixels takes more "
                        "memory than they do",
                        r->name, r->tiles, ist_plural(r->tiles, "tile", "tiles"), r->blocks * r->frame->samples,
                        r->layers, r->frame->width, r->frame->height);
    return IST_OK;
}

/* ---- from marker to marker ---- */

static ist_status read_segment(reader *r, unsigned marker, const unsigned char *p, size_t length, bool main_header,
                               ist_error *err) {
    if (r->segments++ == MOST_SEGMENTS)
        return ist_fail(err, IST_E_LIMIT, "%s: a JPEG 2000 of more than %d marker segments", r->name, MOST_SEGMENTS);
    switch (marker) {
    case COD:
        r->has_style |= main_header;
        return read_cod(r, p, length, err);
    case COC:
        return read_coc(r, p, length, err);
    case QCD:
        r->has_steps |= main_header;
        return IST_OK;
    case QCC:
    case RGN:
    case POC:
    case COM:
        return IST_OK;
    case TLM:
    case PLM:
    case PPM:
    case CRG:
        return main_header ? IST_OK : damaged(r, "a marker that has no place there", err);
    case PLT:
    case PPT:
        return !main_header ? IST_OK : damaged(r, "a marker that has no place there", err);
    case CAP:
        return ist_fail(err, IST_E_INPUT, "%s: High-Throughput JPEG 2000 is not read", r->name);
    default:
        return damaged(r, "a marker that has no place there", err);
    }
}

/* Segments from *at on up to the marker `last`, which *at is behind then. */
static ist_status read_header(reader *r, size_t *at, size_t end, unsigned last, ist_error *err) {
    for (;;) {
        if (end - *at < 2) return damaged(r, "it is cut", err);
        const unsigned marker = word(r->bytes + *at);
        *at += 2;
        if (marker == last) return IST_OK;
        if (end - *at < 2) return damaged(r, "it is cut", err);
        const size_t length = word(r->bytes + *at);
        if (length < 2 || length > end - *at) return damaged(r, "it is cut", err);
        IST_TRY(read_segment(r, marker, r->bytes + *at + 2, length - 2, last == SOT, err));
        *at += length;
    }
}

/* A tile-part from behind its SOT on; *at goes behind it. One of length 0 is the last and goes up to EOC. */
static ist_status read_part(reader *r, size_t *at, ist_error *err) {
    const unsigned char *p = r->bytes + *at;
    if (r->count - *at < 10) return damaged(r, "it is cut", err);
    const size_t begin = *at - 2, tile = word(p + 2), length = dword(p + 4);
    if (word(p) != 10 || tile >= r->tiles || (length && length < 14))
        return damaged(r, "a tile that there is not", err);
    if (length > r->count - begin) return damaged(r, "it is cut", err);
    size_t end = length ? begin + length : r->count;
    *at += 10;
    IST_TRY(read_header(r, at, end, SOD, err));
    r->parts[tile] = 1;
    if (!length)
        while (end - *at > 2 && word(r->bytes + end - 2) != EOC) end--;
    *at = length ? end : end - 2;
    return IST_OK;
}

/* Boxes up to the one of the codestream (annex I): DICOM wants none, and some write them. */
static ist_status skip_boxes(reader *r, ist_error *err) {
    static const char signature[] = "\0\0\0\x0CjP  \r\n\x87\n";
    if (r->count < sizeof signature - 1 || memcmp(r->bytes, signature, sizeof signature - 1)) return IST_OK;
    for (size_t at = sizeof signature - 1; r->count - at >= 8;) {
        const size_t length = dword(r->bytes + at);
        if (!memcmp(r->bytes + at + 4, "jp2c", 4)) {
            r->s->begin = at + (length == 1 ? 16 : 8);
            if (r->s->begin > r->count) break;
            r->bytes += r->s->begin, r->count -= r->s->begin;
            return IST_OK;
        }
        if (length < 8 || length > r->count - at) break;
        at += length;
    }
    return damaged(r, "a JP2 file without a codestream", err);
}

static ist_status survey(reader *r, ist_error *err) {
    IST_TRY(skip_boxes(r, err));
    size_t at = 6;
    if (r->count < 6 || word(r->bytes) != SOC || word(r->bytes + 2) != SIZ)
        return damaged(r, "no codestream begins there", err);
    const size_t length = word(r->bytes + 4);
    if (length < 2 || length > r->count - 4) return damaged(r, "its sizes are cut", err);
    IST_TRY(read_siz(r, r->bytes + 6, length - 2, err));
    at = 4 + length;
    IST_TRY(read_header(r, &at, r->count, SOT, err));
    for (;;) {
        IST_TRY(read_part(r, &at, err));
        if (r->count - at < 2) return damaged(r, "it is cut", err);
        const unsigned marker = word(r->bytes + at);
        at += 2;
        if (marker == EOC) break;
        if (marker != SOT) return damaged(r, "a tile that does not end where it says", err);
    }
    r->s->end = r->s->begin + at;
    for (size_t i = 0; i < r->tiles; i++)
        if (!r->parts[i]) return damaged(r, "tiles are missing", err);
    return weigh(r, err);
}

ist_status ist_jpeg2000_survey_of(const unsigned char *bytes, size_t count, const char *name,
                                  const ist_jpeg2000_frame *frame, ist_jpeg2000_survey *out, ist_error *err) {
    reader r = {.bytes = bytes, .count = count, .name = name, .frame = frame, .s = out};
    *out = (ist_jpeg2000_survey){0};
    ist_status status = survey(&r, err);
    free(r.parts);
    return status;
}
