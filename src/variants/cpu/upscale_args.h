/* What the CPU's kernels of SAM's mask upscaling take by value. */
#ifndef IST_VARIANTS_CPU_UPSCALE_ARGS_H
#define IST_VARIANTS_CPU_UPSCALE_ARGS_H

#include "variants/upscale_args.h"

/* Prompts that share the first convolution of their image (ist_upscale_sharing). */
typedef struct ist_upscale_shared_args {
    int value_columns, noted_columns;     /* of an update, 0 without sharing; of how many the weight is noted: that of
                                             the others is one */
    int image_length, image_ld, image_c0; /* rows of an image, floats from row to row, first channel */
} ist_upscale_shared_args;

typedef struct ist_cpu_upscale_args {
    ist_upscale_args common;
    int group_pixels; /* tokens of the image that a group takes */
    int x_c;
    ist_upscale_shared_args sharing;
} ist_cpu_upscale_args;

#endif
