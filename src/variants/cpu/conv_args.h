/* What the convolutions of CPUs take by value. */
#ifndef IST_VARIANTS_CPU_CONV_ARGS_H
#define IST_VARIANTS_CPU_CONV_ARGS_H

#include "variants/conv_args.h"

/* cpu/conv. */
typedef struct ist_conv_panels_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
    int row_tiles, col_tiles; /* of an item of work */
    int by_columns;           /* items of the same columns follow each other, else those of the same pixels */
    int backwards;            /* items are taken from the last */
} ist_conv_panels_args;

/* cpu/conv_bf16, cpu/conv_amx: what windows see lies in scratch (cpu/conv_lines). */
typedef struct ist_conv_lines_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
    int is_linear;          /* a linear layer: all pixels are one map, whose lines are single pixels */
    int pitch;              /* pixels of a line in scratch */
    int pixel_pairs;        /* bfloat16 pairs of a pixel in scratch (cpu/conv_bf16) */
    int part_pixels, depth; /* pixels of a part in scratch, steps of inputs of a slice (cpu/conv_amx) */
    int lines, col_tiles;   /* of an item of work */
    int by_columns;         /* items of the same columns follow each other, else those of the same lines */
    int backwards;          /* items are taken from the last */
    int streams;            /* weights do not stay in the second-level cache (cpu/conv_amx) */
    int scratch_pairs;      /* of a group */
} ist_conv_lines_args;

/* cpu/conv_tokens. */
typedef struct ist_conv_tokens_args {
    int x_ld, x_c0, x_c; /* input: elements per pixel, first channel, channels */
    int items, pixels;   /* of input and output; pixels of an item */
    int y_ld, y_c0, y_c; /* output */
    int act;             /* ACT_NONE or ACT_RELU */
} ist_conv_tokens_args;

/* cpu/winograd. */
typedef struct ist_winograd_args {
    ist_conv_shape shape;
    ist_epilogue_args epi;
    int item_tiles;   /* tiles of 2x2 results of an item of work */
    int down, across; /* tiles of a map */
    int backwards;    /* items are taken from the last */
} ist_winograd_args;

#endif
