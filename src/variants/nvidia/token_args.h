/* What the kernels of layers on few tokens take by value (variants/nvidia/tokens.h). */
#ifndef IST_VARIANTS_NVIDIA_TOKEN_ARGS_H
#define IST_VARIANTS_NVIDIA_TOKEN_ARGS_H

#include "variants/nvidia/two_way_args.h"

/* What all layers have: LN(add + W hidden + b). */
typedef struct ist_token_args {
    int tokens, prompts; /* of a prompt; prompts */
    int add_ld, add_c0;  /* ld 0: nothing is added */
    float eps;           /* of the norm */
} ist_token_args;

/* token_layer; the position is that of folds. */
typedef struct ist_token_layer_args {
    ist_token_args common;
    int x_ld, x_c0;
    int position_ld, position_c0;
} ist_token_layer_args;

typedef struct ist_token_attention_args {
    ist_token_args common;
    int x_ld, x_c0;
    int beside_ld, beside_c0; /* what is added to the projections; ld 0: nothing */
    int position_ld, position_c0;
    ist_image_rows_args image; /* with -D IMAGE */
} ist_token_attention_args;

typedef struct ist_token_read_args {
    ist_token_args common;
    int length, image_ld, image_c0; /* keys and values: rows of an item */
    int mapped;                     /* prompt n reads item map[n], else item n */
    int part_floats;                /* of what is read of one part of the image */
} ist_token_read_args;

typedef struct ist_token_merge_args {
    ist_token_args common;
    int parts, part_floats; /* of the image, floats of what was read of one */
} ist_token_merge_args;

/* perceptrons (cl/nvidia/token_mlps) */
typedef struct ist_perceptrons_args {
    int tokens, prompts;
    int first_token; /* of those that become vectors; the scores are of token 0 */
    int scores_c;    /* scores of a prompt */
    int x_ld, x_c0;
} ist_perceptrons_args;

#endif
