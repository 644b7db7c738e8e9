/* What cl/cpu/norm_mlp and cl/cpu/norm_mlp_amx take by value. */
#ifndef IST_VARIANTS_CPU_NORM_MLP_ARGS_H
#define IST_VARIANTS_CPU_NORM_MLP_ARGS_H

typedef struct ist_cpu_norm_mlp_args {
    int x_ld, x_c0, y_ld, y_c0; /* elements from a row to the next, first channels */
    int items, rows, width;     /* items, rows of each, columns of the map (0: no depthwise convolution) */
    int c, hidden, block_c, c2; /* channels; hidden ones, of a block; those of the result (0: no second layer) */
    int act;                    /* ACT_*, between the layers */
    int pieces, backwards;      /* of an item's rows, whether they are taken from the last one on */
    float eps;
} ist_cpu_norm_mlp_args;

typedef struct ist_norm_mlp_amx_args {
    int x_ld, x_c0, y_ld, y_c0;
    int items, rows;
    int c, hidden, block_c;
    int second, act; /* whether there is a second layer */
    int pieces, backwards;
    int piece_tiles;   /* tiles of 32 rows of a piece, at most */
    int scratch_bytes; /* of a group */
    float eps;
} ist_norm_mlp_amx_args;

#endif
