/* What nvidia/separable takes by value. */
#ifndef IST_VARIANTS_NVIDIA_SEPARABLE_ARGS_H
#define IST_VARIANTS_NVIDIA_SEPARABLE_ARGS_H

typedef struct ist_separable_args {
    int x_h, x_w, x_ld, x_c0, x_c;   /* input: pixels, elements per pixel, first channel, channels */
    int top, left;                   /* padding above and to the left of it */
    int items, y_h, y_w, y_ld, y_c0; /* output */
    int steps, blocks;               /* of BK inputs; of 8 channels between the two convolutions */
    int across;                      /* tiles of a line */
    int has_lab;                     /* whether there is a learnable affine block, and which */
    float lab_scale, lab_bias;
} ist_separable_args;

#endif
