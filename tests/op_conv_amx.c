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

static const ist_variant *next_of(bool rounds, int *index) {
    return convlines_next(IST_CAP_X86_AMX, rounds, index);
}
static const ist_variant *first_of(bool rounds) {
    int index = 0;
    const ist_variant *v = next_of(rounds, &index);
    if (!v) cr_skip_test("no CPU variant runs here");
    return v;
}

/* Of every such variant. */
static void check_all(void (*check)(const ist_variant *v, bool rounds), bool rounds) {
    int index = 0;
    first_of(rounds);
    for (const ist_variant *v; (v = next_of(rounds, &index));) check(v, rounds);
}

Test(conv_amx, windows_strides_and_padding) {
    check_all(convlines_shapes, false);
}
Test(conv_amx, random_shapes) {
    check_all(convlines_random, false);
}
Test(conv_amx, items_beyond_the_count_are_untouched) {
    check_all(convlines_limits, false);
}
Test(conv_amx_narrow, windows_strides_and_padding) {
    check_all(convlines_shapes, true);
}
Test(conv_amx_narrow, random_shapes) {
    check_all(convlines_random, true);
}
Test(conv_amx_narrow, items_beyond_the_count_are_untouched) {
    check_all(convlines_limits, true);
}

static void expect_chosen(bool narrow, int in, const char *prefix, const char *why) {
    const ist_variant *v = convlines_chosen(narrow, in, 80);
    cr_expect(convlines_is(v, prefix), "%d channels: %s, not %s...: %s", in, v->name, prefix, why);
}

Test(conv_amx, chosen_where_it_pays) {
    first_of(false);
    expect_chosen(false, 64, "amx_fp32_", "");
    expect_chosen(false, 3, "cpu_", "a tenth of a step");
}

Test(conv_amx_narrow, chosen_where_it_pays) {
    first_of(true);
    expect_chosen(true, 64, "amx_bf16_", "");
    expect_chosen(true, 3, "cpu_", "of images nothing is rounded");
    cr_expect_eq(((const ist_conv_tile *)first_of(true)->config)->bk, 1);
}

/* Sums of 1000 products: the largest error is at most that of a float's sum in order. */
Test(conv_amx, as_exact_as_floats) {
    enum { PIXELS = 8, IN = 1000, OUT = 40 };
    const ist_variant *v = first_of(false);
    optest t;
    optest_begin(&t, "exactness", 3);
    ref_map in = optest_random(&t, 1, 1, PIXELS, IN);
    float *w = optest_values(&t, (size_t)IN * OUT, -1, 1);
    ist_conv q = {.label = "test",
                  .x = optest_in(&t, in, IST_ELEM_T, false),
                  .y = optest_out(&t, 1, 1, PIXELS, OUT, IST_ELEM_T, false),
                  .filter = {.out = OUT, .in = IN, .kh = 1, .kw = 1, .w = w}};
    convtest_emit(&t, v, 1, &q);
    optest_run(&t);
    ref_map got = optest_read(&t, q.y);
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
