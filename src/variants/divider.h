/* Division by a number known before the launch, for kernels: `divided` in cl/prelude. */
#ifndef IST_VARIANTS_DIVIDER_H
#define IST_VARIANTS_DIVIDER_H

#include "variants/divider_args.h"

#include <stdint.h>

static inline ist_divider ist_divider_of(int d) {
    int log = 0;
    while ((1LL << log) < d) log++;
    uint64_t power = 1ULL << (31 + log);
    return (ist_divider){(int)(uint32_t)((power + (uint64_t)d - 1) / (uint64_t)d), 31 + log};
}

#endif
