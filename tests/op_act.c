/* Accuracy of the activations, in every vector width: a 1x1 convolution with weight 1 hands its input to them
 * unchanged. */
#include "support/convtest.h"
#include "support/tiles.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>

enum { COUNT = 1 << 17, SMALL_COUNT = 1 << 9 };

/* Half of the values evenly in [-110, 110], half with evenly spread exponents from 1e-30 to 100, both signs, and zero.
 */
static ref_map sweep(optest *t) {
    int count = optest_small() ? SMALL_COUNT : COUNT;
    ref_map m = optest_zeros(t, 1, 1, count, 1);
    for (int i = 1; i < count / 2; i++) m.v[i] = -110.0f + 220.0f * (float)i / (float)(count / 2);
    for (int i = count / 2; i < count; i++) {
        float v = (float)exp(log(1e-30) + (log(100.0) - log(1e-30)) * optest_uniform(t, 0, 1));
        m.v[i] = i % 2 ? v : -v;
    }
    return m;
}

/* Largest error |got - want| / scale(v) over the sweep, for one variant and activation. */
static double worst(const ist_variant *v, ist_act act, double (*scale)(double v, double want)) {
    optest t;
    optest_begin(&t, v->name, (unsigned)act);
    ref_map in = sweep(&t);
    float one = 1;
    ist_conv q = {.label = "act",
                  .x = optest_in(&t, in, IST_ELEM_F32, false),
                  .y = optest_out(&t, 1, 1, in.w, 1, IST_ELEM_F32, false),
                  .filter = {.out = 1, .in = 1, .kh = 1, .kw = 1, .w = &one},
                  .o = {.epi.act = act}};
    convtest_emit(&t, v, 1, &q);
    optest_run(&t);
    ref_map got = optest_read(&t, q.y);
    double most = 0;
    for (int i = 0; i < in.w; i++) {
        double want = ref_act(in.v[i], (int)act), e = fabs(got.v[i] - want) / scale(in.v[i], want);
        if (!(e <= most)) most = e; /* NaN stays */
    }
    optest_end(&t);
    return most;
}

/* Relative to the result; where that is below 1e-29, 1e-36 more or less is the same (exp is held at 2.4e38). */
static double by_result(double v, double want) {
    (void)v;
    return fabs(want) > 1e-29 ? fabs(want) : 1e-29;
}
/* Relative to v: 1 + erf cancels for negative v, in the published models too. */
static double by_input(double v, double want) {
    (void)want;
    return fabs(v) > 1e-30 ? fabs(v) : 1e-30;
}

static bool takes(const ist_variant *v) {
    optest t;
    optest_begin(&t, "capabilities", 0);
    ist_tensor one = {.buffer = 1, .n = 1, .h = 1, .w = 1 << 12, .c = 1, .ld = 1, .elem = IST_ELEM_F32};
    ist_conv q = {.label = "act", .x = one, .y = one, .filter = {.out = 1, .in = 1, .kh = 1, .kw = 1}};
    bool yes = ist_variant_takes(t.plan, v, &q);
    optest_drop(&t);
    return yes;
}

static void check(ist_act act, double (*scale)(double v, double want), double tolerance) {
    int checked = 0;
    CONVTEST_EACH(v, IST_NODE_CONV) {
        if (!takes(v) || (optest_quick() && is_another_tile(v, "tile_32x32"))) continue;
        double e = worst(v, act, scale);
        cr_assert(e <= tolerance, "%s, activation %d: error %g of the scale, at most %g", v->name, (int)act, e,
                  tolerance);
        checked++;
    }
    cr_assert_geq(checked, 2, "the portable ones at least");
}

Test(act, relu_is_exact) {
    check(IST_ACT_RELU, by_result, 0);
}
Test(act, silu_to_4_ulp) {
    check(IST_ACT_SILU, by_result, 4 * FLT_EPSILON / 2);
}
Test(act, sigmoid_to_4_ulp) {
    check(IST_ACT_SIGMOID, by_result, 4 * FLT_EPSILON / 2);
}
Test(act, gelu_to_4_ulp_of_its_input) {
    check(IST_ACT_GELU, by_input, 4 * FLT_EPSILON / 2);
}
