/* The convolution rows on matrix instructions of AMD and Intel where there are none: the capability is claimed,
 * isa/matrix then computes in plain OpenCL what the instructions do. Checks the rows' index arithmetic and the order of
 * packed weights on any device, slowly. */
#include "ops/conv_rows.h"
#include "support/claimed_matrix.h"
#include "support/convtest.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void claim_all(void) {
    claim("+AMD_MFMA,+AMD_WMMA,+INTEL_DPAS");
}
TestSuite(conv_matrix, .init = claim_all);

typedef struct shape {
    int n, h, w, cin, cout, k, stride, pad;
    ist_elem out;
    convtest_extras x;
} shape;

static const shape shapes[] = {
    /* one tap, channels in whole vectors, column tiles cut short */
    {1, 5, 7, 72, 40, 1, 1, 0, IST_ELEM_T, {.act = IST_ACT_SILU}},
    /* several taps in a step, padding, addends of half the size */
    {2, 4, 6, 24, 72, 3, 1, 1, IST_ELEM_T, {.act = IST_ACT_RELU, .lab = true, .before = true, .up2 = true}},
    /* channels that are no whole vectors, steps of odd sizes, stride */
    {1, 9, 8, 21, 35, 3, 2, 1, IST_ELEM_T, {.act = IST_ACT_GELU, .after = true}},
    /* slices of wider buffers */
    {1, 7, 6, 5, 19, 3, 1, 1, IST_ELEM_T, {.act = IST_ACT_NONE, .slices = true}},
    /* float results; more pixels than one tile */
    {3, 11, 13, 3, 9, 2, 1, 0, IST_ELEM_F32, {.act = IST_ACT_SIGMOID, .no_bias = true}},
    /* one addend for all images */
    {2, 5, 4, 32, 16, 2, 1, 0, IST_ELEM_T, {.act = IST_ACT_GELU, .after = true, .after_one = true}},
};

static void check_case(const ist_conv_row *row, shape s, int items, unsigned salt) {
    optest t;
    char name[128];
    snprintf(name, sizeof name, "%s %dx%dx%dx%d -> %d, %dx%d stride %d, case %u", row->name, s.n, s.h, s.w, s.cin,
             s.cout, s.k, s.k, s.stride, salt);
    optest_begin(&t, name, salt);
    int oh = (s.h + 2 * s.pad - s.k) / s.stride + 1;
    int ow = (s.w + 2 * s.pad - s.k) / s.stride + 1;
    ref_map in = optest_random(&t, s.n, s.h, s.w, s.cin), want = optest_zeros(&t, s.n, oh, ow, s.cout);
    size_t count = (size_t)s.cout * (size_t)s.cin * (size_t)s.k * (size_t)s.k;
    float *w = optest_values(&t, count, -1, 1), *b = s.x.no_bias ? NULL : optest_values(&t, (size_t)s.cout, -1, 1);
    for (size_t i = 0; i < count; i++) w[i] = rintf(w[i] * 1024) / 1024; /* exact in half */
    ist_conv_opts o = {.stride = s.stride, .top = s.pad, .left = s.pad, .bottom = s.pad, .right = s.pad};
    ref_epilogue r;
    convtest_epilogue(&t, &s.x, want, &o.epi, &r);
    o.into = optest_out(&t, s.n, oh, ow, s.cout, s.out, s.x.slices);
    ist_tensor xin = optest_in(&t, in, IST_ELEM_T, s.x.slices);
    if (items >= 0) ist_plan_limit(t.plan, optest_ints(&t, &items, 1));
    ist_tensor y = ist_op_conv_row(t.plan, xin, (ist_filter){s.cout, s.cin, s.k, s.k, w, b}, &o,
                                   (ist_conv_choice){row, 1}, "test");
    optest_run(&t);
    ref_conv(in, w, b, (ref_window){s.k, s.k, s.stride, s.pad, s.pad}, &r, want);
    double tol = optest_tolerance(&t, s.cin * s.k * s.k);
    optest_check(&t, "result", y, want, tol, tol * 2, items);
    optest_end(&t);
}

static const ist_conv_row *row_named(const char *name) {
    for (int i = 0; i < ist_conv_row_count(); i++)
        if (!strcmp(ist_conv_row_at(i)->name, name)) return ist_conv_row_at(i);
    cr_assert_fail("no row %s", name);
    return NULL;
}

/* `small` on all shapes, `large`, whose tiles are split otherwise, on the first two. */
static void check_rows(const char *small, const char *large) {
    const ist_conv_row *row = row_named(small);
    int count = optest_small() ? 2 : (int)(sizeof shapes / sizeof *shapes);
    for (int i = 0; i < count; i++) check_case(row, shapes[i], -1, (unsigned)i);
    for (int i = 0; i < 2 && !optest_small(); i++) check_case(row_named(large), shapes[i], -1, 50 + (unsigned)i);
    for (int items = 0; items <= 2 && !optest_small(); items++) /* what lies beyond the count stays untouched */
        check_case(row, shapes[1], items, 100 + (unsigned)items);
}

Test(conv_matrix, mfma) {
    check_rows("mfma_32x32", "mfma_64x64");
}
Test(conv_matrix, wmma) {
    check_rows("wmma_32x32", "wmma_64x32");
}
Test(conv_matrix, dpas) {
    check_rows("dpas_32x32", "dpas_64x32");
}

/* A device with one of the capabilities takes its rows for half storage, and no other device does. */
static void check_choice(const char *caps, const char *prefix) {
    setenv("ISTHMUS_CAPS", caps, 1);
    optest t;
    optest_begin(&t, caps, 0);
    ist_conv_opts o = {.stride = 1};
    ist_tensor x = {.buffer = 1, .n = 1, .h = 20, .w = 20, .c = 64, .ld = 64};
    ist_conv_problem q = {.x = x, .f = {.out = 64, .in = 64, .kh = 1, .kw = 1}, .o = &o, .taps = 1, .oh = 20, .ow = 20};
    const ist_conv_row *row = ist_conv_choose(t.plan, &q).row;
    cr_assert(row && !strncmp(row->name, prefix, strlen(prefix)), "%s: %s", caps, row ? row->name : "none");
    optest_drop(&t);
}
Test(conv_matrix, chosen_with_mfma) {
    check_choice("-CPU,+AMD_MFMA", "mfma_");
}
Test(conv_matrix, chosen_with_wmma) {
    check_choice("-CPU,+AMD_WMMA", "wmma_");
}
Test(conv_matrix, chosen_with_dpas) {
    check_choice("-CPU,+INTEL_DPAS", "dpas_");
}
Test(conv_matrix, not_chosen_without) {
    check_choice("-CPU", "any_");
}
