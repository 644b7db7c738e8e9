/* What cpu/dwconv takes by value. */
#ifndef IST_VARIANTS_CPU_DWCONV_ARGS_H
#define IST_VARIANTS_CPU_DWCONV_ARGS_H

#include "variants/conv_args.h"

typedef struct ist_dwconv_ring_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
    int cols, rows, blocks; /* of an item of work: columns and lines of results, blocks of 16 channels */
    int segments;           /* of cols columns of a line */
    int backwards;          /* items are taken from the last */
} ist_dwconv_ring_args;

#endif
