/* What cl/nvidia/attention takes by value. */
#ifndef IST_VARIANTS_NVIDIA_ATTENTION_ARGS_H
#define IST_VARIANTS_NVIDIA_ATTENTION_ARGS_H

#include "variants/attention_args.h"

typedef struct ist_attention_mma_args {
    ist_attention_args common;
    int turns; /* tiles of 16 queries that a group makes one after the other */
} ist_attention_mma_args;

#endif
