/* What cl/portable/deform takes by value. */
#ifndef IST_VARIANTS_DEFORM_ARGS_H
#define IST_VARIANTS_DEFORM_ARGS_H

typedef struct ist_deform_args {
    int out_ld, memory_ld, offsets_ld, weights_ld, ref_ld; /* elements from a token, or a query, to the next */
    int out_c0, memory_c0, offsets_c0, weights_c0, ref_c0; /* first channels */
    int queries, tokens, heads, dim; /* of an item; tokens of its memory, heads, channels of a head */
    int one_memory;                  /* whether all items have the same memory */
    int rows;                        /* queries of a group (on CPUs) */
} ist_deform_args;

#endif
