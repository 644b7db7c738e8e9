/* What cl/cpu/sequence takes by value. */
#ifndef IST_VARIANTS_CPU_SEQUENCE_ARGS_H
#define IST_VARIANTS_CPU_SEQUENCE_ARGS_H

typedef struct ist_cpu_sequence_args {
    int rows, items;    /* rows of an item, items */
    int steps;          /* of the tape */
    int pieces;         /* of an item, each of which is work of its own */
    int scratch_floats; /* of a group */
    int squares_at;     /* in these, first float of the room for rows in parts */
    int backwards;      /* whether work is taken from its end */
    int map_width;      /* where the last step is a depthwise convolution, else 0 */
} ist_cpu_sequence_args;

#endif
