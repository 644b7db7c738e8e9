/* What cl/portable/pack takes by value. */
#ifndef IST_VARIANTS_PORTABLE_PACK_ARGS_H
#define IST_VARIANTS_PORTABLE_PACK_ARGS_H

typedef struct ist_records_args {
    int batch, max_objects;        /* images, objects of each at most */
    int matched, masked;           /* whether there are matches, masks */
    int score_ld, score_c0;        /* elements from a prompt's mask scores to the next one's, first one */
    int scores_each;               /* of a prompt: as many objects */
    int all_groups, object_groups; /* of cl/portable/mask: of all objects, of one at most */
} ist_records_args;

typedef struct ist_windows_args {
    int batch, max_objects;
    int all_groups, object_groups; /* most of the kernel's, likewise */
} ist_windows_args;

typedef struct ist_logits_args {
    int pixels;               /* of an object */
    int logits_ld, logits_c0; /* elements from an object to the next, first one */
    int first;                /* where mask words begin in the packet */
} ist_logits_args;

#endif
