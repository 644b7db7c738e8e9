/* HGNetv2's first and second stage with the downsampling behind them as one launch, against the scalar definitions of
 * its layers; by emulation where there are no matrix instructions (nvidia/ptx). */
#include "variants/rows.h"
#include "variants/stage.h"
#include "support/claimed_matrix.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static ist_filter filter(optest *t, int out, int in, int k, bool bias) {
    float most = 2.0f / sqrtf((float)(in * k * k)); /* so that each layer's results vary as its inputs do */
    return (ist_filter){out,
                        in,
                        k,
                        k,
                        optest_values(t, (size_t)out * in * k * k, -most, most),
                        bias ? optest_values(t, (size_t)out, -0.5f, 0.5f) : NULL};
}

static const ist_stage_shape first = {16, 16, 32, 64}, second = {64, 32, 128, 256};

static void layers_of(optest *t, ist_stage_shape s, bool lab, ist_stem_layer l[IST_STAGE_LAYERS]) {
    for (int i = 0; i < IST_STAGE_LAYERS; i++) {
        l[i] = (ist_stem_layer){i < 3    ? filter(t, s.deep, i ? s.deep : s.in, 3, true)
                                : i == 3 ? filter(t, s.mix, s.in + 3 * s.deep, 1, true)
                                         : filter(t, s.out, s.mix, 1, false),
                                1, 0};
        if (!lab) continue;
        l[i].lab_scale = optest_uniform(t, 0.5f, 1.5f);
        l[i].lab_bias = optest_uniform(t, -0.5f, 0.5f); /* so that zeros outside the map differ from its results */
    }
}

static ref_map convolved(optest *t, ref_map x, const ist_stem_layer *l, int border) {
    ref_map y = optest_zeros(t, x.n, x.h, x.w, l->f.out);
    ref_epilogue e = {.act = 1, .has_lab = true, .lab_scale = l->lab_scale, .lab_bias = l->lab_bias};
    ref_conv(x, l->f.w, l->f.b, (ref_window){l->f.kh, l->f.kw, 1, border, border}, &e, y);
    return y;
}

static void put_channels(ref_map from, ref_map to, int c0) {
    for (int i = 0; i < from.n * from.h * from.w; i++)
        memcpy(to.v + (size_t)i * to.c + c0, from.v + (size_t)i * from.c, (size_t)from.c * sizeof(float));
}

/* What is downsampled. */
static ref_map wanted(optest *t, ist_stage_shape s, ref_map x, const ist_stem_layer l[IST_STAGE_LAYERS]) {
    ref_map cat = optest_zeros(t, x.n, x.h, x.w, s.in + 3 * s.deep), y = x;
    put_channels(x, cat, 0);
    for (int i = 0; i < 3; i++) {
        y = convolved(t, y, &l[i], 1);
        put_channels(y, cat, s.in + i * s.deep);
    }
    return convolved(t, convolved(t, cat, &l[3], 0), &l[4], 0);
}

static ref_map downsampled(optest *t, ref_map x, const ist_filter *down) {
    ref_map y = optest_zeros(t, x.n, (x.h + 1) / 2, (x.w + 1) / 2, x.c);
    ref_dwconv(x, down->w, down->b, (ref_window){3, 3, 2, 1, 1}, &(ref_epilogue){0}, y);
    return y;
}

/* With `wide` all maps are channels of wider ones: the result those from 16 on, the input those from 8 on; with `whole`
 * what is downsampled is a result too. */
typedef struct stage_case {
    ist_stage_shape shape;
    int n, h, w;
    bool lab, wide, whole;
    int items; /* -1: all */
} stage_case;

