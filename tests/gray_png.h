/* A PNG without the help of the code under test: gray, stored blocks, one filter byte per row. Header only. */
#ifndef GRAY_PNG_H
#define GRAY_PNG_H

#include "scratch.h"

#include <stdint.h>

static inline uint32_t crc_of(const uint8_t *p, size_t n) {
    uint32_t c = UINT32_MAX;
    while (n--) {
        c ^= *p++;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
    }
    return ~c;
}

static inline void put_u32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static inline size_t put_chunk(uint8_t *at, const char *type, const uint8_t *data, size_t n) {
    put_u32(at, (uint32_t)n);
    memcpy(at + 4, type, 4);
    if (n) memcpy(at + 8, data, n);
    put_u32(at + 8 + n, crc_of(at + 4, n + 4));
    return n + 12;
}

static inline void write_png(const char *path, int width, int height) {
    static uint8_t file[70000], raw[66000], header[13];
    size_t n = (size_t)height * (size_t)(width + 1), at = 8;
    cr_assert_leq(n, 65535);
    memcpy(file, "\x89PNG\r\n\x1A\n", 8);
    put_u32(header, (uint32_t)width);
    put_u32(header + 4, (uint32_t)height);
    header[8] = 8;
    at += put_chunk(file + at, "IHDR", header, 13);
    const uint8_t head[7] = {0x78, 1, 1, (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)~n, (uint8_t)(~n >> 8)};
    uint32_t a = 1, b = 0;
    memcpy(raw, head, 7);
    for (size_t i = 0; i < n; i++) {
        raw[7 + i] = i % (size_t)(width + 1) ? (uint8_t)(i * 7) : 0;
        a = (a + raw[7 + i]) % 65521;
        b = (b + a) % 65521;
    }
    put_u32(raw + 7 + n, b << 16 | a);
    at += put_chunk(file + at, "IDAT", raw, n + 11);
    at += put_chunk(file + at, "IEND", NULL, 0);
    scratch_write(path, file, at);
}

#endif
