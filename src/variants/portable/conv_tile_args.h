/* What cl/portable/conv_tile and conv_sum take by value. */
#ifndef IST_VARIANTS_PORTABLE_CONV_TILE_ARGS_H
#define IST_VARIANTS_PORTABLE_CONV_TILE_ARGS_H

#include "variants/conv_args.h"
#include "variants/divider_args.h"
#include "variants/padding_reuse_args.h"

typedef struct ist_conv_tile_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
    int col_tiles;   /* groups of the same pixels */
    int split_steps; /* of BK input channels of a tap, at most, in a part of the sum */
    ist_divider by_col_tiles;
    ist_divider by_w, by_h;          /* of the output */
    ist_divider by_kw, by_tap_steps; /* taps of a line of the window; steps of a tap */
    ist_padding_reuse_args in, out; /* rows of the input and of the output that are left out */
    float norm_eps;                 /* NORM */
} ist_conv_tile_args;

typedef struct ist_conv_sum_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
    int splits, width; /* parts of the sum; channels of a pixel in each */
    ist_padding_reuse_args out;
} ist_conv_sum_args;

#endif
