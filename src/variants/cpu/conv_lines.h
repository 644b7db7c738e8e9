/* Convolution rows of CPUs that lay out what the windows of an item of work see (cl/cpu/conv_lines.cl): how work is
 * cut, and the launch. */
#ifndef IST_VARIANTS_CPU_CONV_LINES_H
#define IST_VARIANTS_CPU_CONV_LINES_H

#include "variants/conv.h"

#include <stdint.h>

/* What the kernel makes of a problem: maps of `lines` lines of `width` results, whose inputs lie in scratch as lines of
 * `pitch` pixels in `planes` planes. Linear: all pixels are one map whose lines are single pixels. */
typedef struct ist_conv_lines {
    bool linear;
    int maps, lines, width, pitch, planes;
} ist_conv_lines;

/* What a row says of itself for a problem. */
typedef struct ist_conv_tiling {
    double tile, pixel;  /* a core's cycles for a tile of results and for laying out a pixel */
    double pairs;        /* of bfloat16 that a pixel takes in scratch */
    int margin;          /* pixels behind the last one that tiles may read */
    double weight_bytes; /* of all column tiles */
    double most_bytes;   /* of scratch, in the second-level cache beside the weights */
} ist_conv_tiling;

/* How a launch is cut into items: lines and column tiles of one; pixels that it lays out, with the margin. */
typedef struct ist_conv_shares {
    int lines, cols;
    bool by_columns, streams; /* streams: weights do not stay in the second-level cache (cpu/conv_amx) */
    bool fits;                /* what lies in scratch (cpu/conv_amx) */
    int depth;                /* steps of inputs of a slice (cpu/conv_amx) */
    double pixels, cycles;    /* cycles of one core, for all items and what waits for the last of them */
} ist_conv_shares;

/* What a family says of its launch. */
typedef struct ist_conv_lines_launch {
    ist_tensor weights, bias; /* of whole column tiles, padded with zeros */
    const char *isa, *defines;
    int pixel_pairs, part_pixels; /* as ist_conv_lines_args' */
    double more;                  /* floats of scratch behind the pixels */
    bool shares;                  /* as ist_launch's */
} ist_conv_lines_launch;

ist_conv_lines ist_conv_lines_of(const ist_conv_problem *q);
/* The cheapest way among those whose lines leave room for weights in the second-level cache. */
ist_conv_shares ist_conv_lines_cut(const ist_plan *p, const ist_conv_tile *r, const ist_conv_problem *q,
                                   const ist_conv_tiling *t);

/* Makes constants of `count` pairs of weights, which `fill` writes, and of the bias of whole column tiles; false, and
 * the plan failed, when there is no memory, or the filter too large: count 0. */
bool ist_conv_lines_pack(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r, size_t count,
                         void (*fill)(const ist_conv_problem *q, const ist_conv_tile *r, uint32_t *to),
                         ist_tensor *weights, ist_tensor *bias);
/* Records the launch, unless scratch would be too large: then the plan has failed. */
void ist_conv_lines_record(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r, const ist_conv_tiling *t,
                           const ist_conv_shares *shares, const ist_conv_lines_launch *l);

#endif
