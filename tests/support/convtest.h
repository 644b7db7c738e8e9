/* What the tests of the convolution family share: the variants of the table that run, epilogues, and a check against
 * the scalar definition. */
#ifndef IST_TESTS_CONVTEST_H
#define IST_TESTS_CONVTEST_H

#include "support/optest.h"
#include "variants/conv.h"
#include "variants/ops.h"

typedef struct convtest_extras {
    ist_act act;
    bool lab, before, up2, before_one, after, after_one, slices, no_bias, y32; /* y32: floats for results */
} convtest_extras;

/* Combination number 0..127 of all but the last. */
convtest_extras convtest_combination(int bits);
/* Fills both descriptions of one epilogue to a result of y's extents, with random addends. */
void convtest_epilogue(optest *t, const convtest_extras *x, ref_map y, ist_epilogue *e, ref_epilogue *r);

/* ---- variants ---- */

/* The next variant of the kind, from *index on, that a plan of this environment runs; products may be rounded to
 * bfloat16 where `rounds`. NULL behind the last; *index goes behind what is returned. */
const ist_variant *convtest_next(ist_node_kind kind, bool rounds, int *index);
/* For each of them. */
#define CONVTEST_EACH(v, kind)                                                                                         \
    for (int next_##v = 0, once_##v = 1; once_##v; once_##v = 0)                                                       \
        for (const ist_variant *v; (v = convtest_next(kind, false, &next_##v));)

/* Skips the test where the library is built without the machine. */
void convtest_needs(ist_machine machine);
/* The dense convolution's; fails the test when there is none of that name. */
const ist_variant *convtest_variant(const char *name);

/* ist_emit_by without asking whether the variant takes the node: also where another one is meant to do it. */
void convtest_emit(optest *t, const ist_variant *v, int way, ist_conv *q);

/* ---- one case ---- */

/* A convolution with a square filter and as much padding on all sides; `splits` is the way. */
typedef struct convtest_shape {
    int n, h, w, cin, cout, k, stride, pad, splits;
    convtest_extras x;
} convtest_shape;

/* The variant's result against the reference; items >= 0 is a limit. Different `salt`s have different values. */
void convtest_check(const ist_variant *v, const convtest_shape *s, int items, unsigned salt);

#endif
