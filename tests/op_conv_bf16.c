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

#define EACH_ROW(row)                                                                                                  \
    int next_row = 0;                                                                                                  \
    for (const ist_conv_row *row; (row = convlines_row(IST_CONV_BF16, true, &next_row));)

static const ist_conv_row *first_row(void) {
    int index = 0;
    return convlines_row(IST_CONV_BF16, true, &index);
}

Test(conv_bf16, windows_strides_and_padding) {
    EACH_ROW(row) convlines_shapes(row, true);
}

Test(conv_bf16, random_shapes) {
    EACH_ROW(row) convlines_random(row, true);
}

Test(conv_bf16, items_beyond_the_count_are_untouched) {
    EACH_ROW(row) convlines_limits(row, true);
}

Test(conv_bf16, only_where_the_model_says_so) {
    if (!first_row()) cr_skip_test("no CPU row runs here");
    cr_expect_eq(convlines_chosen(true, 32, 8), IST_CONV_BF16);
    cr_expect_eq(convlines_chosen(false, 32, 8), IST_CONV_PANELS);
    cr_expect_eq(convlines_chosen(true, 3, 8), IST_CONV_PANELS, "of images nothing is rounded");
    setenv("ISTHMUS_BF16", "0", 1);
    cr_expect_eq(convlines_chosen(true, 32, 8), IST_CONV_PANELS, "without the option");
}

/* Weights and inputs that lie halfway between two bfloat16 go to the even one. */
Test(conv_bf16, ties_round_to_even) {
    if (!first_row()) cr_skip_test("no CPU row runs here");
    optest t;
    optest_begin(&t, "ties", 0);
    ist_plan_narrow(t.plan, true);
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
    ist_tensor y = ist_op_conv_row(t.plan, x, (ist_filter){1, 2, 1, 1, w, NULL}, NULL,
                                   (ist_conv_choice){first_row(), 1}, "test");
    optest_run(&t);
    optest_close(&t, "result", optest_read(&t, y), want, 0, 0);
    optest_end(&t);
}
