/* What kernels of two-way attention with absorbed projections take by value (variants/absorbed.h). */
#ifndef IST_VARIANTS_TWO_WAY_ARGS_H
#define IST_VARIANTS_TWO_WAY_ARGS_H

/* What folded tokens become. */
typedef enum ist_fold_form { IST_FOLD_PANELS, IST_FOLD_COLUMNS, IST_FOLD_PLAIN } ist_fold_form;

/* fold_heads: q = scale ((x + add) w + b) of the tokens of prompts. */
typedef struct ist_fold_args {
    int tokens;          /* of a prompt */
    int x_c, x_ld, x_c0; /* channels, elements from a token to the next, first channel */
    int added, add_once; /* whether there is add, and whether it has one item, for all prompts */
    int add_ld, add_c0;
    int d;    /* channels of a head */
    int form; /* IST_FOLD_* */
    float scale;
} ist_fold_args;

/* The image that tokens are read of, or update. */
typedef struct ist_image_side_args {
    int length;     /* rows (pixels) of an item */
    int x_ld, x_c0; /* elements from a row to the next, first channel */
    int position_ld, position_c0;
    int mapped; /* prompt n sees item map[n], else item n */
} ist_image_side_args;

typedef struct ist_image_update_args {
    ist_image_side_args image;
    int update_columns; /* 8 tokens */
    float eps;          /* of the norm */
} ist_image_update_args;

typedef struct ist_image_read_args {
    ist_image_side_args image;
    int groups, group_rows; /* parts of the image, rows of each */
    int read_columns;       /* 8 tokens of the queries */
} ist_image_read_args;

/* Joining the parts of a reading: y[t][h d ..] of each token t and head h. */
typedef struct ist_image_merge_args {
    int tokens, groups; /* of a prompt, parts of the image */
    int d, y_ld;        /* channels of a head, elements from a token to the next */
} ist_image_merge_args;

#endif
