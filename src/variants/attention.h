/* The launch that the attention kernels of all machines have in common. */
#ifndef IST_VARIANTS_ATTENTION_H
#define IST_VARIANTS_ATTENTION_H

#include "core/plan.h"
#include "graph/nodes.h"

static inline int ist_attention_dim(const ist_attention *a) {
    return a->q.c / a->heads;
}

/* Operands, counts and sizes; grid, program and `two`, two numbers of the kernel's own, are the machine's. */
ist_launch ist_attention_launch(ist_plan *p, const ist_attention *a, const int two[2]);

#endif
