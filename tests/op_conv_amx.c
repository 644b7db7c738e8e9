/* Dense convolutions on the matrix unit of x86 CPUs, against the scalar definition on rounded operands. The
 * capabilities are claimed: where the processor has no AMX, the kernels compute in plain OpenCL what its instructions
 * do. */
#include "support/convlines.h"

#include <criterion/criterion.h>

static void claim(void) {
    convlines_claim("+SIMD16,+X86_BF16,+X86_AMX");
}
TestSuite(conv_amx, .init = claim);

static const ist_conv_row *the_row(void) {
    int index = 0;
    const ist_conv_row *row = convlines_row(IST_CONV_AMX, &index);
    if (!row) cr_skip_test("no CPU row runs here");
    return row;
}

Test(conv_amx, windows_strides_and_padding) {
    convlines_shapes(the_row());
}
Test(conv_amx, random_shapes) {
    convlines_random(the_row());
}
Test(conv_amx, items_beyond_the_count_are_untouched) {
    convlines_limits(the_row());
}

Test(conv_amx, only_where_the_model_says_so) {
    the_row();
    cr_expect_eq(convlines_chosen(true, 64, 80), IST_CONV_AMX);
    cr_expect_eq(convlines_chosen(false, 64, 80), IST_CONV_PANELS);
    cr_expect_eq(convlines_chosen(true, 3, 80), IST_CONV_PANELS, "of images nothing is rounded");
}
