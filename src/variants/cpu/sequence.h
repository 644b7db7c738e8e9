/* Forms of sequences on CPUs. */
#ifndef IST_VARIANTS_CPU_SEQUENCE_H
#define IST_VARIANTS_CPU_SEQUENCE_H

#include "variants/sequence_steps.h"

extern const ist_sequence_form ist_cpu_sequence_16, ist_cpu_sequence_64, ist_cpu_sequence_amx;

#endif
