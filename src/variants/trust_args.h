/* What the kernels that judge tracks take by value. */
#ifndef IST_VARIANTS_TRUST_ARGS_H
#define IST_VARIANTS_TRUST_ARGS_H

typedef struct ist_trust_args {
    int width, height, blocks;  /* of the frame; words of a mask's column */
    int turn;                   /* which table is the new one */
    int objects_at, masks_at;   /* words of the packet */
    int records_at, weights_at; /* .. of what is written there */
    int tracks, age, n_lost;    /* whether objects have tracks; frames that one survives; in a row */
    int reset;                  /* forget all tracks */
    float tau_conf, theta_on, theta_off, theta_cont;
} ist_trust_args;

#endif
