/* Times of the host. */
#ifndef IST_BASE_CLOCK_H
#define IST_BASE_CLOCK_H

#include <time.h>

/* Milliseconds of a clock that only moves forward. */
static inline double ist_clock_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

#endif
