/* Weights in the order in which matrix instructions take them (cl/nvidia/ptx.cl). */
#ifndef IST_VARIANTS_FRAGMENTS_H
#define IST_VARIANTS_FRAGMENTS_H

#include <stdbool.h>
#include <stddef.h>

/* Fragments b of `tiles` blocks of eight columns and 32 rows to `to` [tiles][32 lanes][8], a work-item's eight values
 * together: rows 8 t to 8 t + 7 (`in_a_row`), or those that two instructions want. Element (row, column) is
 * w[row * rows_apart + column * columns_apart]. Returns what follows. */
static inline float *ist_fragments(const float *w, int tiles, size_t rows_apart, size_t columns_apart, bool in_a_row,
                                   float *to) {
    for (int tile = 0; tile < tiles; tile++)
        for (int lane = 0; lane < 32; lane++)
            for (int e = 0; e < 8; e++) {
                int t = lane % 4, row = in_a_row ? t * 8 + e : e / 2 * 8 + t * 2 + e % 2;
                *to++ = w[(size_t)row * rows_apart + (size_t)(tile * 8 + lane / 4) * columns_apart];
            }
    return to;
}

/* Which channel stands at place `k` along a sum, where a work-item of four reads eight of 32 channels in a row and
 * takes them as fragments of A; and in column `k` of a result, where it is to have eight in a row. Its own inverse. */
static inline int ist_place_channel(int k) {
    return k / 32 * 32 + k % 8 / 2 * 8 + k / 8 % 4 * 2 + k % 2;
}
/* Where a tile of cl/nvidia/wgmma.cl, in rows of 64 along the sum, has an element. */
static inline int ist_group_tile_at(int row, int k) {
    return row * 64 + (k / 8 ^ (row & 7)) * 8 + k % 8;
}
/* The same in rows of `width`, at most 64: parts of narrower ones keep their places. */
static inline int ist_group_part_at(int row, int k, int width) {
    return width < 64 ? row * width + k : ist_group_tile_at(row, k);
}

#endif
