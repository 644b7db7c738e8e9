/* What the CPU's kernels of two-way attention take by value. */
#ifndef IST_VARIANTS_CPU_TWO_WAY_ARGS_H
#define IST_VARIANTS_CPU_TWO_WAY_ARGS_H

#include "variants/two_way_args.h"

/* `wanted_way`: 1 + the only way of prompts that a launch takes, or 0 for both (ist_wanted_way). */

typedef struct ist_cpu_fold_args {
    ist_fold_args fold;
    int prompts, slices; /* slices: parts of a prompt's result, items of work */
    int wanted_way;
    int from_last; /* the last token's q is taken off that of the others */
} ist_cpu_fold_args;

typedef struct ist_cpu_image_step_args {
    ist_image_side_args image;
    int groups, group_rows;           /* parts of the image, rows of each */
    int with_update;                  /* whether there is an update before the reading */
    int update_columns, read_columns; /* 8 tokens of the update, of the queries */
    int wanted_way;
    int from_last; /* keys and values are relative to the last token */
    float eps;     /* of the update's norm */
} ist_cpu_image_step_args;

typedef struct ist_cpu_image_merge_args {
    ist_image_merge_args merge;
    int prompts, wanted_way;
} ist_cpu_image_merge_args;

/* ---- many prompts on one image (variants/cpu/shared_prompts.h) ---- */

typedef struct ist_image_lengths_args {
    int length, group_rows; /* rows (pixels) of an item, of a group */
    int x_ld, x_c0;
} ist_image_lengths_args;

typedef struct ist_relate_args {
    int tokens, d;          /* of a prompt, channels of a head */
    int slots, slot_floats; /* matrices of a prompt, floats of one */
} ist_relate_args;

typedef struct ist_shared_step_args {
    int length, groups, group_rows; /* rows (pixels) of an item, parts of them, rows of each */
    int updates;                    /* before the reading: 0, 1 or 2 */
    int image_ld;                   /* floats of a row of projections */
    int d;                          /* channels of a head */
    int slots, slot_floats;         /* matrices of a prompt, floats of one */
    int update_tokens, read_tokens; /* of the updates, of the queries */
    float eps;                      /* of the updates' norms */
} ist_shared_step_args;

#endif
