/* Rows that are alike, for cl/cpu/repeated_rows (padding_reuse.h). */
#ifndef IST_VARIANTS_PADDING_REUSE_ARGS_H
#define IST_VARIANTS_PADDING_REUSE_ARGS_H

typedef struct ist_padding_reuse_args {
    int content_ld, content_c0; /* ints from an item of `content` to the next (0: no rows are alike), the first one */
    int step, above;            /* rows of the picture for one of the map; of the map, that see what is above them */
    int past;                   /* the row behind the last that is alike */
} ist_padding_reuse_args;

#endif
