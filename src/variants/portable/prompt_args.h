/* What cl/portable/prompt takes by value. */
#ifndef IST_VARIANTS_PORTABLE_PROMPT_ARGS_H
#define IST_VARIANTS_PORTABLE_PROMPT_ARGS_H

typedef struct ist_point_tokens_args {
    int own_rows;                     /* tokens before those of points */
    int points, points_ld, points_c0; /* of a prompt; elements from one to the next, first channel */
    int labelled, labels_ld, labels_c0;
    int first_label; /* where labels are not given: that of the first point */
    int most_label;  /* that the table has something for */
    float side;      /* of the network's input, in pixels */
} ist_point_tokens_args;

typedef struct ist_join_tokens_args {
    int c;                    /* channels */
    int a_tokens, a_ld, a_c0; /* of an item */
    int a_items;              /* 1: one for all items of b */
    int b_tokens, b_ld, b_c0;
} ist_join_tokens_args;

typedef struct ist_dense_prompt_args {
    int pixels, c; /* of an item */
    int x_ld, x_c0;
} ist_dense_prompt_args;

typedef struct ist_hide_tokens_args {
    int rows, width; /* of a prompt; the last row is added to scores */
    int heads;       /* columns of a token */
} ist_hide_tokens_args;

#endif
