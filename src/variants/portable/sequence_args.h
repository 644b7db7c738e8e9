/* What cl/portable/sequence takes by value. */
#ifndef IST_VARIANTS_PORTABLE_SEQUENCE_ARGS_H
#define IST_VARIANTS_PORTABLE_SEQUENCE_ARGS_H

typedef struct ist_sequence_args {
    int rows, steps;                 /* rows of an item, steps of the tape */
    int weights_from, weights_count; /* elements that the tape reads */
    int table_count;                 /* floats of the table */
} ist_sequence_args;

#endif
