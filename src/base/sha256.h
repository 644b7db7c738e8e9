/* SHA-256 (FIPS 180-4), of memory and of files. */
#ifndef IST_BASE_SHA256_H
#define IST_BASE_SHA256_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct ist_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
    void (*mix)(uint32_t state[8], const uint8_t *blocks, size_t count);
} ist_sha256;

/* A digest in lower case hexadecimal digits, terminated. */
enum { IST_SHA256_TEXT = 65 };

void ist_sha256_start(ist_sha256 *sum);
/* The same without the CPU's instructions for it, several times slower: what tests compare with. */
void ist_sha256_start_plain(ist_sha256 *sum);
void ist_sha256_add(ist_sha256 *sum, const void *bytes, size_t size);
void ist_sha256_end(ist_sha256 *sum, char text[IST_SHA256_TEXT]);

/* Of what `file` holds from where it stands to its end; sentences without a path. */
ist_status ist_sha256_stream(FILE *file, char text[IST_SHA256_TEXT], ist_error *err);
/* Of a file; sentences start with the path. */
ist_status ist_sha256_file(const char *path, char text[IST_SHA256_TEXT], ist_error *err);

#endif
