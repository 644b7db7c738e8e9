/* The convolution variants on matrix instructions of AMD and Intel where there are none: the capability is claimed,
 * matrix/matrix then computes in plain OpenCL what the instructions do. Checks the variants' index arithmetic and the
 * order of packed weights on any device, slowly. */
#include "support/claimed_matrix.h"
#include "support/convtest.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void claim_all(void) {
    convtest_needs(IST_MACHINE_MATRIX);
    claim("+AMD_MFMA,+AMD_WMMA,+INTEL_DPAS");
}
TestSuite(conv_matrix, .init = claim_all);

static const convtest_shape shapes[] = {
    /* one tap, channels in whole vectors, column tiles cut short */
    {1, 5, 7, 72, 40, 1, 1, 0, 1, {.act = IST_ACT_SILU}},
    /* several taps in a step, padding, addends of half the size */
    {2, 4, 6, 24, 72, 3, 1, 1, 1, {.act = IST_ACT_RELU, .lab = true, .before = true, .up2 = true}},
    /* channels that are no whole vectors, steps of odd sizes, stride */
    {1, 9, 8, 21, 35, 3, 2, 1, 1, {.act = IST_ACT_GELU, .after = true}},
    /* slices of wider buffers */
    {1, 7, 6, 5, 19, 3, 1, 1, 1, {.act = IST_ACT_NONE, .slices = true}},
    /* float results; more pixels than one tile */
    {3, 11, 13, 3, 9, 2, 1, 0, 1, {.act = IST_ACT_SIGMOID, .no_bias = true, .y32 = true}},
    /* one addend for all images */
    {2, 5, 4, 32, 16, 2, 1, 0, 1, {.act = IST_ACT_GELU, .after = true, .after_one = true}},
};

/* `small` on all shapes, `large`, whose tiles are split otherwise, on the first two. */
static void check_variants(const char *small, const char *large) {
    const ist_variant *v = convtest_variant(small);
    int count = optest_small() ? 2 : (int)(sizeof shapes / sizeof *shapes);
    for (int i = 0; i < count; i++) convtest_check(v, &shapes[i], -1, (unsigned)i);
    for (int i = 0; i < 2 && !optest_small(); i++)
        convtest_check(convtest_variant(large), &shapes[i], -1, 50 + (unsigned)i);
    for (int items = 0; items <= 2 && !optest_small(); items++) /* what lies beyond the count stays untouched */
        convtest_check(v, &shapes[1], items, 100 + (unsigned)items);
}

Test(conv_matrix, mfma) {
    check_variants("mfma_32x32", "mfma_64x64");
}
Test(conv_matrix, wmma) {
    check_variants("wmma_32x32", "wmma_64x32");
}
Test(conv_matrix, dpas) {
    check_variants("dpas_32x32", "dpas_64x32");
}

/* A device with one of the capabilities takes its variants for half storage, and no other device does. */
static void check_choice(const char *caps, ist_machine machine, const char *prefix) {
    setenv("ISTHMUS_CAPS", caps, 1);
    optest t;
    optest_begin(&t, caps, 0);
    ist_conv q = {.label = "choice",
                  .x = {.buffer = 1, .n = 1, .h = 20, .w = 20, .c = 64, .ld = 64},
                  .y = {.buffer = 2, .n = 1, .h = 20, .w = 20, .c = 64, .ld = 64},
                  .filter = {.out = 64, .in = 64, .kh = 1, .kw = 1},
                  .o = {.stride = 1}};
    const ist_variant *v = ist_variant_choose(t.plan, IST_NODE_CONV, &q).variant;
    cr_assert(v && v->machine == machine && !strncmp(v->name, prefix, strlen(prefix)), "%s: %s", caps,
              v ? v->name : "none");
    optest_drop(&t);
}
Test(conv_matrix, chosen_with_mfma) {
    check_choice("-CPU,+AMD_MFMA", IST_MACHINE_MATRIX, "mfma_");
}
Test(conv_matrix, chosen_with_wmma) {
    check_choice("-CPU,+AMD_WMMA", IST_MACHINE_MATRIX, "wmma_");
}
Test(conv_matrix, chosen_with_dpas) {
    check_choice("-CPU,+INTEL_DPAS", IST_MACHINE_MATRIX, "dpas_");
}
Test(conv_matrix, not_chosen_without) {
    check_choice("-CPU,-PTX_MMA,-PTX_WGMMA", IST_MACHINE_PORTABLE, "");
}
