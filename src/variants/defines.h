/* What emit functions share: the -D options of a launch, sizes rounded up. */
#ifndef IST_VARIANTS_DEFINES_H
#define IST_VARIANTS_DEFINES_H

#include "core/plan.h"

#include <stdio.h>
#include <string.h>

/* Room for the -D options of one launch. */
typedef struct ist_defines {
    char text[160];
} ist_defines;

/* The storage type's option and then `fmt`. */
IST_PRINTF(2, 3) static inline ist_defines ist_defines_of(const ist_plan *p, const char *fmt, ...) {
    ist_defines d;
    int n = snprintf(d.text, sizeof d.text, "%s", ist_plan_half(p) ? "-DIST_HALF " : "");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d.text + n, sizeof d.text - (size_t)n, fmt, ap);
    va_end(ap);
    return d;
}

/* More options behind those. */
IST_PRINTF(2, 3) static inline void ist_defines_add(ist_defines *d, const char *fmt, ...) {
    size_t n = strlen(d->text);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->text + n, sizeof d->text - n, fmt, ap);
    va_end(ap);
}

static inline size_t ist_round_up(size_t x, size_t step) {
    return (x + step - 1) / step * step;
}

#endif
