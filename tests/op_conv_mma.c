/* The convolution rows on matrix instructions where there are none: the capability is claimed, isa/ptx then computes in
 * plain OpenCL what the instructions do. Checks the rows' index arithmetic on any device, slowly; op_conv with
 * ISTHMUS_HALF=1 checks the instructions where they exist. */
#include "ops/conv_rows.h"
#include "support/convtest.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void claim(void) {
    setenv("ISTHMUS_CAPS", "+PTX_MMA", 1);
    setenv("ISTHMUS_HALF", "1", 1);
}
TestSuite(conv_mma, .init = claim);

/* One row: its tile is smallest and its warps share sums. All rows are one kernel with other numbers. */
static const char *const names[] = {"mma_16x32"};

typedef struct shape {
    int n, h, w, cin, cout, k, stride, pad, splits;
    bool deconv;
    convtest_extras x;
} shape;

static void check_case(const ist_conv_row *row, shape s, unsigned salt) {
    optest t;
    char name[128];
    snprintf(name, sizeof name, "%s %dx%dx%dx%d -> %d, %dx%d stride %d, case %u", row->name, s.n, s.h, s.w, s.cin,
             s.cout, s.k, s.k, s.stride, salt);
    optest_begin(&t, name, salt);
    int oh = s.deconv ? 2 * s.h : (s.h + 2 * s.pad - s.k) / s.stride + 1;
    int ow = s.deconv ? 2 * s.w : (s.w + 2 * s.pad - s.k) / s.stride + 1;
    ref_map in = optest_random(&t, s.n, s.h, s.w, s.cin), want = optest_zeros(&t, s.n, oh, ow, s.cout);
    size_t count = (size_t)s.cout * (size_t)s.cin * (size_t)s.k * (size_t)s.k;
    float *w = optest_values(&t, count, -1, 1), *b = optest_values(&t, (size_t)s.cout, -1, 1);
    for (size_t i = 0; i < count; i++) w[i] = rintf(w[i] * 1024) / 1024; /* exact in half */
    ist_conv_opts o = {.stride = s.stride, .top = s.pad, .left = s.pad, .bottom = s.pad, .right = s.pad};
    ref_epilogue r;
    convtest_epilogue(&t, &s.x, want, &o.epi, &r);
    o.into = optest_out(&t, s.n, oh, ow, s.cout, IST_ELEM_T, s.x.slices);
    ist_tensor xin = optest_in(&t, in, IST_ELEM_T, s.x.slices);
    ist_tensor y =
        ist_op_conv_row(t.plan, s.deconv ? IST_CONV_DECONV2X2 : IST_CONV_DENSE, xin,
                        (ist_filter){s.cout, s.cin, s.k, s.k, w, b}, &o, (ist_conv_choice){row, s.splits}, "test");
    optest_run(&t);
    if (s.splits > 1) cr_assert_eq(ist_plan_replay(t.plan, &t.err), IST_OK, "%s", t.err.text); /* counters are back */
    if (s.deconv)
        ref_deconv2x2(in, w, b, &r, want);
    else
        ref_conv(in, w, b, (ref_window){s.k, s.k, s.stride, s.pad, s.pad}, &r, want);
    double tol = optest_tolerance(&t, s.cin * s.k * s.k);
    optest_check(&t, "result", y, want, tol, tol * 2, -1);
    optest_end(&t);
}

static const ist_conv_row *row_named(const char *name) {
    for (int i = 0; i < ist_conv_row_count(); i++)
        if (!strcmp(ist_conv_row_at(i)->name, name)) return ist_conv_row_at(i);
    cr_assert_fail("no row %s", name);
    return NULL;
}

Test(conv_mma, index_arithmetic) {
    const shape shapes[] = {
        {1, 5, 7, 72, 40, 1, 1, 0, 1, false, {.act = IST_ACT_SILU}}, /* one tap */
        {2,
         4,
         6,
         64,
         20,
         3,
         1,
         1,
         2,
         false,
         {.act = IST_ACT_RELU, .lab = true, .before = true, .up2 = true}},          /* blocks of channels, two splits */
        {1, 9, 8, 24, 36, 3, 2, 1, 1, false, {.act = IST_ACT_GELU, .after = true}}, /* taps of whole chunks */
        {1, 7, 6, 5, 19, 3, 1, 1, 1, false, {.act = IST_ACT_NONE, .slices = true}}, /* single elements */
    };
    for (size_t r = 0; r < sizeof names / sizeof names[0]; r++)
        for (unsigned i = 0; i < (optest_small() ? 1 : sizeof shapes / sizeof shapes[0]); i++)
            check_case(row_named(names[r]), shapes[i], i);
}
