/* What cl/portable/given_prompts takes by value. */
#ifndef IST_VARIANTS_PORTABLE_GIVEN_PROMPTS_ARGS_H
#define IST_VARIANTS_PORTABLE_GIVEN_PROMPTS_ARGS_H

typedef struct ist_given_prompts_args {
    int objects_each; /* of a prompt */
    int own;          /* the decoder's own tokens */
    int few;          /* places of few_points and few_labels; 0: they are not there */
    int pixels;       /* values of a mask */
} ist_given_prompts_args;

#endif
