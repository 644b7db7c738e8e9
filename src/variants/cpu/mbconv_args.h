/* What cl/cpu/mbconv and cl/cpu/mbconv_amx take by value. */
#ifndef IST_VARIANTS_CPU_MBCONV_ARGS_H
#define IST_VARIANTS_CPU_MBCONV_ARGS_H

#include "variants/padding_reuse_args.h"

typedef struct ist_cpu_mbconv_args {
    int x_h, x_w, x_ld, x_c0;        /* input: pixels, elements from a pixel to the next, first channel */
    int items, y_h, y_w, y_ld, y_c0; /* result */
    int residual;                    /* whether x is added */
    int line_pixels;                 /* of the expanded map that a segment sees */
    int segment_w, segments;         /* columns of a segment, segments of a row */
    int bands, pieces;               /* bands of rows of an item; bands of segments of it */
    int backwards;                   /* whether pieces are taken from the last one on */
    ist_padding_reuse_args same;
} ist_cpu_mbconv_args;

typedef struct ist_mbconv_amx_args {
    ist_cpu_mbconv_args common;
    int x_c, hidden, y_c; /* channels, multiples of 32 */
    int stride, act;      /* of the depthwise filter; ACT_*, of the result */
} ist_mbconv_amx_args;

#endif
