/* What cl/portable/token_mlps takes by value. */
#ifndef IST_VARIANTS_PORTABLE_TOKEN_MLPS_ARGS_H
#define IST_VARIANTS_PORTABLE_TOKEN_MLPS_ARGS_H

typedef struct ist_token_mlps_args {
    int tokens, first;                     /* of a prompt; the one whose MLP makes the first vector */
    int inputs, hidden0, hidden1, outputs; /* of the layers, but for the inputs in fours */
    int mlp_fours, mlp_biases;             /* of an MLP: weights by fours, biases */
    int x_ld, x_c0, vector_ld, vector_c0, vector_c, score_ld, score_c0, score_c;
} ist_token_mlps_args;

#endif
