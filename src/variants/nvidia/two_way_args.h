/* What the kernels of two-way attention on PTX matrix instructions take by value. */
#ifndef IST_VARIANTS_NVIDIA_TWO_WAY_ARGS_H
#define IST_VARIANTS_NVIDIA_TWO_WAY_ARGS_H

#include "variants/two_way_args.h"

typedef struct ist_nvidia_image_step_args {
    ist_image_side_args image;
    int shifted;             /* the image has a shift */
    int groups, part_floats; /* parts of the image, floats of what is read of one */
    int read_columns;        /* 8 tokens */
    float eps;               /* of the update's norm */
} ist_nvidia_image_step_args;

/* Rows of an image whose keys and values are made (cl/nvidia/image_rows). */
typedef struct ist_image_rows_args {
    int all_rows, length; /* of all items, of one */
    int x_ld, x_c0;
} ist_image_rows_args;

#endif
