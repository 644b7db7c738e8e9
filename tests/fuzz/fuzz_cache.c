/* libFuzzer: any bytes as a file of the kernel cache, which is also what keeps the probes' results. With an odd first
 * byte the rest is content behind a header that fits it, but for one byte that the second and third choose. */
#include "device/state.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ist_cache_key key = {{0x1122334455667788, 0x99aabbccddeeff00}};

enum { HEADER = 48 };

/* The header of cache.c, and the content. */
static uint8_t *with_header(const uint8_t *data, size_t size) {
    uint64_t words[4] = {key.hash[0], key.hash[1], size, ist_fnv(IST_FNV_OFFSET, data, size)};
    uint8_t *file = malloc(HEADER + size);
    if (!file) return NULL;
    memcpy(file, "isthmus kernel 2", 16);
    memcpy(file + 16, words, sizeof words);
    memcpy(file + HEADER, data, size);
    return file;
}

static void read_file(uint8_t *file, size_t size, bool sound) {
    size_t bytes = 0;
    FILE *stream = size ? fmemopen(file, size, "rb") : NULL;
    if (!stream) return;
    unsigned char *content = ist_cache_read_stream(stream, key, &bytes);
    fclose(stream);
    if (content ? size - HEADER != bytes || memcmp(content, file + HEADER, bytes) : sound) abort();
    free(content);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 5 || data[0] % 2 == 0) {
        read_file((uint8_t *)data + (size > 0), size ? size - 1 : 0, false);
        return 0;
    }
    uint8_t *file = with_header(data + 4, size - 4);
    if (!file) return 0;
    read_file(file, HEADER + size - 4, true);
    file[(data[1] << 8 | data[2]) % (HEADER + size - 4)] ^= data[3];
    read_file(file, HEADER + size - 4, !data[3]);
    free(file);
    return 0;
}
