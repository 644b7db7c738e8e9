/* HGNetv2's first stage and the downsampling behind it as one launch, against the scalar definitions of its layers; by
 * emulation where there are no matrix instructions (isa/ptx). */
#include "ops/rows.h"
#include "ops/stage.h"
#include "support/claimed_matrix.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <string.h>

static ist_filter filter(optest *t, int out, int in, int k, bool bias) {
    float most = 3.0f / (float)(in * k * k);
    return (ist_filter){out,
                        in,
                        k,
                        k,
                        optest_values(t, (size_t)out * in * k * k, -most, most),
                        bias ? optest_values(t, (size_t)out, -0.5f, 0.5f) : NULL};
}

static void layers_of(optest *t, bool lab, ist_stem_layer l[IST_STAGE_LAYERS]) {
    for (int i = 0; i < IST_STAGE_LAYERS; i++) {
        l[i] = (ist_stem_layer){i < 3    ? filter(t, 16, 16, 3, true)
                                : i == 3 ? filter(t, 32, 64, 1, true)
                                         : filter(t, 64, 32, 1, false),
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

static ref_map wanted(optest *t, ref_map x, const ist_stem_layer l[IST_STAGE_LAYERS], const ist_filter *down) {
    ref_map cat = optest_zeros(t, x.n, x.h, x.w, 64), y = x;
    for (int i = 0; i < 4; i++) {
        put_channels(y, cat, 16 * i);
        if (i < 3) y = convolved(t, y, &l[i], 1);
    }
    y = convolved(t, convolved(t, cat, &l[3], 0), &l[4], 0);
    ref_map small = optest_zeros(t, x.n, (x.h + 1) / 2, (x.w + 1) / 2, 64);
    ref_dwconv(y, down->w, down->b, (ref_window){3, 3, 2, 1, 1}, &(ref_epilogue){0}, small);
    return small;
}

/* The result is the channels from 16 on of a map of 88 with `wide`, the input those from 8 on of one of 32. */
static void check_case(int n, int h, int w, bool lab, bool wide, int items, unsigned salt) {
    optest t;
    optest_begin(&t, "stage", salt);
    ist_stem_layer l[IST_STAGE_LAYERS];
    layers_of(&t, lab, l);
    ist_filter down = filter(&t, 64, 1, 3, !wide);
    ref_map x = optest_random(&t, n, h, w, 16), room = optest_random(&t, n, h, w, 32);
    put_channels(x, room, 8);
    ist_tensor in =
        wide ? ist_slice(optest_in(&t, room, IST_ELEM_T, false), 8, 16) : optest_in(&t, x, IST_ELEM_T, false);
    ist_tensor into = {0};
    if (wide) into = ist_slice(optest_out(&t, n, (h + 1) / 2, (w + 1) / 2, 88, IST_ELEM_T, false), 16, 64);
    if (items >= 0) ist_plan_limit(t.plan, optest_ints(&t, &items, 1));
    ist_tensor y = ist_op_stage(t.plan, in, l, down, into, "stage");
    optest_run(&t);
    double tol = optest_tolerance(&t, 9 * 16);
    optest_check(&t, "result", y, wanted(&t, x, l, &down), tol, tol * 2, items);
    optest_end(&t);
}

static void claim_all(void) {
    claim("-CPU,-SIMD16,+PTX_MMA");
}
TestSuite(stage_mma, .init = claim_all);

/* Whole tiles, tiles that end outside the map, odd sides, a map smaller than a tile. */
Test(stage_mma, matches_its_layers) {
    check_case(1, 20, 22, true, false, -1, 1);
    if (optest_small()) return;
    check_case(1, 7, 13, true, true, -1, 2);
    check_case(2, 11, 4, false, true, -1, 3);
}

Test(stage_mma, items_beyond_the_count_are_untouched) {
    if (optest_small()) return;
    for (int items = 0; items < 2; items++) check_case(2, 5, 6, true, true, items, 10 + (unsigned)items);
}

Test(stage_mma, refuses_what_does_not_fit) {
    optest t;
    optest_begin(&t, "refusal", 0);
    ist_stem_layer l[IST_STAGE_LAYERS];
    layers_of(&t, false, l);
    ist_tensor x = ist_plan_input(t.plan, 1, 8, 9, 24, IST_ELEM_T);
    cr_assert_not(ist_has(ist_op_stage(t.plan, x, l, filter(&t, 64, 1, 3, true), (ist_tensor){0}, "layer.a")));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    cr_assert(strstr(ist_plan_error(t.plan)->text, "layer.a: no fused stage for a map [1,8,9,24] and its layers"));
    optest_drop(&t);
}
