/* What cl/nvidia/norm_mlp_mma, cl/nvidia/norm_mlp_wgmma and cl/nvidia/norm_mlp_wide take by value. */
#ifndef IST_VARIANTS_NVIDIA_NORM_MLP_ARGS_H
#define IST_VARIANTS_NVIDIA_NORM_MLP_ARGS_H

#include "variants/padding_reuse_args.h"

typedef struct ist_norm_mlp_mma_args {
    int x_ld, x_c0, y_ld, y_c0; /* elements from a row to the next, first channels */
    int items, rows;            /* items, rows of each */
    int h, w;                   /* the map's, for the depthwise convolution */
    float eps;
    int r_ld, r_c0;                 /* of the residual, where a linear layer stands in front */
    ist_padding_reuse_args in, out; /* rows that are left out, of what is read and of the result */
} ist_norm_mlp_mma_args;

#endif
