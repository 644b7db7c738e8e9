/* PNG out. Colour goes through the filter "average" (Paeth takes longer and wins little where nothing repeats), maps
 * through "up", since their lines are like the ones above. Then runs and Huffman codes alone (deflate_runs.h), which
 * make photographs, noise and maps about as small as a search for repetitions in a fraction of its time; drawings would
 * be half as large again, so that a few bands of a coloured image tell. */
#include "io/image.h"

#include "base/mem.h"
#include "io/atomic_file.h"
#include "io/deflate_runs.h"
#include "io/flate.h"

#include <stdlib.h>
#include <string.h>

enum { FILTER_UP = 2, FILTER_AVERAGE = 3 };
enum { BANDS = 4, BAND_ROWS = 8, LARGER_PERCENT = 5 };

typedef struct writer {
    const ist_bitmap *bitmap;
    FILE *stream;
    size_t row, pixel; /* bytes */
    uint8_t *lines[2]; /* 16 bit: a line and the one before it, big-endian */
    uint8_t *zeros;    /* [row], above the first line */
    uint8_t *filtered; /* [1 + row] */
    uint8_t *block;    /* [IST_RUNS_BLOCK] */
    uint8_t *room;     /* [IST_RUNS_ROOM] */
    ist_runs *runs;
} writer;

static void close_writer(writer *w) {
    free(w->lines[0]);
    free(w->lines[1]);
    free(w->zeros);
    free(w->filtered);
    free(w->block);
    free(w->room);
    ist_runs_close(&w->runs);
}

static bool open_writer(writer *w, const ist_bitmap *b, FILE *stream) {
    *w = (writer){.bitmap = b, .stream = stream};
    w->pixel = (size_t)(ist_format_channels(b->format) * ist_format_bytes(b->format));
    w->row = w->pixel * (size_t)b->width;
    bool wide = ist_format_bytes(b->format) == 2;
    for (int i = 0; i < 2 && wide; i++) w->lines[i] = malloc(w->row);
    w->zeros = calloc(w->row, 1);
    w->filtered = malloc(w->row + 1);
    w->block = malloc(IST_RUNS_BLOCK);
    w->room = malloc(IST_RUNS_ROOM);
    w->runs = ist_runs_open();
    return w->zeros && w->filtered && w->block && w->room && w->runs && (!wide || (w->lines[0] && w->lines[1]));
}

/* ---- lines ---- */

/* Line y as it stands in the file, without filter. */
static const uint8_t *line(writer *w, int y) {
    const uint8_t *from = (const uint8_t *)w->bitmap->pixels + (size_t)y * w->bitmap->stride;
    uint8_t *to = w->lines[y & 1];
    if (!to) return from;
    for (size_t x = 0; x < (size_t)w->bitmap->width; x++) {
        uint16_t value;
        memcpy(&value, from + 2 * x, 2);
        to[2 * x] = (uint8_t)(value >> 8);
        to[2 * x + 1] = (uint8_t)value;
    }
    return to;
}

static void filter_average(uint8_t *restrict to, const uint8_t *restrict p, const uint8_t *restrict up, size_t row,
                           size_t pixel) {
    for (size_t i = 0; i < pixel; i++) to[i] = (uint8_t)(p[i] - (up[i] >> 1));
    for (size_t i = pixel; i < row; i++) to[i] = (uint8_t)(p[i] - ((p[i - pixel] + up[i]) >> 1));
}

static void filter_up(uint8_t *restrict to, const uint8_t *restrict p, const uint8_t *restrict up, size_t row) {
    for (size_t i = 0; i < row; i++) to[i] = (uint8_t)(p[i] - up[i]);
}

/* Line y behind its filter, 1 + row bytes. Lines of 16 bits are asked for in rising order. */
static void filter_line(writer *w, int y, uint8_t *to) {
    const uint8_t *p = line(w, y), *up = !y ? w->zeros : w->lines[0] ? w->lines[~y & 1] : p - w->bitmap->stride;
    bool color = ist_format_channels(w->bitmap->format) == 3;
    *to++ = color ? FILTER_AVERAGE : FILTER_UP;
    if (color)
        filter_average(to, p, up, w->row, w->pixel);
    else
        filter_up(to, p, up, w->row);
}

/* ---- runs or search ---- */

static size_t size_in_runs(writer *w, const uint8_t *bytes, size_t count) {
    size_t size = 0;
    for (size_t at = 0; at < count; at += IST_RUNS_BLOCK) {
        size_t n = count - at < IST_RUNS_BLOCK ? count - at : IST_RUNS_BLOCK;
        size += ist_runs_put(w->runs, bytes + at, n, at + n == count, w->room);
    }
    return size;
}

