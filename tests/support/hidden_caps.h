/* Hides capabilities of the device from the operators, so that a test reaches rows that the device would not choose.
 * A test that includes this is linked with --wrap=ist_plan_caps (cmake/tests.cmake). */
#ifndef IST_TESTS_HIDDEN_CAPS_H
#define IST_TESTS_HIDDEN_CAPS_H

#include "core/plan.h"

static unsigned without; /* IST_CAP_* */

unsigned __real_ist_plan_caps(const ist_plan *p);
unsigned __wrap_ist_plan_caps(const ist_plan *p);
unsigned __wrap_ist_plan_caps(const ist_plan *p) {
    return __real_ist_plan_caps(p) & ~without;
}

#endif
