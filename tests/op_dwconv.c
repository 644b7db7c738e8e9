/* Depthwise convolutions and the 2x2 maximum: every variant of the table that the device can run, against the scalar
 * definition. */
#include "support/convtest.h"
#include "support/hidden_caps.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    int n, h, w, c, k, stride, top, left, bottom, right;
} shape;

/* One case, where the variant takes it; items >= 0 is a limit. Returns whether it does. */
static bool check_case(const ist_variant *v, shape s, convtest_extras x, ist_elem out, int items, unsigned salt) {
    optest t;
    char name[160];
    snprintf(name, sizeof name, "%s %dx%dx%dx%d, %dx%d stride %d, act %d, case %u", v->name, s.n, s.h, s.w, s.c, s.k,
             s.k, s.stride, (int)x.act, salt);
    optest_begin(&t, name, salt);
    int oh = (s.h + s.top + s.bottom - s.k) / s.stride + 1, ow = (s.w + s.left + s.right - s.k) / s.stride + 1;
    ref_map in = optest_random(&t, s.n, s.h, s.w, s.c), want = optest_zeros(&t, s.n, oh, ow, s.c);
    float *w = optest_values(&t, (size_t)s.c * s.k * s.k, -1, 1);
    float *b = x.no_bias ? NULL : optest_values(&t, (size_t)s.c, -1, 1);
    ist_conv_opts o = {.stride = s.stride, .top = s.top, .left = s.left, .bottom = s.bottom, .right = s.right};
    ref_epilogue r;
    convtest_epilogue(&t, &x, want, &o.epi, &r);
    o.into = optest_out(&t, s.n, oh, ow, s.c, out, x.slices);
    ist_tensor xin = optest_in(&t, in, IST_ELEM_T, x.slices);
    ist_conv q = {.label = "test",
                  .x = xin,
                  .y = o.into,
                  .filter = {.out = s.c, .in = 1, .kh = s.k, .kw = s.k, .w = w, .b = b},
                  .o = o};
    if (!ist_variant_takes(t.plan, v, &q)) {
        optest_drop(&t);
        return false;
    }
    if (items >= 0) ist_plan_limit(t.plan, optest_ints(&t, &items, 1));
    ist_emit_by(t.plan, v, 1, &q);
    optest_run(&t);
    ref_dwconv(in, w, b, (ref_window){s.k, s.k, s.stride, s.top, s.left}, &r, want);
    double tol = optest_tolerance(&t, s.k * s.k);
    optest_check(&t, "result", q.y, want, tol, tol * 2, items);
    optest_end(&t);
    return true;
}

Test(dwconv, kernel_sizes_strides_and_padding) {
    const shape shapes[] = {
        {1, 9, 23, 5, 3, 1, 1, 1, 1, 1},  {2, 8, 14, 33, 3, 2, 1, 1, 1, 1}, {1, 7, 21, 16, 5, 1, 2, 2, 2, 2},
        {1, 13, 90, 3, 3, 1, 1, 1, 1, 1}, {1, 5, 5, 17, 5, 1, 2, 2, 2, 2},  {2, 3, 4, 16, 1, 1, 0, 0, 0, 0},
        {1, 9, 9, 6, 7, 2, 3, 3, 3, 3},   {1, 6, 11, 4, 3, 3, 0, 1, 2, 0},  {1, 1, 1, 20, 3, 1, 1, 1, 1, 1},
        {1, 12, 10, 2, 9, 1, 4, 4, 4, 4}, {1, 7, 9, 12, 5, 2, 2, 2, 2, 2},  {2, 5, 7, 36, 3, 2, 0, 1, 1, 0},
        {1, 6, 5, 6, 5, 1, 0, 2, 2, 0},   {1, 7, 7, 24, 3, 1, 1, 1, 1, 1},
    };
    CONVTEST_EACH(v, IST_NODE_DWCONV) {
        int taken = 0;
        for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            taken += check_case(v, shapes[i], (convtest_extras){.slices = i % 2 && i < 10}, IST_ELEM_T, -1, i);
        cr_assert_gt(taken, 0, "%s takes none of the shapes", v->name);
    }
}

Test(dwconv, epilogues) {
    shape s = {2, 4, 6, 19, 3, 1, 1, 1, 1, 1};
    CONVTEST_EACH(v, IST_NODE_DWCONV)
    for (int bits = 0; bits < 128; bits++)
        if (!optest_small() || bits % 9 == 0)
            check_case(v, s, convtest_combination(bits), bits % 3 ? IST_ELEM_T : IST_ELEM_F32, -1,
                       100 + (unsigned)bits);
}

