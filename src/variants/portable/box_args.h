/* What cl/portable/box takes by value. */
#ifndef IST_VARIANTS_PORTABLE_BOX_ARGS_H
#define IST_VARIANTS_PORTABLE_BOX_ARGS_H

typedef struct ist_box_args {
    int queries, c;             /* of an item, channels of a and y */
    int one_b;                  /* whether all items have the same b */
    int a_ld, a_c0, b_ld, b_c0; /* elements from a query to the next, first channels */
} ist_box_args;

typedef struct ist_fdr_args {
    int queries;
    int has_previous; /* whether corners of a layer before are added */
    int a_ld, a_c0;
    float scale; /* of the distances: D-FINE's reg_scale */
} ist_fdr_args;

typedef struct ist_lqe_args {
    int queries, y_ld, y_c0;
} ist_lqe_args;

#endif
