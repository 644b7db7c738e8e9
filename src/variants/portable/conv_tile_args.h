/* What cl/portable/conv_tile takes by value. */
#ifndef IST_VARIANTS_PORTABLE_CONV_TILE_ARGS_H
#define IST_VARIANTS_PORTABLE_CONV_TILE_ARGS_H

#include "variants/conv_args.h"

typedef struct ist_conv_tile_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
    int col_tiles;           /* groups of the same pixels */
    int splits, split_steps; /* of a sum, and BK input channels of a tap at most in each */
} ist_conv_tile_args;

#endif
