/* SHA-256 (FIPS 180-4), of memory and of files, and the lists that sha256sum writes. */
#ifndef IST_IO_SHA256_H
#define IST_IO_SHA256_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ist_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
} ist_sha256;

/* A digest in lower case hexadecimal digits, terminated. */
enum { IST_SHA256_TEXT = 65 };

void ist_sha256_start(ist_sha256 *sum);
void ist_sha256_add(ist_sha256 *sum, const void *bytes, size_t size);
void ist_sha256_end(ist_sha256 *sum, char text[IST_SHA256_TEXT]);

/* Of a file; sentences start with the path. */
ist_status ist_sha256_file(const char *path, char text[IST_SHA256_TEXT], ist_error *err);

/* Looks for the file's name in SHA256SUMS in the same folder. Where it is listed, *listed is true and a digest that
 * differs from `text` (NULL: computed here) is IST_E_WEIGHTS. No such file, or no such line, is fine. */
ist_status ist_sha256_check(const char *path, const char *text, bool *listed, ist_error *err);

#endif