/* Whether runs alone compress the image about as well. */
static bool runs_suffice(writer *w) {
    int height = w->bitmap->height;
    size_t count = (size_t)BANDS * BAND_ROWS * (1 + w->row), capacity = count + count / 8 + 1024;
    if (ist_format_channels(w->bitmap->format) != 3) return true;
    if (height < 2 * BANDS * BAND_ROWS) return false;
    uint8_t *sample = malloc(count + capacity), *end = sample;
    if (!sample) return true;
    for (int k = 0; k < BANDS; k++) {
        int y0 = (int)((long)(height - BAND_ROWS) * k / (BANDS - 1));
        for (int y = y0; y < y0 + BAND_ROWS; y++, end += 1 + w->row) filter_line(w, y, end);
    }
    size_t runs = size_in_runs(w, sample, count), searched = ist_deflate_search(sample, count, end, capacity);
    free(sample);
    return !searched || runs * 100 <= searched * (100 + LARGER_PERCENT);
}

/* ---- chunks ---- */

static void put_u32(uint8_t *to, uint32_t v) {
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(v >> (24 - 8 * i));
}

/* What cannot be written shows in the stream. */
static void put_chunk(FILE *stream, const char *type, const uint8_t *bytes, size_t count) {
    uint8_t head[8], tail[4];
    put_u32(head, (uint32_t)count);
    memcpy(head + 4, type, 4);
    uint32_t crc = ist_crc32(0, head + 4, 4);
    put_u32(tail, count ? ist_crc32(crc, bytes, count) : crc);
    fwrite(head, 1, sizeof head, stream);
    if (count) fwrite(bytes, 1, count, stream);
    fwrite(tail, 1, sizeof tail, stream);
}

static void put_header(const writer *w) {
    static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    const ist_bitmap *b = w->bitmap;
    uint8_t header[13] = {0};
    put_u32(header, (uint32_t)b->width);
    put_u32(header + 4, (uint32_t)b->height);
    header[8] = (uint8_t)(8 * ist_format_bytes(b->format));
    header[9] = ist_format_channels(b->format) == 3 ? 2 : 0; /* colour, gray */
    fwrite(signature, 1, sizeof signature, w->stream);
    put_chunk(w->stream, "IHDR", header, sizeof header);
}

/* A block of filtered bytes at a time, each a chunk. */
static void put_runs(writer *w) {
    size_t fill = 0;
    for (int y = 0; y < w->bitmap->height; y++) {
        filter_line(w, y, w->filtered);
        for (size_t at = 0; at <= w->row;) {
            size_t n = w->row + 1 - at;
            if (n > IST_RUNS_BLOCK - fill) n = IST_RUNS_BLOCK - fill;
            memcpy(w->block + fill, w->filtered + at, n);
            at += n;
            fill += n;
            bool last = y == w->bitmap->height - 1 && at > w->row;
            if (fill < IST_RUNS_BLOCK && !last) continue;
            put_chunk(w->stream, "IDAT", w->room, ist_runs_put(w->runs, w->block, fill, last, w->room));
            fill = 0;
        }
    }
}

/* False when there is no memory for the image as a whole; nothing has been written then. */
static bool put_searched(writer *w) {
    enum { CHUNK = 1 << 30 };
    size_t count, capacity, size = 0;
    if (!ist_mul_size((size_t)w->bitmap->height, 1 + w->row, &count)) return false;
    capacity = count + count / 8 + 1024;
    uint8_t *lines = malloc(count), *deflated = malloc(capacity);
    if (lines && deflated) {
        for (int y = 0; y < w->bitmap->height; y++) filter_line(w, y, lines + (size_t)y * (1 + w->row));
        size = ist_deflate_search(lines, count, deflated, capacity);
    }
    for (size_t at = 0; at < size; at += CHUNK)
        put_chunk(w->stream, "IDAT", deflated + at, size - at < CHUNK ? size - at : CHUNK);
    free(lines);
    free(deflated);
    return size != 0;
}

static ist_status write_stream(FILE *stream, const char *path, const ist_bitmap *bitmap, ist_error *err) {
    writer w;
    bool open = open_writer(&w, bitmap, stream);
    if (open) {
        put_header(&w);
        if (runs_suffice(&w) || !put_searched(&w)) put_runs(&w);
        put_chunk(stream, "IEND", NULL, 0);
    }
    close_writer(&w);
    return open ? IST_OK : ist_fail(err, IST_E_MEMORY, "%s: out of memory", path);
}

ist_status ist_png_write(const char *path, const ist_bitmap *bitmap, ist_error *err) {
    if (bitmap->format != IST_GRAY8 && bitmap->format != IST_GRAY16 && bitmap->format != IST_RGB8)
        return ist_fail(err, IST_E_ARGUMENT, "%s: pixel format 0x%x is not written", path, (unsigned)bitmap->format);
    ist_atomic_file file;
    IST_TRY(ist_atomic_begin(&file, path, err));
    ist_status status = write_stream(file.stream, path, bitmap, err);
    if (status) {
        ist_atomic_abort(&file);
        return status;
    }
    return ist_atomic_commit(&file, err);
}
