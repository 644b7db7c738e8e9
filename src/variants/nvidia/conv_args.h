/* What the convolutions on PTX take by value; their buffers are the same (ist_conv_record). Groups of the same pixels
 * follow each other: group number = row tile * col_tiles + column tile. */
#ifndef IST_VARIANTS_NVIDIA_CONV_ARGS_H
#define IST_VARIANTS_NVIDIA_CONV_ARGS_H

#include "variants/conv_args.h"
#include "variants/divider_args.h"
#include "variants/padding_reuse_args.h"

/* nvidia/conv_mma. */
typedef struct ist_conv_mma_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
    float norm_eps; /* NORM */
    int col_tiles;
    ist_divider by_col_tiles;
    ist_divider by_w, by_h;   /* of the output; SQUARE: squares_x, squares_y */
    ist_divider by_inner;     /* what runs inside: chunks of a tap; GATHER: channels; BLOCKED: taps */
    ist_divider by_kw;        /* taps of a line of the window */
    int tap_chunks;           /* chunks of eight inputs of a tap */
    int squares_x, squares_y; /* SQUARE: tiles of a line and of a column */
    int blocks, steps;        /* of 16 channels; of BK inputs */
    int splits, split_steps;  /* splits of a tile, steps of each */
} ist_conv_mma_args;

/* nvidia/conv_wgmma. */
typedef struct ist_conv_wgmma_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
    int col_tiles;
    ist_divider by_col_tiles;
    ist_divider by_w, by_h;     /* of the output */
    ist_divider by_taps, by_kw; /* taps of the window, of a line of it */
    int blocks, steps;          /* of 16 channels; of 64 inputs */
    int squares_x, squares;     /* PATCHES: squares of a line, of an image */
    ist_divider by_squares_x, by_squares;
    ist_padding_reuse_args out; /* LEFT_OUT: rows of the output that are not made */
} ist_conv_wgmma_args;

/* nvidia/conv_persistent. */
typedef struct ist_conv_persistent_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
    int col_tiles;
    ist_divider by_col_tiles;
    ist_divider by_w, by_h; /* of the output; TAPS 9: squares_x, squares */
    int blocks, steps;      /* of 16 channels; of 64 inputs */
    int squares_x, squares; /* TAPS 9: squares of a line, of an image */
    int turns;              /* tiles of a group */
} ist_conv_persistent_args;

/* nvidia/conv_resident. */
typedef struct ist_conv_resident_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
    int col_tiles;
    ist_divider by_col_tiles;
    int squares_x, squares; /* TAPS 9: squares of a line, of an image */
    ist_divider by_squares_x, by_squares;
    int blocks; /* of 16 channels */
    int turns;  /* tiles of a warpgroup */
    ist_padding_reuse_args out; /* LEFT_OUT: rows of the output that are not made */
} ist_conv_resident_args;

/* nvidia/conv_direct. */
typedef struct ist_conv_direct_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
    ist_divider by_w, by_h; /* of the output */
    int turns, warps;       /* tiles of a warp, warps of the launch */
    int pool_ld, pool_c0;   /* POOL: elements per pixel, first channel */
} ist_conv_direct_args;

#endif
