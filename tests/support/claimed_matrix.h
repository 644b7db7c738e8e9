/* Rows on matrix instructions where there are none: the capability is claimed and storage is half; isa/ptx then
 * computes in plain OpenCL what the instructions do, slowly. */
#ifndef IST_TESTS_CLAIMED_MATRIX_H
#define IST_TESTS_CLAIMED_MATRIX_H

#include <stdbool.h>
#include <stdlib.h>

/* To be called before the device is opened. False in the run of the same program that is half anyway, since one of the
 * two is enough, and where shapes are small because kernels are slow (oclgrind, llvmpipe). */
static inline bool claim_matrix_instructions(void) {
    if (getenv("ISTHMUS_HALF") || getenv("ISTHMUS_SMALL")) return false;
    setenv("ISTHMUS_CAPS", "+PTX_MMA", 1);
    setenv("ISTHMUS_HALF", "1", 1);
    return true;
}

#endif
