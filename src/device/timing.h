/* Times of kernels by the device's own clock, for profiles. */
#ifndef IST_DEVICE_TIMING_H
#define IST_DEVICE_TIMING_H

#include "device/device.h"

/* One kernel of a run to be timed; pointers are borrowed for the call. */
typedef struct ist_timed_kernel {
    cl_kernel kernel;
    int dims;
    const size_t *global, *local;
    const char *label;
} ist_timed_kernel;

/* Runs the kernels in order, waits once, and stores each one's time from its start to its end by the device's clock.
 * For profiles: waits for what is in flight before. Recorded in the ledger as set-up. */
ist_status ist_time_kernels(ist_device *device, const ist_timed_kernel *list, int count, double *ms, ist_error *err);

#endif
