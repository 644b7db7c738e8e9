/* A file that is deflated from some place on, as if it were not: bytes are read where they are wanted, in order
 * fastest. Memory does not grow with what there is of them. */
#ifndef IST_IO_INFLATED_H
#define IST_IO_INFLATED_H

#include "io/byte_source.h"

typedef struct ist_inflated ist_inflated;

/* A source of the bytes before `begin` of `file`, which must stay, and of those that the raw deflate stream there
 * holds. It is inflated once to know how many these are: IST_E_LIMIT beyond `most`, IST_E_INPUT when it is damaged or
 * cut. `name` is for sentences. ist_byte_source_close frees it. */
ist_status ist_inflated_open(const ist_byte_source *file, uint64_t begin, uint64_t most, const char *name,
                             ist_byte_source *source, ist_error *err);

/* As ist_byte_source_read, which calls it. */
size_t ist_inflated_read(ist_inflated *inflated, uint64_t at, void *to, size_t count);
void ist_inflated_free(ist_inflated *inflated);

#endif
