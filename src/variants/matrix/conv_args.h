/* What matrix/conv takes by value. */
#ifndef IST_VARIANTS_MATRIX_CONV_ARGS_H
#define IST_VARIANTS_MATRIX_CONV_ARGS_H

#include "variants/conv_args.h"
#include "variants/divider_args.h"

typedef struct ist_conv_matrix_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
    int tap_chunks;                   /* chunks of eight inputs of a tap */
    int blocks, steps;                /* fragments along the channels, steps of BK inputs */
    ist_divider by_w, by_h;           /* of the output */
    ist_divider by_tap_chunks, by_kw; /* and taps of a line of the window */
} ist_conv_matrix_args;

#endif
