/* Places buffers with known lifetimes in one block of memory. Pure C: no OpenCL, no allocation beyond scratch arrays.
 *
 * A span is alive on steps [first, last]; one that a step of the one of two simultaneous groups uses is also alive with
 * all that the other group uses. The block is cut into regions; a region holds one span at a time, so spans whose lives
 * overlap get disjoint bytes, and two regions never share any. Regions rather than free offsets, since a driver may
 * track the overlaps of sub-buffers: with hundreds of overlapping ones a launch on a GPU cost over ten times as much.
 * Greedy by size, largest first, each in the region that is free and needs it least, else in a new one of its
 * size ("shared objects", Pisarchyk & Lee, arXiv 2001.03288). */
#ifndef IST_CORE_ARENA_H
#define IST_CORE_ARENA_H

#include "base/status.h"

#include <stddef.h>

typedef struct ist_span {
    size_t bytes;
    int first, last; /* steps, inclusive; first <= last */
    unsigned sides;  /* of two groups of steps that run at the same time: 1: the first has some of its, 2: the second */
    int region;      /* result: its region */
} ist_span;

/* Bytes [offset, offset + bytes) of the block; offset and bytes are multiples of the alignment. */
typedef struct ist_region {
    size_t offset, bytes;
} ist_region;

typedef struct ist_arena_size {
    size_t peak;        /* bytes of the block */
    size_t lower_bound; /* most aligned bytes alive on one step, as if all ran in turn: no placement needs less */
} ist_arena_size;

/* Fills in every span's region and `regions` (room for `count`), and their number. `align` is a power of two.
 * IST_E_LIMIT when the sum of the sizes does not fit size_t. */
ist_status ist_arena_place(ist_span *spans, int count, size_t align, ist_region *regions, int *region_count,
                           ist_arena_size *size, ist_error *err);

#endif
