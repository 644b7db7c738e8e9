/* zlib streams by whichever library there is: see flate.h. */
#include "io/flate.h"

#ifdef ISTHMUS_LIBDEFLATE

#include <libdeflate.h>

enum { QUICK = 1 };

bool ist_inflate(const void *from, size_t count, void *to, size_t size) {
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    size_t read = 0, written = 0;
    bool good = d && libdeflate_zlib_decompress_ex(d, from, count, to, size, &read, &written) == LIBDEFLATE_SUCCESS;
    libdeflate_free_decompressor(d);
    return good && read == count && written == size;
}

size_t ist_deflate_search(const void *from, size_t count, void *to, size_t room) {
    struct libdeflate_compressor *c = libdeflate_alloc_compressor(QUICK);
    size_t size = c ? libdeflate_zlib_compress(c, from, count, to, room) : 0;
    libdeflate_free_compressor(c);
    return size;
}

uint32_t ist_crc32(uint32_t crc, const void *bytes, size_t count) {
    return libdeflate_crc32(crc, bytes, count);
}

uint32_t ist_adler32(uint32_t adler, const void *bytes, size_t count) {
    return libdeflate_adler32(adler, bytes, count);
}

#else

#include <limits.h>
#include <zlib.h>

enum { QUICK = 1 };

bool ist_inflate(const void *from, size_t count, void *to, size_t size) {
    z_stream z = {.next_in = (z_const Bytef *)from, .avail_in = (uInt)count, .next_out = to, .avail_out = (uInt)size};
    if (count > UINT_MAX || size > UINT_MAX || inflateInit(&z) != Z_OK) return false;
    bool good = inflate(&z, Z_FINISH) == Z_STREAM_END && !z.avail_in && !z.avail_out;
    inflateEnd(&z);
    return good;
}

size_t ist_deflate_search(const void *from, size_t count, void *to, size_t room) {
    z_stream z = {.next_in = (z_const Bytef *)from, .avail_in = (uInt)count, .next_out = to, .avail_out = (uInt)room};
    if (count > UINT_MAX || room > UINT_MAX) return 0;
    if (deflateInit2(&z, QUICK, Z_DEFLATED, MAX_WBITS, MAX_MEM_LEVEL, Z_FILTERED) != Z_OK) return 0;
    size_t size = deflate(&z, Z_FINISH) == Z_STREAM_END ? z.total_out : 0;
    deflateEnd(&z);
    return size;
}

uint32_t ist_crc32(uint32_t crc, const void *bytes, size_t count) {
    return (uint32_t)crc32_z(crc, bytes, count);
}

uint32_t ist_adler32(uint32_t adler, const void *bytes, size_t count) {
    return (uint32_t)adler32_z(adler, bytes, count);
}

#endif
