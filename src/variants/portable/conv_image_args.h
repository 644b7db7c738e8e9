/* What cl/portable/conv_image takes by value. */
#ifndef IST_VARIANTS_PORTABLE_CONV_IMAGE_ARGS_H
#define IST_VARIANTS_PORTABLE_CONV_IMAGE_ARGS_H

#include "variants/conv_args.h"
#include "variants/padding_reuse_args.h"

typedef struct ist_conv_image_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
    ist_padding_reuse_args in, out; /* rows of the input and of the output that are left out */
} ist_conv_image_args;

#endif
