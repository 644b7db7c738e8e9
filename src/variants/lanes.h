/* Kernels of selection, boxes, detection, matching and masks are one source for every machine: what differs is how many
 * work-items share one problem. That is their variants' configuration. */
#ifndef IST_VARIANTS_LANES_H
#define IST_VARIANTS_LANES_H

#include "variants/defines.h"
#include "variants/variant.h"

typedef struct ist_lanes {
    int lanes; /* 1: a work-item is a group, as on CPUs and where local memory or atomics are not to be had */
    int wide;  /* of the kernels that gain by larger groups */
} ist_lanes;

static inline const ist_lanes *ist_lanes_of(const ist_variant *v) {
    return v->config;
}

#endif
