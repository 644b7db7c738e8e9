/* What portable/dwconv_strip and portable/dwconv_group take by value. */
#ifndef IST_VARIANTS_DWCONV_ARGS_H
#define IST_VARIANTS_DWCONV_ARGS_H

#include "variants/conv_args.h"
#include "variants/padding_reuse_args.h"

typedef struct ist_dwconv_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
    int blocks;        /* vectors of VL channels of a pixel */
    int strips, bands; /* of a map: strips of COLS pixels of a line; bands of ROWS lines (portable/dwconv_strip) */
    ist_padding_reuse_args in, out; /* rows of the input and of the output that are left out */
    float norm_eps;                 /* NORM_LANES */
} ist_dwconv_args;

#endif
