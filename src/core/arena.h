/* Places buffers with known lifetimes in one block of memory. Pure C: no OpenCL, no allocation beyond a scratch array.
 *
 * A span is alive on steps [first, last]; two spans whose lives overlap get disjoint bytes. Offsets are multiples of
 * `align`. Greedy by size, largest first, each at the lowest gap that fits (Pisarchyk & Lee, arXiv 2001.03288). */
#ifndef IST_CORE_ARENA_H
#define IST_CORE_ARENA_H

#include "base/status.h"

#include <stddef.h>

typedef struct ist_span {
    size_t bytes;
    int first, last;  /* steps, inclusive; first <= last */
    size_t offset;    /* result */
} ist_span;

typedef struct ist_arena_size {
    size_t peak;         /* bytes of the block */
    size_t lower_bound;  /* most aligned bytes alive on one step: no placement needs less */
} ist_arena_size;

/* Fills in every offset. `align` is a power of two. IST_E_LIMIT when the sum does not fit size_t. */
ist_status ist_arena_place(ist_span *spans, int count, size_t align, ist_arena_size *size, ist_error *err);

#endif
