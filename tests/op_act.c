/* Accuracy of the activations, in every vector width: a 1x1 convolution with weight 1 hands its input to them
 * unchanged. */
#include "variants/conv_rows.h"
#include "support/optest.h"

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

/* Largest error |got - want| / scale(v) over the sweep, for one row and activation. */
static double worst(const ist_conv_row *row, ist_act act, double (*scale)(double v, double want)) {
    optest t;
    optest_begin(&t, row->name, (unsigned)act);
    ref_map in = sweep(&t);
    float one = 1;
    ist_conv_opts o = {.epi.act = act};
    ist_tensor x = optest_in(&t, in, IST_ELEM_F32, false), y = {0};
    o.into = optest_out(&t, 1, 1, in.w, 1, IST_ELEM_F32, false);
    y = ist_op_conv_row(t.plan, x, (ist_filter){1, 1, 1, 1, &one, NULL}, &o, (ist_conv_choice){row, 1}, "act");
    optest_run(&t);
    ref_map got = optest_read(&t, y);
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

static bool runs(const ist_conv_row *row) {
    optest t;
    optest_begin(&t, "capabilities", 0);
    bool can = ist_conv_row_runs(t.plan, row) && row->family == IST_CONV_PANELS; /* inputs here are float */
    optest_drop(&t);
    return can;
}

static void check(ist_act act, double (*scale)(double v, double want), double tolerance) {
    for (int i = 0; i < ist_conv_row_count(); i++) {
        const ist_conv_row *row = ist_conv_row_at(i);
        if (!runs(row)) continue;
        double e = worst(row, act, scale);
        cr_assert(e <= tolerance, "%s, activation %d: error %g of the scale, at most %g", row->name, (int)act, e,
                  tolerance);
    }
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
