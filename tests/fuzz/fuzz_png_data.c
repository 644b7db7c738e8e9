/* libFuzzer: any bytes as the compressed rows of a PNG whose chunks are right, so that the decoder is reached behind
 * their checksums. What libpng reads must come out equal. (ISA-L reads some streams that zlib refuses, for codes that
 * are incomplete.)
 *
 * Byte 0: channels - 1 in bits 0 and 1; bit 2: the rest is a DEFLATE stream, else filtered rows, which are compressed
 * here. Bytes 1 and 2: width - 1, height - 1, modulo 64. Byte 3: bytes per IDAT chunk - 1. */
#include "io/image.h"

#include <png.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 1 << 15, MAX_ROWS = 64 * (1 + 4 * 64), ROOM = 1 << 16 };

typedef struct bytes {
    uint8_t at[1 << 20];
    size_t count;
} bytes;

static void put_number(bytes *b, uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) b->at[b->count++] = (uint8_t)(value >> shift);
}

static void put(bytes *b, const void *from, size_t count) {
    memcpy(b->at + b->count, from, count);
    b->count += count;
}

static void put_chunk(bytes *b, const char *name, const void *from, size_t count) {
    put_number(b, (uint32_t)count);
    size_t start = b->count;
    put(b, name, 4);
    if (count) put(b, from, count);
    put_number(b, (uint32_t)crc32(0, b->at + start, (uInt)(count + 4)));
}

/* A zlib stream around DEFLATE data, with the checksum of what it holds if it holds anything. */
static void wrap_stream(const uint8_t *data, size_t size, bytes *out) {
    static uint8_t rows[ROOM];
    z_stream z = {0};
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK) abort();
    z.next_in = (Bytef *)data;
    z.avail_in = (uInt)size;
    z.next_out = rows;
    z.avail_out = sizeof rows;
    inflate(&z, Z_FINISH);
    size -= z.avail_in; /* what lies behind the last block would be taken for the checksum */
    uint32_t sum = (uint32_t)adler32(1, rows, (uInt)z.total_out);
    inflateEnd(&z);
    put(out, "\x78\x01", 2);
    put(out, data, size);
    put_number(out, sum);
}

static void make_png(const uint8_t *data, size_t size, bytes *png) {
    static const uint8_t colors[4] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                      PNG_COLOR_TYPE_RGBA};
    static bytes stream;
    uint8_t header[13] = {
        0, 0, 0, (uint8_t)(data[1] % 64 + 1), 0, 0, 0, (uint8_t)(data[2] % 64 + 1), 8, colors[data[0] % 4]};
    size_t chunk = (size_t)data[3] + 1;
    stream.count = 0;
    if (data[0] & 4) {
        wrap_stream(data + 4, size - 4, &stream);
    } else {
        uLongf count = sizeof stream.at;
        if (compress2(stream.at, &count, data + 4, (uLong)(size - 4), data[0] >> 4) != Z_OK) count = 0;
        if (count) stream.at[0] = 0x78, stream.at[1] = 0x01; /* as most writers, whatever the window */
        stream.count = count;
    }
    png->count = 0;
    put(png, "\x89PNG\r\n\x1A\n", 8);
    put_chunk(png, "IHDR", header, sizeof header);
    for (size_t i = 0; i < stream.count; i += chunk)
        put_chunk(png, "IDAT", stream.at + i, stream.count - i < chunk ? stream.count - i : chunk);
    put_chunk(png, "IEND", NULL, 0);
}

/* By libpng alone. */
static bool reference(const bytes *file, int channels, uint8_t *pixels) {
    static const png_uint_32 formats[4] = {PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};
    png_image image = {.version = PNG_IMAGE_VERSION};
    if (!png_image_begin_read_from_memory(&image, file->at, file->count)) return false;
    image.format = formats[channels - 1];
    bool read = png_image_finish_read(&image, NULL, pixels, 0, NULL);
    png_image_free(&image);
    return read;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bytes file;
    static uint8_t expected[MAX_ROWS];
    if (size < 5 || size > MOST) return 0;
    make_png(data, size, &file);
    ist_bitmap b;
    bool read = !ist_bitmap_decode(file.at, file.count, "fuzz", 1 << 16, &b, NULL);
    if (reference(&file, data[0] % 4 + 1, expected)) {
        if (!read || memcmp(b.pixels, expected, b.stride * (size_t)b.height)) abort();
    } else if (read) {
        memcpy(expected, b.pixels, b.stride * (size_t)b.height); /* for the address sanitizer to see */
    }
    ist_bitmap_free(&b);
    return 0;
}
