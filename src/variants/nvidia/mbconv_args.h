/* What cl/nvidia/mbconv takes by value. */
#ifndef IST_VARIANTS_NVIDIA_MBCONV_ARGS_H
#define IST_VARIANTS_NVIDIA_MBCONV_ARGS_H

#include "variants/padding_reuse_args.h"

typedef struct ist_mbconv_wgmma_args {
    int u_h, u_w, u_ld, u_c0; /* the expanded map: pixels, elements from a pixel to the next, first channel */
    int x_ld, x_c0;           /* the residual, which has the result's extents */
    int y_h, y_w, y_ld, y_c0; /* result */
    int across;               /* groups of a line of tiles */
    ist_padding_reuse_args in, out; /* rows that are left out, of what is read and of the result */
} ist_mbconv_wgmma_args;

#endif
