/* The common kind of PNG without libpng: 8 bits a sample, no palette, no transparent colour, not interlaced, nothing
 * wrong anywhere. It is inflated at once and its filters undone line by line, in a third of the time. Whatever is
 * different, or damaged, is left to libpng, which knows every kind and says what is wrong. */
#include "io/png_plain.h"

#include "base/mem.h"
#include "io/flate.h"

#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Deflate makes at most 1032 bytes of one (two bits of a code for 258 bytes). */
enum { SIGNATURE = 8, CHUNK_EXTRA = 12, HEADER = 13, MOST_GROWTH = 1032 };

typedef struct plain_png {
    size_t width, height, pixel; /* bytes a pixel */
    const uint8_t *first;        /* IDAT chunks lie one after the other from here */
    size_t chunks, deflated;     /* their number, and bytes in them together */
} plain_png;

static uint32_t big_endian(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool is_type(const uint8_t *chunk, const char *type) {
    return !memcmp(chunk + 4, type, 4);
}

static bool read_header(const uint8_t *chunk, size_t length, plain_png *p) {
    static const uint8_t samples[7] = {1, 0, 3, 0, 2, 0, 4}; /* of a colour type; 0: a palette, or no such type */
    const uint8_t *d = chunk + 8;
    if (!is_type(chunk, "IHDR") || length != HEADER || d[8] != 8 || d[9] > 6 || d[10] || d[11] || d[12]) return false;
    p->width = big_endian(d);
    p->height = big_endian(d + 4);
    p->pixel = samples[d[9]];
    return p->width && p->height && p->pixel;
}

/* False when the file is not of this kind, or not in order. */
static bool read_chunks(const uint8_t *bytes, size_t count, plain_png *p) {
    bool ended = false, more_data = true;
    for (size_t at = SIGNATURE; !ended;) {
        const uint8_t *chunk = bytes + at;
        if (count - at < CHUNK_EXTRA) return false;
        size_t length = big_endian(chunk);
        if (length > count - at - CHUNK_EXTRA) return false;
        if (ist_crc32(0, chunk + 4, length + 4) != big_endian(chunk + 8 + length)) return false;
        bool data = is_type(chunk, "IDAT"), header = at == SIGNATURE;
        if (header && !read_header(chunk, length, p)) return false;
        if (data && (!more_data || header)) return false;
        if (data && !p->chunks++) p->first = chunk;
        if (data) p->deflated += length;
        if (!data && p->chunks) more_data = false;
        ended = is_type(chunk, "IEND");
        bool extra = chunk[4] & 32 && !is_type(chunk, "tRNS"); /* a lower-case letter: decoders may leave it out */
        if (!header && !data && !ended && !extra) return false;
        at += CHUNK_EXTRA + length;
    }
    return p->chunks;
}

/* The filtered lines, malloc'd; NULL when they are not just these. */
static uint8_t *inflate_lines(const plain_png *p, size_t size) {
    uint8_t *lines = malloc(size), *joined = NULL;
    const uint8_t *deflated = p->first + 8;
    if (lines && p->chunks > 1 && (joined = malloc(p->deflated))) {
        const uint8_t *chunk = p->first;
        for (size_t i = 0, at = 0; i < p->chunks; i++) {
            size_t length = big_endian(chunk);
            memcpy(joined + at, chunk + 8, length);
            at += length;
            chunk += CHUNK_EXTRA + length;
        }
        deflated = joined;
    }
    bool good = lines && (p->chunks == 1 || joined) && ist_inflate(deflated, p->deflated, lines, size);
    free(joined);
    if (good) return lines;
    free(lines);
    return NULL;
}

/* ---- filters ---- */

static inline void undo_sub(uint8_t *restrict to, const uint8_t *restrict from, size_t row, size_t pixel) {
    uint8_t left[4] = {0};
    for (size_t i = 0; i < row; i += pixel)
        for (size_t c = 0; c < pixel; c++) to[i + c] = left[c] = (uint8_t)(from[i + c] + left[c]);
}

static inline void undo_average(uint8_t *restrict to, const uint8_t *restrict from, const uint8_t *restrict up,
                                size_t row, size_t pixel) {
    uint8_t left[4] = {0};
    for (size_t i = 0; i < row; i += pixel)
        for (size_t c = 0; c < pixel; c++) to[i + c] = left[c] = (uint8_t)(from[i + c] + ((left[c] + up[i + c]) >> 1));
}

/* left, above, or above left: the one next to left + above - above left */
static inline int paeth(int a, int b, int c) {
    int pa = abs(b - c), pb = abs(a - c), pc = abs(a + b - 2 * c);
    int ab = pb < pa ? b : a, least = pb < pa ? pb : pa;
    return pc < least ? c : ab;
}

#ifdef __SSE2__
static inline __m128i load4(const uint8_t *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm_unpacklo_epi8(_mm_cvtsi32_si128(v), _mm_setzero_si128());
}

static inline __m128i absolute(__m128i v) {
    return _mm_max_epi16(v, _mm_sub_epi16(_mm_setzero_si128(), v));
}

static inline __m128i choose(__m128i condition, __m128i yes, __m128i no) {
    return _mm_or_si128(_mm_and_si128(condition, yes), _mm_andnot_si128(condition, no));
}

/* Pixels of three or four bytes but for the last, whose fourth byte may lie outside; in 16-bit lanes. Returns the bytes
 * done. */
static inline size_t undo_paeth_wide(uint8_t *restrict to, const uint8_t *restrict from, const uint8_t *restrict up,
                                     size_t row, size_t pixel) {
    __m128i a = _mm_setzero_si128(), c = a;
    size_t i = 0;
    for (; i + pixel < row; i += pixel) {
        __m128i b = load4(up + i), to_a = _mm_sub_epi16(b, c), to_b = _mm_sub_epi16(a, c);
        __m128i pa = absolute(to_a), pb = absolute(to_b), pc = absolute(_mm_add_epi16(to_a, to_b));
        __m128i least = _mm_min_epi16(pc, _mm_min_epi16(pa, pb));
        __m128i nearest = choose(_mm_cmpeq_epi16(least, pa), a, choose(_mm_cmpeq_epi16(least, pb), b, c));
        a = _mm_add_epi8(load4(from + i), nearest); /* upper halves of the lanes stay 0 */
        c = b;
        int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(a, a));
        memcpy(to + i, &bytes, pixel);
    }
    return i;
}
#endif

