/* Absorbed projections on CPUs. */
#ifndef IST_VARIANTS_CPU_ABSORBED_H
#define IST_VARIANTS_CPU_ABSORBED_H

#include "variants/absorbed.h"

extern const ist_absorbed_kernels ist_cpu_absorbed;

#endif
