/* Hides capabilities of the device from the operators, so that a test reaches rows that the device would not choose.
 * A test that includes this is linked with --wrap=ist_plan_caps (cmake/tests.cmake). */
#ifndef IST_TESTS_HIDDEN_CAPS_H
#define IST_TESTS_HIDDEN_CAPS_H

#include "core/plan.h"

#include <stdlib.h>

static unsigned without; /* IST_CAP_* */

/* For a whole test: hides `caps`, and has kernels that a CPU does not choose compiled as they are, since PoCL takes
 * long to optimise those with barriers. To be called before the device is opened. */
static inline void hide(unsigned caps) {
    without = caps;
    setenv("ISTHMUS_CPU_BUILD_OPTIONS", "-cl-opt-disable", 1);
}

unsigned __real_ist_plan_caps(const ist_plan *p);
unsigned __wrap_ist_plan_caps(const ist_plan *p);
unsigned __wrap_ist_plan_caps(const ist_plan *p) {
    return __real_ist_plan_caps(p) & ~without;
}

#endif
