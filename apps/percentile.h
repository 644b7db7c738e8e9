/* Percentiles of a sample by the nearest rank: always a value that was measured. Header only: a test reads it too. */
#ifndef PERCENTILE_H
#define PERCENTILE_H

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

static inline int percentile_order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts, so that percentile() can be asked. */
static inline void percentile_sort(double *values, size_t count) {
    if (count) qsort(values, count, sizeof *values, percentile_order);
}

/* The smallest of `count` sorted values that at least `percent` % of them do not exceed; 0 without values. */
static inline double percentile(const double *sorted, size_t count, double percent) {
    if (!count) return 0;
    double rank = ceil(percent * (double)count / 100);
    size_t at = rank < 1 ? 0 : (size_t)rank - 1;
    return sorted[at < count ? at : count - 1];
}

#endif
