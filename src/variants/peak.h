/* Rates that small kernels (cl/portable/peak.cl) reach on a device now: the yardstick of profiles and benchmarks. */
#ifndef IST_VARIANTS_PEAK_H
#define IST_VARIANTS_PEAK_H

#include "device/device.h"

typedef struct ist_peak {
    double gflops;            /* float32 multiply-adds in registers, two operations each */
    double gbytes_per_second; /* a copy that is larger than most caches, read and written bytes together */
} ist_peak;

/* Waits. */
ist_status ist_peak_measure(ist_device *device, ist_peak *peak, ist_error *err);

#endif
