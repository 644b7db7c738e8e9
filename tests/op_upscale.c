/* Mask upscaling against the scalar reference, on the device's own row and the portable ones. */
#include "ops/upscale.h"
#include "support/claimed_matrix.h"
#include "support/hidden_caps.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <math.h>

/* bits of i: 1 slices, 2 limit. */
static void upscale_case(int n, int h, int w, int k, int masks, unsigned i) {
    enum { C1 = IST_UPSCALE_MIDDLE, C2 = IST_UPSCALE_OUT };
    optest t;
    optest_begin(&t, "upscale", i + 10u * (unsigned)(h + w + k));
    int count = i & 2 ? n - 1 : n;
    float *w1 = optest_values(&t, (size_t)k * C1 * 4, -0.2f, 0.2f), *b1 = optest_values(&t, C1, -1, 1);
    float *gamma = optest_values(&t, C1, -1, 1), *beta = optest_values(&t, C1, -1, 1);
    float *w2 = optest_values(&t, C1 * C2 * 4, -0.2f, 0.2f), *b2 = optest_values(&t, C2, -1, 1);
    ist_upscale_weights weights = {w1, b1, gamma, beta, w2, b2, 1e-6f};
    if (t.half) { /* rows may store weights as they store activations */
        for (int e = 0; e < k * C1 * 4; e++) w1[e] = rintf(w1[e] * 1024) / 1024;
        for (int e = 0; e < C1 * C2 * 4; e++) w2[e] = rintf(w2[e] * 1024) / 1024;
    }
    ref_map x = optest_random(&t, n, h, w, k), vectors = optest_random(&t, n, 1, masks, C2);
    ref_map want = optest_zeros(&t, n * masks, 4 * h, 4 * w, 1);
    ist_tensor xt = optest_in(&t, x, IST_ELEM_T, i & 1), vt = optest_in(&t, vectors, IST_ELEM_T, i & 1);
    if (count < n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_tensor y = ist_op_upscale(t.plan, xt, &weights, vt, NULL, "upscale");
    optest_run(&t);
    ref_upscale(x, w1, b1, gamma, beta, 1e-6, w2, b2, vectors, want);
    want.n = count * masks;
    ref_map got = optest_read(&t, y);
    got.n = want.n;
    /* Float results, inputs rounded to the storage type before; on matrix instructions the middle is rounded as well.
     */
    bool matrix = t.half && ist_plan_caps(t.plan) & IST_CAP_PTX_MMA;
    optest_close(&t, "upscale", got, want, 0, matrix ? 4e-3 : 2e-5);
    optest_end(&t);
}

static void shapes(void) {
    for (unsigned i = 0; i < 4; i++) {
        upscale_case(2, 1, 2, 16, 1, i);
        if (optest_small()) return;
        upscale_case(2, 3, 5, 256, 1, i);
        upscale_case(3, 9, 8, 64, 3, i);
        upscale_case(1 + (i > 1), 7, 11, 48, 2, i);
    }
}

Test(upscale, own_row) {
    without = 0;
    shapes();
}

Test(upscale, portable) {
    without = IST_CAP_VEC16;
    shapes();
}

Test(upscale, portable_small_groups) {
    without = IST_CAP_VEC16 | IST_CAP_GROUP256;
    shapes();
}

/* The row on matrix instructions; without them isa/ptx computes the same in plain OpenCL. */
Test(upscale, matrix) {
    without = IST_CAP_VEC16;
    if (!claim_matrix_instructions()) return;
    upscale_case(1, 1, 3, 32, 1, 0);
    if (optest_small()) return;
    upscale_case(2, 3, 5, 256, 1, 2);
    upscale_case(3, 9, 8, 64, 3, 0);
    upscale_case(5, 43, 48, 32, 1, 2); /* more prompts than groups along them */
    upscale_case(3, 5, 31, 96, 2, 2);
}

Test(upscale, refuses_other_vectors) {
    without = 0;
    optest t;
    float zeros[64 * 64 * 4] = {0};
    optest_begin(&t, "upscale refusal", 1);
    ist_upscale_weights weights = {zeros, zeros, zeros, zeros, zeros, zeros, 1e-6f};
    ist_tensor x = optest_in(&t, optest_random(&t, 1, 2, 2, 64), IST_ELEM_T, false);
    ist_tensor v = optest_in(&t, optest_random(&t, 1, 1, 1, 16), IST_ELEM_T, false);
    cr_assert_not(ist_has(ist_op_upscale(t.plan, x, &weights, v, NULL, "upscale")));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    optest_drop(&t);
}