static void check_case(stage_case c, unsigned salt) {
    optest t;
    optest_begin(&t, "stage", salt);
    ist_stem_layer l[IST_STAGE_LAYERS];
    layers_of(&t, c.shape, c.lab, l);
    int in = c.shape.in, out = c.shape.out, more = c.wide ? 24 : 0;
    ist_filter down = filter(&t, out, 1, 3, !c.wide);
    ref_map x = optest_random(&t, c.n, c.h, c.w, in), room = optest_random(&t, c.n, c.h, c.w, in + 16);
    put_channels(x, room, 8);
    ist_tensor from =
        c.wide ? ist_slice(optest_in(&t, room, IST_ELEM_T, false), 8, in) : optest_in(&t, x, IST_ELEM_T, false);
    ist_tensor into = {0}, whole = {0};
    if (c.wide)
        into = ist_slice(optest_out(&t, c.n, (c.h + 1) / 2, (c.w + 1) / 2, out + more, IST_ELEM_T, false), 16, out);
    if (c.whole) whole = ist_slice(optest_out(&t, c.n, c.h, c.w, out + more, IST_ELEM_T, false), more / 3, out);
    if (c.items >= 0) ist_plan_limit(t.plan, optest_ints(&t, &c.items, 1));
    ist_tensor y = ist_op_stage(t.plan, c.shape, from, l, down, into, whole, "stage");
    optest_run(&t);
    ref_map want = wanted(&t, c.shape, x, l);
    double tol = optest_tolerance(&t, 9 * in);
    if (c.whole) optest_check(&t, "what is downsampled", whole, want, tol, tol * 2, c.items);
    optest_check(&t, "result", y, downsampled(&t, want, &down), tol, tol * 2, c.items);
    optest_end(&t);
}

static void claim_all(void) {
    claim("-CPU,-SIMD16,+PTX_MMA,+PTX_WGMMA");
}
TestSuite(stage_mma, .init = claim_all);

/* Whole tiles, tiles that end outside the map, odd sides, a map smaller than a tile. */
Test(stage_mma, matches_its_layers) {
    check_case((stage_case){first, 1, 20, 22, true, false, false, -1}, 1);
    if (optest_small()) return;
    check_case((stage_case){first, 1, 7, 13, true, true, false, -1}, 2);
    check_case((stage_case){first, 2, 11, 4, false, true, false, -1}, 3);
}

/* As many groups as PoCL's two units take. */
Test(stage_mma, second_matches_its_layers) {
    check_case((stage_case){second, 1, 16, 8, true, false, true, -1}, 4);
    if (optest_small()) return;
    check_case((stage_case){second, 1, 7, 13, true, true, true, -1}, 5);
    check_case((stage_case){second, 2, 3, 6, false, true, false, -1}, 6);
}

Test(stage_mma, items_beyond_the_count_are_untouched) {
    if (optest_small()) return;
    for (int items = 0; items < 2; items++) {
        check_case((stage_case){first, 2, 5, 6, true, true, false, items}, 10 + (unsigned)items);
        check_case((stage_case){second, 2, 5, 6, true, true, true, items}, 12 + (unsigned)items);
    }
}

static void check_refusal(ist_stage_shape s, ist_tensor x, ist_tensor whole, optest *t, const char *what) {
    ist_stem_layer l[IST_STAGE_LAYERS];
    layers_of(t, s, false, l);
    ist_filter down = filter(t, s.out, 1, 3, true);
    cr_assert_not(ist_has(ist_op_stage(t->plan, s, x, l, down, (ist_tensor){0}, whole, "layer.a")));
    cr_assert_eq(ist_plan_status(t->plan), IST_E_ARGUMENT);
    cr_assert(strstr(ist_plan_error(t->plan)->text, what), "%s", ist_plan_error(t->plan)->text);
    optest_drop(t);
}

/* Other channels than the shape says, a shape without kernel, a second result that the first stage's kernel has not. */
Test(stage_mma, refuses_what_does_not_fit) {
    const char *what = "layer.a: no fused stage for a map [1,8,9,24] and its layers";
    for (int i = 0; i < 2; i++) {
        optest t;
        optest_begin(&t, "refusal", 0);
        ist_tensor x = ist_plan_input(t.plan, 1, 8, 9, 24, IST_ELEM_T);
        check_refusal(i ? first : (ist_stage_shape){24, 16, 32, 64}, x, (ist_tensor){0}, &t, what);
    }
    optest t;
    optest_begin(&t, "refusal", 0);
    ist_tensor x = ist_plan_input(t.plan, 1, 8, 8, 16, IST_ELEM_T),
               y = ist_plan_tensor(t.plan, 1, 8, 8, 64, IST_ELEM_T);
    check_refusal(first, x, y, &t, "layer.a: no fused stage for a map [1,8,8,16] and its layers");
}