Test(dwconv, random_shapes) {
    optest seed;
    optest_begin(&seed, "shapes", 7);
    CONVTEST_EACH(v, IST_NODE_DWCONV)
    for (int i = 0; i < (optest_small() ? 3 : 40); i++) {
        int k = 1 + 2 * optest_int(&seed, 0, 3), big = optest_small() ? 9 : 40;
        shape s = {optest_int(&seed, 1, 3),
                   optest_int(&seed, k, big),
                   optest_int(&seed, k, big),
                   optest_int(&seed, 1, 50),
                   k,
                   optest_int(&seed, 1, 2),
                   optest_int(&seed, 0, 3),
                   optest_int(&seed, 0, 3),
                   optest_int(&seed, 0, 3),
                   optest_int(&seed, 0, 3)};
        convtest_extras x = {.act = (ist_act)optest_int(&seed, 0, 4),
                             .lab = optest_int(&seed, 0, 1),
                             .after = optest_int(&seed, 0, 1),
                             .slices = optest_int(&seed, 0, 1)};
        check_case(v, s, x, IST_ELEM_T, -1, 1000 + (unsigned)i);
    }
    optest_drop(&seed);
}

/* The variant that copies tiles to local memory, by emulation where there are no such copies: channels that end within
 * a block, tiles that end outside the map, uneven padding, items beyond the count. */
Test(dwconv, tiles) {
    const shape shapes[] = {{2, 9, 23, 72, 5, 1, 2, 2, 2, 2}, {1, 12, 5, 64, 3, 1, 0, 2, 2, 0}};
    setenv("ISTHMUS_CAPS", "+PTX_MMA", 1);
    setenv("ISTHMUS_HALF", "1", 1);
    const ist_variant *v = ist_variant_named(IST_NODE_DWCONV, "tile");
    if (!v) cr_skip_test("built without it");
    for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        convtest_extras x = {.act = i ? IST_ACT_RELU : IST_ACT_SILU, .lab = i};
        cr_assert(check_case(v, shapes[i], x, IST_ELEM_T, -1, 500 + i));
        cr_assert(check_case(v, shapes[i], x, IST_ELEM_T, 1, 502 + i));
    }
}

/* Maps large enough for several columns and eight channels per work-item. */
Test(dwconv, large_maps) {
    const shape shapes[] = {{1, 122, 133, 132, 5, 1, 2, 2, 2, 2},
                            {1, 131, 97, 68, 3, 2, 1, 1, 1, 1},
                            {1, 67, 69, 236, 3, 1, 1, 1, 1, 1},
                            {1, 130, 131, 252, 3, 1, 1, 1, 1, 1},
                            {1, 181, 182, 248, 3, 1, 1, 1, 1, 1}};
    CONVTEST_EACH(v, IST_NODE_DWCONV)
    for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0] && !optest_small(); i++)
        check_case(v, shapes[i], (convtest_extras){.act = IST_ACT_SILU, .slices = i % 2}, IST_ELEM_T, -1, 400 + i);
}

Test(dwconv, items_beyond_the_count_are_untouched) {
    CONVTEST_EACH(v, IST_NODE_DWCONV)
    for (int items = 0; items <= 4; items++)
        check_case(v, (shape){3, 5, 7, 18, 3, 1, 1, 1, 1, 1}, (convtest_extras){.act = IST_ACT_RELU}, IST_ELEM_T, items,
                   300);
}

Test(dwconv, refuses_what_does_not_fit) {
    optest t;
    float w[64] = {0};
    optest_begin(&t, "refusal", 0);
    ist_tensor x = optest_in(&t, optest_random(&t, 1, 4, 4, 3), IST_ELEM_T, false);
    cr_assert_not(
        ist_has(ist_op_dwconv(t.plan, x, (ist_filter){.out = 4, .in = 1, .kh = 3, .kw = 3, .w = w}, NULL, "layer.a")));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    cr_assert(strstr(ist_plan_error(t.plan)->text, "layer.a: depthwise filter [4,1,3,3] with stride 1 on [1,4,4,3]"));
    optest_drop(&t);
}

static void pools(void) {
    for (unsigned i = 0; i < 8; i++) {
        optest t;
        optest_begin(&t, "maxpool", i);
        int n = 1 + (int)i % 3, items = i == 5 ? 1 : -1;
        ref_map in = optest_random(&t, n, optest_int(&t, 1, 9), optest_int(&t, 1, 12), optest_int(&t, 1, 35));
        ref_map want = optest_zeros(&t, in.n, in.h, in.w, in.c);
        ist_tensor x = optest_in(&t, in, IST_ELEM_T, i % 2),
                   place = optest_out(&t, in.n, in.h, in.w, in.c, IST_ELEM_T, i % 2);
        if (items >= 0) ist_plan_limit(t.plan, optest_ints(&t, &items, 1));
        ist_tensor y = ist_op_maxpool2x2(t.plan, x, place, "pool");
        optest_run(&t);
        ref_maxpool2x2(in, want);
        optest_check(&t, "result", y, want, 0, 0, items);
        optest_end(&t);
    }
}

Test(maxpool, own_variant) {
    pools();
}

Test(maxpool, portable) {
    hide(IST_CAP_VEC16);
    pools();
}
