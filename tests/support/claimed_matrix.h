/* Rows on matrix instructions where there are none: capabilities are claimed and storage is half; nvidia/ptx then computes
 * in plain OpenCL what the instructions do, slowly. */
#ifndef IST_TESTS_CLAIMED_MATRIX_H
#define IST_TESTS_CLAIMED_MATRIX_H

#include <stdbool.h>
#include <stdlib.h>

/* To be called before the device is opened. PoCL takes a minute to optimise some of these kernels, and no time to run
 * them as they are. `caps` as in ISTHMUS_CAPS. */
static inline void claim(const char *caps) {
    setenv("ISTHMUS_CAPS", caps, 1);
    setenv("ISTHMUS_HALF", "1", 1);
    setenv("ISTHMUS_CPU_BUILD_OPTIONS", "-cl-opt-disable", 1);
}

/* False in the run of the same program that is half anyway, since one of the two is enough, and where shapes are small
 * because kernels are slow (oclgrind, llvmpipe). */
static inline bool claim_matrix_rows(const char *caps) {
    if (getenv("ISTHMUS_HALF") || getenv("ISTHMUS_SMALL")) return false;
    claim(caps);
    return true;
}
static inline bool claim_matrix_instructions(void) {
    return claim_matrix_rows("+PTX_MMA");
}
/* Without and with those of warpgroups, for operators that have a row of either. */
static inline bool claim_matrix_warps(void) {
    return claim_matrix_rows("+PTX_MMA,-PTX_WGMMA");
}
static inline bool claim_matrix_groups(void) {
    return claim_matrix_rows("+PTX_MMA,+PTX_WGMMA");
}

#endif
