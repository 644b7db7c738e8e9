/* What cl/portable/mask takes by value. */
#ifndef IST_VARIANTS_PORTABLE_MASK_ARGS_H
#define IST_VARIANTS_PORTABLE_MASK_ARGS_H

typedef struct ist_mask_args {
    int object_floats, logits_c0;  /* logits: from an object's to the next one's, first */
    int all_groups, object_groups; /* most work-groups, of all objects and of one */
    float offset;                  /* of stability */
} ist_mask_args;

#endif
