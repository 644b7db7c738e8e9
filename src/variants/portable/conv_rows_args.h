/* What cl/portable/conv_rows takes by value. */
#ifndef IST_VARIANTS_PORTABLE_CONV_ROWS_ARGS_H
#define IST_VARIANTS_PORTABLE_CONV_ROWS_ARGS_H

#include "variants/conv_args.h"

typedef struct ist_conv_rows_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
} ist_conv_rows_args;

#endif
