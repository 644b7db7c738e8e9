/* zlib streams in one piece, and the two checksums: libdeflate's where the build found it, two to three times as fast,
 * else zlib's. */
#ifndef IST_IO_FLATE_H
#define IST_IO_FLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether `count` bytes are exactly one zlib stream, whose checksum holds, of exactly `size` bytes, which are then in
 * `to`. False when out of memory, too. */
bool ist_inflate(const void *from, size_t count, void *to, size_t size);

/* A zlib stream with a quick search for repetitions; its bytes, 0 when they are more than `room` or memory is out. */
size_t ist_deflate_search(const void *from, size_t count, void *to, size_t room);

/* zlib's crc32 and adler32 over any number of bytes; begin with 0 and 1. */
uint32_t ist_crc32(uint32_t crc, const void *bytes, size_t count);
uint32_t ist_adler32(uint32_t adler, const void *bytes, size_t count);

#endif
