/* What two_way.c, two_way_cpu.c and two_way_mma.c, the row on matrix instructions, share. */
#ifndef IST_OPS_TWO_WAY_ROWS_H
#define IST_OPS_TWO_WAY_ROWS_H

#include "ops/rows.h"
#include "ops/two_way.h"

enum {
    HEADS = IST_TWO_WAY_HEADS,
    HEAD_MAX = 32,
    IMAGE_MAX = 256, /* channels of the image */
    COLUMNS = 64,    /* per block */
    MMA_GROUP_ROWS = 64
};

/* What ist_op_fold_heads makes: the kernels' numbers. */
typedef enum ist_fold_form { IST_FOLD_PANELS, IST_FOLD_COLUMNS, IST_FOLD_PLAIN } ist_fold_form;
/* The CPU row's launch into y; arguments are checked. wanted: as kernels have it. */
void ist_fold_heads_cpu(ist_plan *p, const ist_fold_job *job, ist_fold_form form, int wanted, ist_tensor y,
                        const char *defines, const char *label);

/* Everything the launches of a step need. */
typedef struct ist_two_way_step {
    const ist_image_side *side;
    const ist_image_update *update; /* or NULL */
    ist_tensor queries, updated, parts, shift, norm, limit;
    int n, k, length, columns, groups, rows;
    ist_defines defines;
    const char *label;
} ist_two_way_step;

/* Where ist_two_way_halves holds; arguments are checked. The whole step; returns its parts, [P,groups,1,floats of a
 * part]. */
ist_tensor ist_two_way_step_mma(ist_plan *p, ist_two_way_step *s, int tokens);
/* What ist_op_image_keys' launch has, for a launch of something else to make it along with its own. */
typedef struct ist_image_keys_step {
    ist_tensor x, beside, y;
    float *weights; /* `count` of them, owned by the caller, as halves for the kernel */
    size_t count;
} ist_image_keys_step;
bool ist_image_keys_begin(ist_plan *p, const ist_image_side *image, const ist_image_keys *w, const char *label,
                          ist_image_keys_step *step);
/* Floats of a part: see op/two_way_mma. */
int ist_two_way_part_floats(int tokens, int k);

#endif
