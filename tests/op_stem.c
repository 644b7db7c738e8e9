/* HGNetv2's stem as one launch, against the scalar definitions of its layers. */
#include "variants/variant.h"
#include "support/claimed_matrix.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    int n, h, w, mid, out;
    bool lab;
} shape;

static ist_stem_layer layer(optest *t, int out, int in, int k, bool lab, bool bias) {
    float most = 1.0f / (float)(in * k * k > 4 ? in * k * k / 4 : 1);
    ist_stem_layer l = {{out, in, k, k, optest_values(t, (size_t)out * in * k * k, -most, most),
                         bias ? optest_values(t, (size_t)out, -0.5f, 0.5f) : NULL},
                        1,
                        0};
    if (lab) {
        l.lab_scale = optest_uniform(t, 0.5f, 1.5f);
        l.lab_bias = optest_uniform(t, -0.5f, 0.5f);
    }
    return l;
}

static void layers_of(optest *t, shape s, ist_stem_layer l[5]) {
    l[0] = layer(t, s.mid, 3, 3, s.lab, true);
    l[1] = layer(t, s.mid / 2, s.mid, 2, s.lab, true);
    l[2] = layer(t, s.mid, s.mid / 2, 2, s.lab, false);
    l[3] = layer(t, s.mid, 2 * s.mid, 3, s.lab, true);
    l[4] = layer(t, s.out, s.mid, 1, s.lab, true);
}

static ref_map convolved(optest *t, ref_map x, const ist_stem_layer *l, int stride, int near) {
    ref_map y = optest_zeros(t, x.n, x.h / stride, x.w / stride, l->f.out);
    ref_epilogue e = {.act = 1, .has_lab = true, .lab_scale = l->lab_scale, .lab_bias = l->lab_bias};
    ref_conv(x, l->f.w, l->f.b, (ref_window){l->f.kh, l->f.kw, stride, near, near}, &e, y);
    return y;
}

/* Channels of a, then those of b. */
static ref_map beside(optest *t, ref_map a, ref_map b) {
    ref_map y = optest_zeros(t, a.n, a.h, a.w, a.c + b.c);
    for (int i = 0; i < a.n * a.h * a.w; i++) {
        memcpy(y.v + (size_t)i * y.c, a.v + (size_t)i * a.c, (size_t)a.c * sizeof(float));
        memcpy(y.v + (size_t)i * y.c + a.c, b.v + (size_t)i * b.c, (size_t)b.c * sizeof(float));
    }
    return y;
}

static ref_map wanted(optest *t, ref_map image, const ist_stem_layer l[5]) {
    ref_map a = convolved(t, image, &l[0], 2, 1), pool = optest_zeros(t, a.n, a.h, a.w, a.c);
    ref_map c = convolved(t, convolved(t, a, &l[1], 1, 0), &l[2], 1, 0);
    ref_maxpool2x2(a, pool);
    return convolved(t, convolved(t, beside(t, pool, c), &l[3], 2, 1), &l[4], 1, 0);
}

/* The node; its layers' names are "layer". */
static ist_stem node_of(ist_tensor image, const ist_stem_layer l[5], ist_tensor into, const char *label) {
    ist_stem node = {.label = label, .image = image, .y = into};
    for (int i = 0; i < IST_STEM_LAYERS; i++) {
        node.names[i] = "layer";
        node.layers[i] = l[i];
    }
    return node;
}

/* By variant number `which`, if it takes the node; the first one tried must launch `kernel`, unless that is NULL. */
static void check_case(shape s, bool slice, int items, unsigned salt, int which, int *tried, const char *kernel) {
    optest t;
    optest_begin(&t, "stem", salt);
    ist_stem_layer l[5];
    layers_of(&t, s, l);
    ref_map image = optest_random(&t, s.n, s.h, s.w, 3);
    ist_tensor x = optest_in(&t, image, IST_ELEM_T, false);
    ist_tensor into = optest_out(&t, s.n, s.h / 4, s.w / 4, s.out, IST_ELEM_T, slice);
    if (items >= 0) ist_plan_limit(t.plan, optest_ints(&t, &items, 1));
    ist_stem node = node_of(x, l, into, "stem");
    int count;
    const ist_variant *v = ist_variants_of(IST_NODE_STEM, &count) + which;
    cr_assert(ist_kind_of(IST_NODE_STEM)->infer(&node, &t.err) == IST_OK, "%s", t.err.text);
    if (!ist_variant_takes(t.plan, v, &node)) {
        optest_drop(&t);
        return;
    }
    ist_emit_by(t.plan, v, 0, &node);
    optest_run(&t);
    if (!*tried) optest_takes(&t, kernel);
    ++*tried;
    double tol = optest_tolerance(&t, 18 * s.mid);
    optest_check(&t, v->name, node.y, wanted(&t, image, l), tol, tol * 2, items);
    optest_end(&t);
}

/* By every variant that takes the node; returns how many do. */
static int check_variants(shape s, bool slice, int items, unsigned salt, const char *kernel) {
    int count, tried = 0;
    ist_variants_of(IST_NODE_STEM, &count);
    for (int i = 0; i < count; i++) check_case(s, slice, items, salt, i, &tried, kernel);
    return tried;
}

Test(stem, matches_its_layers) {
    const shape shapes[] = {{1, 64, 64, 16, 16, true},  {2, 96, 128, 16, 32, false}, {1, 64, 160, 24, 32, true},
                            {1, 128, 64, 32, 48, true}, {1, 160, 96, 16, 16, true},  {1, 96, 96, 32, 64, false}};
    for (unsigned i = 0; i < (optest_small() ? 1 : sizeof shapes / sizeof shapes[0]); i++)
        cr_assert_geq(check_variants(shapes[i], i % 2, -1, i, NULL), 1);
}

Test(stem, items_beyond_the_count_are_untouched) {
    for (int items = 0; items <= (optest_small() ? 0 : 3); items++)
        check_variants((shape){2, 64, 64, 16, 16, true}, true, items, 50, NULL);
}

static void claim_all(void) {
    claim("-CPU,-SIMD16,+PTX_MMA");
}
TestSuite(stem_mma, .init = claim_all);

/* The row on matrix instructions, by emulation where there are none (nvidia/ptx): each size of a tile, tiles that end
 * outside the map, channels that are rounded up. */
Test(stem_mma, matches_its_layers) {
    check_variants((shape){1, 36, 44, 16, 16, true}, false, -1, 70, "nvidia/stem");
    if (optest_small()) return;
    check_variants((shape){2, 20, 36, 24, 32, true}, true, 1, 71, "nvidia/stem");
}

Test(stem, refuses_what_does_not_fit) {
    optest t;
    ist_stem_layer l[5];
    optest_begin(&t, "refusal", 0);
    layers_of(&t, (shape){1, 64, 64, 16, 16, false}, l);
    ist_stem node = node_of(ist_plan_input(t.plan, 1, 64, 30, 3, IST_ELEM_T), l, (ist_tensor){0}, "layer.a");
    ist_emit(t.plan, IST_NODE_STEM, &node);
    cr_assert_not(ist_has(node.y));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    cr_assert(strstr(ist_plan_error(t.plan)->text, "layer.a: "), "%s", ist_plan_error(t.plan)->text);
    cr_assert(strstr(ist_plan_error(t.plan)->text, "[1,64,30,3]"), "%s", ist_plan_error(t.plan)->text);
    optest_drop(&t);
}
