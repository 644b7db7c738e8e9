/* What cl/nvidia/sequence takes by value. */
#ifndef IST_VARIANTS_NVIDIA_SEQUENCE_ARGS_H
#define IST_VARIANTS_NVIDIA_SEQUENCE_ARGS_H

typedef struct ist_nvidia_sequence_args {
    int rows;                      /* of an item */
    int first_steps, second_steps; /* of the tapes of both sides; 0: there is one */
    int lane_pieces;               /* pieces of weights that a lane takes */
    int turns;                     /* of all steps */
} ist_nvidia_sequence_args;

#endif
