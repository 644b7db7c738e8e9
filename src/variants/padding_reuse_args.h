/* Rows that repeat others, for cl/cpu/repeated_rows and cl/portable/left_out (padding_reuse.h). */
#ifndef IST_VARIANTS_PADDING_REUSE_ARGS_H
#define IST_VARIANTS_PADDING_REUSE_ARGS_H

/* The first of them is (rows of the picture / step, rounded up, + above, rounded up to a multiple of period) + after. */
typedef struct ist_padding_reuse_args {
    int content_ld, content_c0; /* ints from an item of `content` to the next (0: no rows are alike), the first one */
    int step, above;            /* rows of the picture for one of the map; of the map, that see what is above them */
    int period, after;          /* after how many rows they repeat */
    int beyond;                 /* rows from the first one on that are there in any case */
    int past;                   /* the row behind the last one */
} ist_padding_reuse_args;

/* cl/portable/repeat_rows. */
typedef struct ist_repeat_rows_args {
    int h, w, ld, c0, c; /* of the map */
    ist_padding_reuse_args reuse;
} ist_repeat_rows_args;

#endif
