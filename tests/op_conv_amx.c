/* Dense convolutions on the matrix unit of x86 CPUs, against the scalar definition: with three parts of a number as
 * exact as fp32, with one on rounded operands. The capabilities are claimed: where the processor has no AMX, the
 * kernels compute in plain OpenCL what its instructions do. */
#include "support/convlines.h"

#include <criterion/criterion.h>
#include <math.h>

static void claim(void) {
    convlines_claim("+SIMD16,+X86_BF16,+X86_AMX", false);
}
static void claim_narrow(void) {
    convlines_claim("+SIMD16,+X86_BF16,+X86_AMX", true);
}
TestSuite(conv_amx, .init = claim);
TestSuite(conv_amx_narrow, .init = claim_narrow);

static const ist_conv_row *row_of(bool rounds) {
    int index = 0;
    const ist_conv_row *row = convlines_row(IST_CONV_AMX, rounds, &index);
    if (!row) cr_skip_test("no CPU row runs here");
    return row;
}

Test(conv_amx, windows_strides_and_padding) {
    convlines_shapes(row_of(false), false);
}
Test(conv_amx, random_shapes) {
    convlines_random(row_of(false), false);
}
Test(conv_amx, items_beyond_the_count_are_untouched) {
    convlines_limits(row_of(false), false);
}
Test(conv_amx_narrow, windows_strides_and_padding) {
    convlines_shapes(row_of(true), true);
}
Test(conv_amx_narrow, random_shapes) {
    convlines_random(row_of(true), true);
}
Test(conv_amx_narrow, items_beyond_the_count_are_untouched) {
    convlines_limits(row_of(true), true);
}

Test(conv_amx, chosen_where_it_pays) {
    row_of(false);
    cr_expect_eq(convlines_chosen(false, 64, 80), IST_CONV_AMX);
    cr_expect_eq(convlines_chosen(false, 3, 80), IST_CONV_PANELS, "a tenth of a step");
}

Test(conv_amx_narrow, chosen_where_it_pays) {
    row_of(true);
    cr_expect_eq(convlines_chosen(true, 64, 80), IST_CONV_AMX);
    cr_expect_eq(convlines_chosen(true, 3, 80), IST_CONV_PANELS, "of images nothing is rounded");
    cr_expect_eq(row_of(true)->bk, 1);
}

/* Sums of 1000 products: the largest error is at most that of a float's sum in order. */
Test(conv_amx, as_exact_as_floats) {
    enum { PIXELS = 8, IN = 1000, OUT = 40 };
    const ist_conv_row *row = row_of(false);
    optest t;
    optest_begin(&t, "exactness", 3);
    ref_map in = optest_random(&t, 1, 1, PIXELS, IN);
    float *w = optest_values(&t, (size_t)IN * OUT, -1, 1);
    ist_tensor y = ist_op_conv_row(t.plan, optest_in(&t, in, IST_ELEM_T, false), (ist_filter){OUT, IN, 1, 1, w, NULL},
                                   NULL, (ist_conv_choice){row, 1}, "test");
    optest_run(&t);
    ref_map got = optest_read(&t, y);
    double most = 0, most_in_order = 0;
    for (int p = 0; p < PIXELS; p++)
        for (int o = 0; o < OUT; o++) {
            double exact = 0;
            float in_order = 0;
            for (int i = 0; i < IN; i++) {
                exact += (double)in.v[p * IN + i] * w[o * IN + i];
                in_order = fmaf(in.v[p * IN + i], w[o * IN + i], in_order);
            }
            most = fmax(most, fabs(got.v[p * OUT + o] - exact));
            most_in_order = fmax(most_in_order, fabs(in_order - exact));
        }
    optest_end(&t);
    cr_log_info("largest error %g, of sums in order %g", most, most_in_order);
    cr_expect_lt(most, 1.5 * most_in_order, "%g, sums in order %g", most, most_in_order);
}
