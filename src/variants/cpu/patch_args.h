/* What cl/cpu/patch takes by value. */
#ifndef IST_VARIANTS_CPU_PATCH_ARGS_H
#define IST_VARIANTS_CPU_PATCH_ARGS_H

#include "variants/padding_reuse_args.h"

typedef struct ist_cpu_patch_args {
    int x_h, x_w, mid_h, mid_w;      /* the image, which is dense; the map between the convolutions */
    int items, y_h, y_w, y_ld, y_c0; /* images; the result: pixels, elements per pixel, first channel */
    int pairs;                       /* of lines of an image's result */
    int group_room, line_room;       /* floats of scratch of a group, of a line of the image in it */
    ist_padding_reuse_args same;
} ist_cpu_patch_args;

#endif
