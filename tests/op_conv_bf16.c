/* Dense convolutions that round what they multiply to bfloat16, against the scalar definition on rounded operands. The
 * capability is claimed: where the processor has no AVX512_BF16, the kernels compute in plain OpenCL what its
 * instructions do. */
#include "support/convlines.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static void claim(void) {
    convlines_claim("+X86_BF16,-X86_AMX", true);
}
TestSuite(conv_bf16, .init = claim);

/* Every variant for plans that round. */
static void check_all(void (*check)(const ist_variant *v, bool rounds)) {
    int index = 0;
    for (const ist_variant *v; (v = convlines_next(0, true, &index));) check(v, true);
}

static const ist_variant *first(void) {
    int index = 0;
    return convlines_next(0, true, &index);
}

Test(conv_bf16, windows_strides_and_padding) {
    check_all(convlines_shapes);
}

Test(conv_bf16, random_shapes) {
    check_all(convlines_random);
}

Test(conv_bf16, items_beyond_the_count_are_untouched) {
    check_all(convlines_limits);
}

Test(conv_bf16, only_where_the_model_says_so) {
    if (!first()) cr_skip_test("no CPU variant runs here");
    cr_expect(convlines_is(convlines_chosen(true, 32, 8), "bf16_"));
    cr_expect(convlines_is(convlines_chosen(false, 32, 8), "cpu_"));
    cr_expect(convlines_is(convlines_chosen(true, 3, 8), "cpu_"), "of images nothing is rounded");
    setenv("ISTHMUS_BF16", "0", 1);
    cr_expect(convlines_is(convlines_chosen(true, 32, 8), "cpu_"), "without the option");
}

/* Weights and inputs that lie halfway between two bfloat16 go to the even one. */
Test(conv_bf16, ties_round_to_even) {
    if (!first()) cr_skip_test("no CPU variant runs here");
    optest t;
    optest_begin(&t, "ties", 0);
    ist_plan_reduced(t.plan, true);
    const float ties[] = {1 + 1 / 256.0f, 1 + 3 / 256.0f, -1 - 1 / 256.0f, 1 + 5 / 1024.0f};
    const float even[] = {1, 1 + 4 / 256.0f, -1, 1 + 8 / 1024.0f};
    ref_map in = optest_zeros(&t, 1, 1, 4, 2), want = optest_zeros(&t, 1, 1, 4, 1);
    for (int i = 0; i < 4; i++) {
        in.v[2 * i] = ties[i];
        cr_assert_float_eq(ref_bf16(ties[i]), even[i], 0);
        want.v[i] = even[i] * (1 + 4 / 256.0f); /* eight bits by eight are exact in float */
    }
    const float w[] = {1 + 3 / 256.0f, 0};
    ist_tensor x = optest_in(&t, in, IST_ELEM_T, false);
    ist_conv q = {.label = "test",
                  .x = x,
                  .y = optest_out(&t, 1, 1, 4, 1, IST_ELEM_T, false),
                  .filter = {.out = 1, .in = 2, .kh = 1, .kw = 1, .w = w}};
    convtest_emit(&t, first(), 1, &q);
    optest_run(&t);
    optest_close(&t, "result", optest_read(&t, q.y), want, 0, 0);
    optest_end(&t);
}
