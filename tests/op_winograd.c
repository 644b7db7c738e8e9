/* Winograd convolutions against the scalar definition of a convolution. */
#include "variants/winograd.h"
#include "support/convtest.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

typedef struct shape {
    int n, h, w, cin, cout, top, left, bottom, right;
} shape;

static bool available(void) {
    optest t;
    float w[1] = {0};
    optest_begin(&t, "capabilities", 0);
    ist_filter f = {32, 16, 3, 3, w, NULL};
    bool yes = ist_winograd_fits(t.plan, ist_plan_input(t.plan, 1, 8, 8, 16, IST_ELEM_T), &f, &(ist_conv_opts){0});
    optest_drop(&t);
    return yes;
}

static void check_case(shape s, convtest_extras x, ist_elem out, int items, unsigned salt) {
    optest t;
    char name[160];
    snprintf(name, sizeof name, "%dx%dx%dx%d -> %d, act %d, case %u", s.n, s.h, s.w, s.cin, s.cout, (int)x.act, salt);
    optest_begin(&t, name, salt);
    int oh = s.h + s.top + s.bottom - 2, ow = s.w + s.left + s.right - 2;
    ref_map in = optest_random(&t, s.n, s.h, s.w, s.cin), want = optest_zeros(&t, s.n, oh, ow, s.cout);
    float *w = optest_values(&t, (size_t)s.cout * s.cin * 9, -1, 1);
    float *b = x.no_bias ? NULL : optest_values(&t, (size_t)s.cout, -1, 1);
    ist_conv_opts o = {.top = s.top, .left = s.left, .bottom = s.bottom, .right = s.right};
    ref_epilogue r;
    convtest_epilogue(&t, &x, want, &o.epi, &r);
    o.into = optest_out(&t, s.n, oh, ow, s.cout, out, x.slices);
    ist_tensor xin = optest_in(&t, in, IST_ELEM_T, x.slices);
    if (items >= 0) ist_plan_limit(t.plan, optest_ints(&t, &items, 1));
    ist_tensor y = ist_op_winograd(t.plan, xin, (ist_filter){s.cout, s.cin, 3, 3, w, b}, &o, "test");
    optest_run(&t);
    ref_conv(in, w, b, (ref_window){3, 3, 1, s.top, s.left}, &r, want);
    double tol = 2 * optest_tolerance(&t, 9 * s.cin);
    optest_check(&t, "result", y, want, tol, tol * 2, items);
    optest_end(&t);
}

Test(winograd, shapes_and_padding) {
    const shape shapes[] = {
        {1, 8, 8, 16, 32, 1, 1, 1, 1},  {2, 9, 13, 32, 64, 1, 1, 1, 1},  {1, 5, 7, 48, 32, 0, 0, 0, 0},
        {1, 3, 3, 16, 16, 0, 0, 0, 0},  {1, 1, 1, 16, 32, 1, 1, 1, 1},   {1, 40, 23, 64, 96, 1, 1, 1, 1},
        {3, 6, 31, 16, 48, 2, 1, 0, 2}, {1, 2, 50, 128, 32, 1, 0, 1, 2}, {1, 12, 12, 384, 64, 1, 1, 1, 1},
    };
    if (!available()) return;
    for (unsigned i = 0; i < (optest_small() ? 2 : sizeof shapes / sizeof shapes[0]); i++)
        check_case(shapes[i], (convtest_extras){.slices = i % 2}, IST_ELEM_T, -1, i);
}

Test(winograd, epilogues) {
    if (!available()) return;
    for (int bits = 0; bits < 128; bits++)
        if (!optest_small() || bits % 29 == 0)
            check_case((shape){2, 6, 8, 16, 32, 1, 1, 1, 1}, convtest_combination(bits),
                       bits % 3 ? IST_ELEM_T : IST_ELEM_F32, -1, 100 + (unsigned)bits);
}

Test(winograd, items_beyond_the_count_are_untouched) {
    if (!available()) return;
    for (int items = 0; items <= (optest_small() ? 1 : 4); items++)
        check_case((shape){3, 5, 9, 16, 32, 1, 1, 1, 1}, (convtest_extras){.act = IST_ACT_RELU}, IST_ELEM_T, items,
                   300);
}

Test(winograd, refuses_what_does_not_fit) {
    optest t;
    float w[16 * 16 * 9] = {0};
    optest_begin(&t, "refusal", 0);
    ist_tensor x = ist_plan_input(t.plan, 1, 8, 8, 16, IST_ELEM_T);
    cr_assert_not(ist_has(ist_op_winograd(t.plan, x, (ist_filter){15, 16, 3, 3, w, NULL}, NULL, "layer.a")));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    cr_assert(strstr(ist_plan_error(t.plan)->text,
                     "layer.a: no Winograd kernel for a filter [15,16,3,3] with stride 0 on [1,8,8,16]"));
    optest_drop(&t);
}
