/* D-FINE's box arithmetic against the scalar reference. */
#include "variants/ops.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <math.h>

enum { BINS = 33, ROW = 4 * BINS };

static const int shapes[][2] = {{1, 1}, {2, 17}, {1, 64}, {3, 33}, {1, 300}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void scale_values(ref_map m, float by, float add) {
    for (size_t i = 0; i < ref_size(m); i++) m.v[i] = m.v[i] * by + add;
}

Test(op_box, init) {
    for (unsigned i = 0; i < SHAPES; i++) {
        optest t;
        optest_begin(&t, "box_init", i);
        ref_map a = optest_random(&t, shapes[i][0], 1, shapes[i][1], 4);
        ref_map b = optest_random(&t, i % 2 ? 1 : shapes[i][0], 1, shapes[i][1], 4),
                want = optest_zeros(&t, a.n, 1, a.w, 4);
        scale_values(a, 4, 0);
        scale_values(b, 8, 0);
        b.v[0] = b.v[3] = INFINITY; /* the anchor of an invalid place */
        ist_tensor y =
            ist_op_box_init(t.plan, optest_in(&t, a, IST_ELEM_T, i % 2), optest_in(&t, b, IST_ELEM_F32, false), "init");
        optest_run(&t);
        ref_box_init(a, b, want);
        cr_assert_eq(optest_read(&t, y).v[0], 1.0f);
        optest_check(&t, "boxes", y, want, 1e-6, 1e-12, -1);
        optest_end(&t);
    }
}

Test(op_box, refine) {
    for (unsigned i = 0; i < SHAPES; i++) {
        optest t;
        optest_begin(&t, "box_refine", i);
        ref_map a = optest_random(&t, shapes[i][0], 1, shapes[i][1], 4), b = optest_random(&t, a.n, 1, a.w, 4);
        ref_map want = optest_zeros(&t, a.n, 1, a.w, 4);
        scale_values(b, 0.625f, 0.5f); /* also below 0 and above 1 */
        b.v[0] = 0, b.v[1] = 1, b.v[2] = 1e-6f, b.v[3] = 1 - 1e-6f;
        ist_tensor y = ist_op_box_refine(t.plan, optest_in(&t, a, IST_ELEM_F32, i % 2),
                                         optest_in(&t, b, IST_ELEM_F32, i % 3 == 1), "refine");
        optest_run(&t);
        ref_box_refine(a, b, want);
        optest_check(&t, "boxes", y, want, 2e-6, 1e-9, -1);
        optest_end(&t);
    }
}

/* W as weighting_function of dfine_utils.py makes it for up 0.5 and the given reg_scale. */
static void projection(double scale, float *w) {
    double a = 0.5 * scale, t = pow(a + 1, 1.0 / 15);
    for (int k = 1; k < 16; k++) w[k] = (float)(1 - pow(t, 16 - k)), w[32 - k] = (float)(pow(t, 16 - k) - 1);
    w[0] = (float)(-2 * a), w[16] = 0, w[32] = (float)(2 * a);
}

Test(op_box, distribution) {
    for (unsigned i = 0; i < SHAPES; i++)
        for (int first = 0; first < 2; first++) {
            optest t;
            optest_begin(&t, "fdr", 2 * i + (unsigned)first);
            ref_map a = optest_random(&t, shapes[i][0], 1, shapes[i][1], ROW);
            ref_map prev = optest_random(&t, a.n, 1, a.w, ROW), init = optest_random(&t, a.n, 1, a.w, 4);
            ref_map corners = optest_zeros(&t, a.n, 1, a.w, ROW), box = optest_zeros(&t, a.n, 1, a.w, 4);
            float w[BINS];
            double scale = first ? 4 : 8;
            projection(scale, w);
            scale_values(a, 4, 0); /* a power of two: exact in half */
            scale_values(prev, 20, 0);
            if (first) prev.v = NULL;
            ist_tensor after, none = {0};
            ist_tensor y = ist_op_fdr(t.plan, optest_in(&t, a, IST_ELEM_T, i % 2),
                                      first ? none : optest_in(&t, prev, IST_ELEM_F32, false),
                                      optest_in(&t, init, IST_ELEM_F32, false), w, (float)scale, &after, "fdr");
            optest_run(&t);
            ref_fdr(a, prev, init, w, scale, corners, box);
            optest_check(&t, "corners", after, corners, 0, 0, -1);
            optest_check(&t, "boxes", y, box, 3e-6, 3e-6, -1);
            optest_end(&t);
        }
}

Test(op_box, quality_statistics) {
    for (unsigned i = 0; i < SHAPES; i++) {
        optest t;
        optest_begin(&t, "lqe", i);
        ref_map corners = optest_random(&t, shapes[i][0], 1, shapes[i][1], ROW),
                want = optest_zeros(&t, corners.n, 1, corners.w, 20);
        scale_values(corners, i % 2 ? 30.0f : 2.0f, 0);
        for (int k = 0; k < BINS; k++) corners.v[k] = 0.5f; /* all equal: four times 1/33 */
        ist_tensor y = ist_op_lqe(t.plan, optest_in(&t, corners, IST_ELEM_F32, false), "lqe");
        optest_run(&t);
        ref_lqe(corners, want);
        optest_check(&t, "statistics", y, want, 3e-6, 1e-12, -1);
        optest_end(&t);
    }
}

Test(op_box, add_quality) {
    for (unsigned i = 0; i < SHAPES; i++) {
        optest t;
        optest_begin(&t, "add_quality", i);
        ref_map a = optest_random(&t, shapes[i][0], 1, shapes[i][1], 1 + 16 * (int)i),
                q = optest_random(&t, a.n, 1, a.w, 1);
        ref_map want = optest_zeros(&t, a.n, 1, a.w, a.c);
        ist_tensor y = ist_op_add_quality(t.plan, optest_in(&t, a, IST_ELEM_T, i % 2),
                                          optest_in(&t, q, IST_ELEM_T, i % 2), "quality");
        optest_run(&t);
        ref_add_quality(a, q, want);
        optest_check(&t, "logits", y, want, 0, 1e-7, -1);
        optest_end(&t);
    }
}

Test(op_box, limit) {
    optest t;
    optest_begin(&t, "limits", 0);
    int one = 1;
    float w[BINS];
    projection(4, w);
    ist_tensor four = optest_in(&t, optest_random(&t, 2, 1, 9, 4), IST_ELEM_F32, false), none = {0}, corners;
    ist_tensor row = optest_in(&t, optest_random(&t, 2, 1, 9, ROW), IST_ELEM_F32, false);
    ist_plan_limit(t.plan, optest_ints(&t, &one, 1));
    ist_tensor results[] = {ist_op_box_init(t.plan, four, four, "init"),
                            ist_op_box_refine(t.plan, four, four, "refine"),
                            ist_op_fdr(t.plan, row, none, four, w, 4, &corners, "fdr"),
                            corners,
                            ist_op_lqe(t.plan, row, "lqe"),
                            ist_op_add_quality(t.plan, four, ist_slice(four, 1, 1), "quality")};
    ist_plan_limit(t.plan, none);
    optest_run(&t);
    for (unsigned i = 0; i < sizeof results / sizeof *results; i++) {
        ref_map m = optest_read(&t, results[i]);
        size_t half = ref_size(m) / 2;
        cr_assert(!isnan(m.v[half - 1]) && isnan(m.v[half]) && isnan(m.v[2 * half - 1]), "result %u", i);
    }
    optest_end(&t);
}
