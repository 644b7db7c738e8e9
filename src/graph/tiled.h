/* What tiles of an image know of each other: one buffer on the device, of 32-bit words.
 *
 * The detector takes tile by tile; what it finds in each is appended, in pixels of the image. When all have been, NMS over
 * all of it writes which stay, best first. Kernels get the numbers of this file as macros without IST_ (codes/tiled). */
#ifndef IST_GRAPH_TILED_H
#define IST_GRAPH_TILED_H

enum ist_tiled_word {
    IST_TL_COUNT = 0,   /* detections so far, at most IST_TL_CAPACITY */
    IST_TL_DROPPED = 1, /* those that had no room */
    IST_TL_KEPT = 2,    /* that stay */
    IST_TL_HEADER = 16, /* then detections, rows as of IST_NODE_DETECT whose last word is the tile, then a list of those
                         * that stay */
    IST_TL_CAPACITY = 4096
};

enum { IST_TILED_WORDS = IST_TL_HEADER + IST_TL_CAPACITY * (8 + 1) };

/* Most tiles of an image, the whole one among them. */
enum { IST_TILES_MAX = 1024 };

/* What ends within this part of a tile's side of its border ends there. */
enum ist_tile_border { IST_TL_BORDER = 64 };

#endif
