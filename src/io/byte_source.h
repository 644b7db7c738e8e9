/* Bytes that are read where they are wanted: a file, one that is in memory, or one that is inflated (inflated.h). */
#ifndef IST_IO_BYTE_SOURCE_H
#define IST_IO_BYTE_SOURCE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct ist_byte_source {
    int fd;                        /* owned; -1: the bytes are in memory, */
    const uint8_t *bytes;          /* the caller's; */
    struct ist_inflated *inflated; /* or NULL: owned */
    uint64_t size;
} ist_byte_source;

/* Opens a regular file. */
ist_status ist_byte_source_open(const char *path, ist_byte_source *source, ist_error *err);

/* One of bytes in memory. */
ist_byte_source ist_byte_source_of(const void *bytes, size_t count);

/* Copies up to `count` bytes from offset `at`; how many there were. A file that shrinks has fewer. */
size_t ist_byte_source_read(const ist_byte_source *source, uint64_t at, void *to, size_t count);

void ist_byte_source_close(ist_byte_source *source);

#endif
