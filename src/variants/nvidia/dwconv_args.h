/* What nvidia/dwconv_tile takes by value. */
#ifndef IST_VARIANTS_NVIDIA_DWCONV_ARGS_H
#define IST_VARIANTS_NVIDIA_DWCONV_ARGS_H

#include "variants/conv_args.h"

typedef struct ist_dwconv_tile_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
    int blocks; /* of 64 channels */
    int strips; /* of COLS * ACROSS columns */
    int steps;  /* of ROWS lines that a group makes */
} ist_dwconv_tile_args;

#endif