static inline void undo_paeth(uint8_t *restrict to, const uint8_t *restrict from, const uint8_t *restrict up,
                              size_t row, size_t pixel) {
    int left[4] = {0}, above_left[4] = {0};
    size_t done = 0;
#ifdef __SSE2__
    if (pixel >= 3) done = undo_paeth_wide(to, from, up, row, pixel);
    for (size_t c = 0; c < pixel && done; c++) left[c] = to[done - pixel + c], above_left[c] = up[done - pixel + c];
#endif
    for (size_t i = done; i < row; i += pixel)
        for (size_t c = 0; c < pixel; c++) {
            int above = up[i + c];
            left[c] = (from[i + c] + paeth(left[c], above, above_left[c])) & 255;
            to[i + c] = (uint8_t)left[c];
            above_left[c] = above;
        }
}

static inline bool undo(int filter, uint8_t *restrict to, const uint8_t *restrict from, const uint8_t *restrict up,
                        size_t row, size_t pixel) {
    switch (filter) {
    case 0:
        memcpy(to, from, row);
        return true;
    case 1:
        undo_sub(to, from, row, pixel);
        return true;
    case 2:
        for (size_t i = 0; i < row; i++) to[i] = (uint8_t)(from[i] + up[i]);
        return true;
    case 3:
        undo_average(to, from, up, row, pixel);
        return true;
    case 4:
        undo_paeth(to, from, up, row, pixel);
        return true;
    default:
        return false;
    }
}

/* The bytes of a pixel as a constant, for the compiler to unroll. */
static bool undo_line(int filter, uint8_t *to, const uint8_t *from, const uint8_t *up, size_t row, size_t pixel) {
    switch (pixel) {
    case 1:
        return undo(filter, to, from, up, row, 1);
    case 2:
        return undo(filter, to, from, up, row, 2);
    case 3:
        return undo(filter, to, from, up, row, 3);
    default:
        return undo(filter, to, from, up, row, 4);
    }
}

static bool undo_filters(const plain_png *p, const uint8_t *lines, ist_bitmap *out) {
    size_t row = p->width * p->pixel;
    uint8_t *zeros = calloc(row, 1), *to = out->pixels;
    bool good = zeros != NULL;
    const uint8_t *up = zeros;
    for (size_t y = 0; y < p->height && good; y++, up = to, to += row, lines += 1 + row)
        good = undo_line(*lines, to, lines + 1, up, row, p->pixel);
    free(zeros);
    return good;
}

bool ist_png_decode_plain(const void *bytes, size_t count, size_t max_pixels, ist_bitmap *out) {
    plain_png p = {0};
    size_t row, size;
    if (count < SIGNATURE || !read_chunks(bytes, count, &p)) return false;
    if (!ist_mul_size(p.width, p.pixel, &row) || !ist_mul_size(p.height, row + 1, &size) ||
        size / MOST_GROWTH > p.deflated)
        return false;
    if (ist_bitmap_allocate("", p.width, p.height, (ist_pixel_format)(0x10 | p.pixel), max_pixels, out, NULL))
        return false;
    uint8_t *lines = inflate_lines(&p, size);
    bool good = lines && undo_filters(&p, lines, out);
    free(lines);
    if (!good) ist_bitmap_free(out);
    return good;
}
