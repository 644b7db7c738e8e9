/* Kernels for stages of one shape. */
#ifndef IST_VARIANTS_NVIDIA_STAGE_H
#define IST_VARIANTS_NVIDIA_STAGE_H

#include <stdbool.h>

typedef struct ist_stage_shape {
    int in, deep, mix, out; /* channels */
} ist_stage_shape;

/* The configuration of a variant. */
typedef struct ist_stage_kernel {
    ist_stage_shape shape;
    const char *op;
    int tile;           /* side of a group's part of the downsampled map */
    int parts;          /* warps that share a sum of a 3x3 layer: what the channels are divided by */
    int groups_of_unit; /* with more, what they compute twice costs more than the launches that they save */
    bool whole;         /* can store the stage's own result */
} ist_stage_kernel;
extern const ist_stage_kernel ist_stage_first, ist_stage_second;

#endif
