/* Which model a checkpoint holds, whether it is complete, and the facts `info` prints. */
#ifndef IST_MODELS_CHECKPOINT_H
#define IST_MODELS_CHECKPOINT_H

#include "models/arch.h"

/* More classes than this are taken for damage. */
#define IST_WEIGHTS_CLASSES_MAX 10000

/* A list of strings that belongs to its ist_checkpoint_info. */
typedef struct ist_name_list {
    char **items;
    size_t count, capacity;
} ist_name_list;

typedef struct ist_checkpoint_info {
    ist_model_kind kind;
    int classes;           /* of a detector: rows of its class head; 0 for a segmenter */
    int channels;          /* of the images it reads */
    bool silu;             /* D-FINE: see ist_arch_form */
    int side;              /* of a segmenter's input, where the file tells; else 0 */
    bool stored_constants; /* D-FINE, not of the file: whoever records it wants the file's anchors and scales of points
                            */
    bool deployed;         /* D-FINE after the official deploy(): convolutions already fused */
    const char *format;    /* see ist_weights_format / ist_weights_naming */
    const char *naming;
    size_t tensors;
    uint64_t parameters; /* elements of floating tensors that are neither running statistics nor stored constants */
    uint64_t bytes;      /* of all tensors */
    size_t type_counts[IST_WEIGHT_TYPES]; /* tensors per element type */
    ist_name_list missing;                /* needed at inference and absent */
    ist_name_list mismatched;             /* "NAME: want [..], file has [..]" */
    ist_name_list unused;                 /* present and not read at inference; as the file names them */
} ist_checkpoint_info;

/* Recognises the model and fills *info, which the caller frees (also after a failure). Fails when the tensors are of no
 * known model; missing or misshapen tensors are only listed. */
ist_status ist_checkpoint_identify(const ist_weights *weights, ist_checkpoint_info *info, ist_error *err);

/* Fails unless every tensor needed at inference is there with the right shape; the sentence names the first that is
 * not and counts the others. */
ist_status ist_checkpoint_check(const ist_checkpoint_info *info, ist_error *err);

/* Fails where a tensor needed at inference holds NaN or infinity, naming the first such tensor; what is not needed may
 * (stored anchors do). For commands that do not read the values: an engine finds them as it loads. */
ist_status ist_checkpoint_check_values(const ist_weights *weights, const ist_checkpoint_info *info, ist_error *err);

void ist_checkpoint_info_free(ist_checkpoint_info *info);

/* Open, identify, check, and refuse a model of the wrong kind for the slot. Sentences start with the path. On success
 * the caller closes *weights and frees *info; after a failure there is nothing to free. */
ist_status ist_checkpoint_open(const char *path, ist_checkpoint_slot slot, ist_weights **weights,
                               ist_checkpoint_info *info, ist_error *err);

/* "F32 674, I64 3" into `text`: tensors per element type, most frequent first; returns text. */
char *ist_checkpoint_types_text(const ist_checkpoint_info *info, char *text, size_t size);

#endif
