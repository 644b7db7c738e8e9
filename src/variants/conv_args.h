/* What kernels of the convolution family take by value: the extents that all of them need. A machine's kernels nest it
 * in a struct of their own, beside their tiles. */
#ifndef IST_VARIANTS_CONV_ARGS_H
#define IST_VARIANTS_CONV_ARGS_H

typedef struct ist_conv_shape {
    int x_h, x_w, x_ld, x_c0, x_c;        /* input: pixels, elements per pixel, first channel, channels */
    int kh, kw, stride, top, left;        /* window; padding above and to the left of the input */
    int items, y_h, y_w, y_ld, y_c0, y_c; /* output */
} ist_conv_shape;

#endif
