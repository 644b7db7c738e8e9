/* The parts of `isthmus profile`: what was measured, and how it is shown. Used by cmd_profile.c and profile_*.c only.
 */
#ifndef PROFILE_H
#define PROFILE_H

#include "measure.h"

typedef struct profile {
    const measure *m;
    const ist_launch_time *times; /* [launches], in the order of the frame */
    int launches;
    measure_sum *stages, *kernels; /* in the order of the frame; by falling time */
    int stage_count, kernel_count;
    ist_device_peak peak;
    double total_ms, frame_ms; /* sum of the launches; the frame without waits in between */
} profile;

/* The rate closest to what the device can do: flops or bytes per time over the measured peak, whichever is more; 0 when
 * nothing was counted. Operands that lie in caches can bring it above 1. */
double profile_share(const profile *p, double ms, double flops, double bytes);

/* "conv -D MR=14 ...": entry and build options of a kernel. */
void profile_kernel_name(const ist_launch_time *launch, char *name, size_t size);

void profile_print(const profile *p);
ist_status profile_json(const profile *p, ist_text *out, ist_error *err);

/* Chrome's trace format: one row of stages, one of launches, one after the other. */
ist_status profile_trace(const profile *p, ist_text *out, ist_error *err);

#endif
