/* Epilogues for the tests of the convolution family. */
#ifndef IST_TESTS_CONVTEST_H
#define IST_TESTS_CONVTEST_H

#include "ops/ops.h"
#include "support/optest.h"

typedef struct convtest_extras {
    ist_act act;
    bool lab, before, up2, before_one, after, after_one, slices, no_bias;
} convtest_extras;

/* Combination number 0..127 of everything above. */
convtest_extras convtest_combination(int bits);
/* Fills both descriptions of one epilogue to a result of y's extents, with random addends. */
void convtest_epilogue(optest *t, const convtest_extras *x, ref_map y, ist_epilogue *e, ref_epilogue *r);

#endif
