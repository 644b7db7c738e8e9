/* What kernels of the convolution family take by value: the extents and the epilogue that all of them need, and all of
 * what the portable ones need. Other kernels' structs nest shape and epilogue beside their tiles. */
#ifndef IST_VARIANTS_CONV_ARGS_H
#define IST_VARIANTS_CONV_ARGS_H

#include "variants/epilogue_args.h"

typedef struct ist_conv_shape {
    int x_h, x_w, x_ld, x_c0, x_c;        /* input: pixels, elements per pixel, first channel, channels */
    int kh, kw, stride, top, left;        /* window; padding above and to the left of the input */
    int items, y_h, y_w, y_ld, y_c0, y_c; /* output */
} ist_conv_shape;

/* portable/conv_any, portable/conv_few, portable/dwconv_any. */
typedef struct ist_conv_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
} ist_conv_args;

#endif
