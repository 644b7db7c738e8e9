/* Rows on AMX where the processor may have none: the capability is claimed, and cpu/amx computes in plain OpenCL what
 * the instructions do. */
#ifndef IST_TESTS_CLAIMED_AMX_H
#define IST_TESTS_CLAIMED_AMX_H

#include "variants/variant.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

/* Beside what ISTHMUS_CAPS says already. To be called before the device is opened; skips the test where rows on AMX do not
 * run all the same: no CPU, or one without vectors of 512 bits. */
static inline void claim_amx(void) {
    const char *before = getenv("ISTHMUS_CAPS");
    char caps[200];
    snprintf(caps, sizeof caps, "%s%s+X86_AMX", before ? before : "", before && *before ? "," : "");
    setenv("ISTHMUS_CAPS", caps, 1);
    optest t;
    optest_begin(&t, "a CPU?", 1);
    const ist_variant *amx = ist_variant_named(IST_NODE_CONV, "amx_fp32_32x32");
    bool runs = amx && ist_variant_runs(t.plan, amx);
    optest_drop(&t);
    if (!runs) cr_skip_test("no variant of AMX runs here, which also wants vectors of 512 bits, or none was built");
}

#endif
