/* How many work-items share one problem in the kernels of selection, detection, masks and matching. */
#ifndef IST_OPS_LANES_H
#define IST_OPS_LANES_H

#include "ops/rows.h"

enum { IST_GROUP_LANES = 64 };

/* 1 on CPUs and on devices without usable local memory and atomics, else groups of 64. */
static inline int ist_lanes(const ist_plan *p) {
    unsigned need = IST_CAP_LOCAL | IST_CAP_ATOMICS;
    return ist_cpu_row(p) || (ist_plan_caps(p) & need) != need ? 1 : IST_GROUP_LANES;
}

#endif
