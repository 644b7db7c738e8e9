/* What cl/portable/winograd takes by value. */
#ifndef IST_VARIANTS_PORTABLE_WINOGRAD_ARGS_H
#define IST_VARIANTS_PORTABLE_WINOGRAD_ARGS_H

#include "variants/conv_args.h"

typedef struct ist_winograd_map_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
    int down, across; /* tiles of 4x4 results of a map */
    int width;        /* channels of a tile's products */
} ist_winograd_map_args;

#endif
