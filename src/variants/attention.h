/* The launch that the attention kernels of all machines have in common. */
#ifndef IST_VARIANTS_ATTENTION_H
#define IST_VARIANTS_ATTENTION_H

#include "core/plan.h"
#include "graph/nodes.h"
#include "variants/attention_args.h"

static inline int ist_attention_dim(const ist_attention *a) {
    return a->q.c / a->heads;
}

/* Operands, 7 of them; what goes by value, grid and program are the machine's. */
ist_launch ist_attention_launch(ist_plan *p, const ist_attention *a);
/* What all machines' kernels take by value. */
ist_attention_args ist_attention_args_of(const ist_attention *a);

#endif
