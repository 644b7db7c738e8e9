/* Separable convolutions: the fused row, by emulation of the matrix instructions where there are none (nvidia/ptx), and
 * the two launches, against the scalar definitions of both layers. */
#include "variants/variant.h"
#include "support/claimed_matrix.h"
#include "support/convtest.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void claim_all(void) {
    if (!ist_variant_named(IST_NODE_SEPARABLE, "mma")) cr_skip_test("built without the variants that take it whole");
    claim("+PTX_MMA,+PTX_WGMMA");
}
TestSuite(separable_mma, .init = claim_all);

typedef struct shape {
    int n, h, w, in, mid, k, stride;
    ist_act act;
    bool lab, slices;
} shape;

/* row: the variant that takes it whole; NULL: none does. */
static void check_row(shape s, const char *row, int items, unsigned salt) {
    optest t;
    char name[128];
    snprintf(name, sizeof name, "%dx%dx%dx%d -> %d, %dx%d stride %d, case %u", s.n, s.h, s.w, s.in, s.mid, s.k, s.k,
             s.stride, salt);
    optest_begin(&t, name, salt);
    int pad = s.k / 2, oh = (s.h + 2 * pad - s.k) / s.stride + 1, ow = (s.w + 2 * pad - s.k) / s.stride + 1;
    ref_map x = optest_random(&t, s.n, s.h, s.w, s.in), middle = optest_zeros(&t, s.n, s.h, s.w, s.mid);
    ref_map want = optest_zeros(&t, s.n, oh, ow, s.mid);
    size_t count = (size_t)s.in * (size_t)s.mid, mid = (size_t)s.mid;
    float *w = optest_values(&t, count, -1, 1), *d = optest_values(&t, mid * (size_t)(s.k * s.k), -0.3f, 0.3f);
    float *b = optest_values(&t, 2 * mid, -1, 1);
    for (size_t i = 0; i < count; i++) w[i] = rintf(w[i] * 1024) / 1024; /* exact in half */
    ist_conv_opts o = {.stride = s.stride, .top = pad, .left = pad, .bottom = pad, .right = pad};
    ref_epilogue r, none = {0};
    convtest_extras extras = {.act = s.act, .lab = s.lab};
    convtest_epilogue(&t, &extras, want, &o.epi, &r);
    o.into = s.slices ? ist_slice(optest_out(&t, s.n, oh, ow, s.mid + 6, IST_ELEM_T, false), 4, s.mid)
                      : optest_out(&t, s.n, oh, ow, s.mid, IST_ELEM_T, false);
    ist_tensor xt = optest_in(&t, x, IST_ELEM_T, false);
    if (items >= 0) ist_plan_limit(t.plan, optest_ints(&t, &items, 1));
    ist_filter point = {s.mid, s.in, 1, 1, w, b}, depth = {s.mid, 1, s.k, s.k, d, b + mid};
    ist_separable node = {.label = "test", .x = xt, .y = o.into, .point = point, .depth = depth, .o = o};
    const ist_variant *one = ist_variant_named(IST_NODE_SEPARABLE, row ? row : "mma");
    cr_assert(ist_kind_of(IST_NODE_SEPARABLE)->infer(&node, &t.err) == IST_OK, "%s", t.err.text);
    if (!row) cr_assert_not(one && ist_variant_takes(t.plan, one, &node), "%s", name);
    if (row) /* also where so many groups had better not compute their borders twice, which a plan would not choose */
        one->family->emit(t.plan, one, &node, 1);
    else
        ist_emit(t.plan, IST_NODE_SEPARABLE, &node);
    ist_tensor y = node.y;
    optest_run(&t);
    optest_takes(&t, row ? "nvidia/separable" : NULL);
    ref_conv(x, w, b, (ref_window){1, 1, 1, 0, 0}, &none, middle);
    ref_dwconv(middle, d, b + mid, (ref_window){s.k, s.k, s.stride, pad, pad}, &r, want);
    double tol = optest_tolerance(&t, s.in) + optest_tolerance(&t, s.k * s.k);
    optest_check(&t, "result", y, want, tol, tol * 2, items);
    optest_end(&t);
}

static void check_case(shape s, bool fused, int items, unsigned salt) {
    check_row(s, fused ? "mma" : NULL, items, salt);
    if (fused) check_row(s, "wgmma", items, salt + 100);
}

/* Tiles that end inside and outside the map; inputs that are no whole step; each width of a group. */
Test(separable_mma, index_arithmetic) {
    check_case((shape){1, 7, 13, 72, 32, 5, 1, IST_ACT_RELU, true, false}, true, -1, 1);
    if (optest_small()) return;
    check_case((shape){1, 12, 9, 64, 16, 3, 2, IST_ACT_NONE, false, true}, true, -1, 2);
    check_case((shape){2, 7, 15, 8, 48, 3, 1, IST_ACT_SILU, false, false}, true, -1, 3);
}

Test(separable_mma, more_steps_than_stages) {
    if (!optest_small()) check_case((shape){1, 4, 4, 328, 16, 5, 1, IST_ACT_RELU, false, false}, true, -1, 4);
}

Test(separable_mma, wide_groups_and_items_beyond_the_count) {
    for (int items = 0; items < 2 && !optest_small(); items++)
        check_case((shape){2, 22, 12, 16, 64, 5, 1, IST_ACT_RELU, true, false}, true, items, 5);
}

/* 48 channels, and 24 of one tile where a device has two units. */
Test(separable_mma, channels_in_threes) {
    check_case((shape){1, 13, 12, 40, 48, 5, 1, IST_ACT_RELU, true, false}, true, -1, 9);
    check_case((shape){1, 5, 10, 72, 48, 5, 1, IST_ACT_RELU, false, true}, true, -1, 10);
}

/* Channels that no fragment divides, a larger filter. */
Test(separable_mma, otherwise_two_launches) {
    check_case((shape){1, 6, 5, 16, 20, 5, 1, IST_ACT_RELU, true, false}, false, -1, 6);
    check_case((shape){1, 9, 8, 16, 16, 7, 2, IST_ACT_NONE, false, false}, false, -1, 7);
}

Test(separable, is_two_launches_in_fp32) {
    optest t;
    optest_begin(&t, "storage", 0);
    bool half = t.half;
    optest_drop(&t);
    if (!half) check_case((shape){1, 6, 5, 16, 32, 5, 1, IST_ACT_RELU, true, true}, false, -1, 8);
}
