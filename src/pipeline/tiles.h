/* Images in tiles: where the tiles are and their part of the upload; tiled.c enqueues what a frame does for them.
 *
 * The upload's image blocks are those of the tiles, the first of which is the whole image. The encoder takes one at a
 * time: for every other tile there is an upload of its own within the upload, a header and one block. The detector
 * takes the whole image, then groups of the others: for each group there is one with a block for each of its tiles; of
 * groups of one it is the tile's own. Since all tiles are of one size, their tap tables are the same and lie once
 * behind these. */
#ifndef IST_PIPELINE_TILES_H
#define IST_PIPELINE_TILES_H

#include "graph/tiled.h"
#include "variants/upload.h"

/* In pixels, and in words of an upload. */
typedef struct ist_tile_layout {
    int tiles; /* with the whole image; 1: there is no other */
    int columns, rows;
    int width, height; /* of a tile */
    int image_width, image_height, step_x, step_y;
    int each;                          /* of a group, */
    int groups;                        /* of which there are so many */
    size_t at, step;                   /* uploads of tiles but the first */
    size_t group_at, group_step;       /* uploads of groups */
    size_t det_x, det_y, seg_x, seg_y; /* tables */
    size_t end;
} ist_tile_layout;

/* IST_E_ARGUMENT with a sentence when a parameter is out of range. */
ist_status ist_tiles_check(const ist_tiles *tiles, ist_error *err);

/* Where tiles are in an image; IST_E_LIMIT when there are too many. */
ist_status ist_tiles_of(const ist_tiles *tiles, int width, int height, ist_tile_layout *layout, ist_error *err);

/* Left and top of tile i, 1 to tiles - 1. */
void ist_tile_place(const ist_tile_layout *layout, int i, int *x, int *y);

/* How many tiles are in a group, and which is the first of them. */
int ist_tiles_group(const ist_tile_layout *layout, int group, int *first);

/* Places from word `at` on; where they end. `alignment`: of what a window of a buffer may begin at, bytes. `side`: of
 * the segmenter's input; 0: none. */
size_t ist_tiles_lay_out(ist_tile_layout *layout, int det_width, int det_height, int side, size_t alignment, size_t at);

/* Blocks and uploads of tiles; `image` is the whole image's block. Tables only where `tables`. */
void ist_tiles_fill(uint32_t *upload, const ist_tile_layout *layout, const ist_frame_image *image, int det_width,
                    int det_height, ist_resize_order order, bool whole, bool tables);

#endif
