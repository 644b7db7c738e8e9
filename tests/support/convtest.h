/* Epilogues for the tests of the convolution family. */
#ifndef IST_TESTS_CONVTEST_H
#define IST_TESTS_CONVTEST_H

#include "variants/conv_rows.h"
#include "support/optest.h"

typedef struct convtest_extras {
    ist_act act;
    bool lab, before, up2, before_one, after, after_one, slices, no_bias, y32; /* y32: floats for results */
} convtest_extras;

/* Combination number 0..127 of all but the last. */
convtest_extras convtest_combination(int bits);
/* Fills both descriptions of one epilogue to a result of y's extents, with random addends. */
void convtest_epilogue(optest *t, const convtest_extras *x, ref_map y, ist_epilogue *e, ref_epilogue *r);

/* A convolution with a square filter and as much padding on all sides. */
typedef struct convtest_shape {
    int n, h, w, cin, cout, k, stride, pad, splits;
    convtest_extras x;
} convtest_shape;

const ist_conv_row *convtest_row(const char *name);
/* The row's result against the reference; items >= 0 is a limit. Different `salt`s have different values. */
void convtest_check(const ist_conv_row *row, const convtest_shape *s, int items, unsigned salt);

#endif
