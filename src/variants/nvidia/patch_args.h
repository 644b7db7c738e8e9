/* What cl/nvidia/patch takes by value. */
#ifndef IST_VARIANTS_NVIDIA_PATCH_ARGS_H
#define IST_VARIANTS_NVIDIA_PATCH_ARGS_H

#include "variants/padding_reuse_args.h"

typedef struct ist_patch_mma_args {
    int x_h, x_w, x_ld, x_c0; /* image: pixels, elements from a pixel to the next, first channel */
    int mid_h, mid_w;         /* the map between the convolutions */
    int y_h, y_w, y_ld, y_c0; /* result */
    int across;               /* groups of a line of tiles */
    ist_padding_reuse_args out; /* rows of the result that are left out */
} ist_patch_mma_args;

#endif
