/* HGNetv2's first and second stage with the downsampling behind them as one launch, against the scalar definitions of
 * its layers; by emulation where there are no matrix instructions (nvidia/ptx). */
#include "support/claimed_matrix.h"
#include "support/lowered.h"

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

enum { LAYERS = 5 }; /* three of 3x3, each reading the one before; two of 1x1 on the input and these side by side */

typedef struct stage_shape {
    int in, deep, mix, out; /* channels */
} stage_shape;

static const stage_shape first = {16, 16, 32, 64}, second = {64, 32, 128, 256};

static void layers_of(optest *t, stage_shape s, bool lab, ist_stem_layer l[LAYERS]) {
    for (int i = 0; i < LAYERS; i++) {
        l[i] = (ist_stem_layer){i < 3    ? filter(t, s.deep, i ? s.deep : s.in, 3, true)
                                : i == 3 ? filter(t, s.mix, s.in + 3 * s.deep, 1, true)
                                         : filter(t, s.out, s.mix, 1, false),
                                1, 0};
        if (!lab) continue;
        l[i].lab_scale = optest_uniform(t, 0.5f, 1.5f);
        l[i].lab_bias = optest_uniform(t, -0.5f, 0.5f); /* so that zeros outside the map differ from its results */
    }
}

static ref_map convolved(optest *t, ref_map x, const ist_stem_layer *l, int border, ist_act act) {
    ref_map y = optest_zeros(t, x.n, x.h, x.w, l->f.out);
    ref_epilogue e = {.act = (int)act, .has_lab = true, .lab_scale = l->lab_scale, .lab_bias = l->lab_bias};
    ref_conv(x, l->f.w, l->f.b, (ref_window){l->f.kh, l->f.kw, 1, border, border}, &e, y);
    return y;
}

/* What makes a stage one that no kernel takes: an activation of its third layer or of its downsampling that none has, a
 * result of a layer within that something else reads. */
typedef enum twist { NO_TWIST, OTHER_ACT, DOWN_ACT, INNER_RESULT } twist;

static ist_act third_act(twist w) {
    return w == OTHER_ACT ? IST_ACT_SILU : IST_ACT_RELU;
}
static ist_act down_act(twist w) {
    return w == DOWN_ACT ? IST_ACT_RELU : IST_ACT_NONE;
}

/* What is downsampled. */
static ref_map wanted(optest *t, stage_shape s, ref_map x, const ist_stem_layer l[LAYERS], twist odd) {
    ref_map cat = optest_zeros(t, x.n, x.h, x.w, s.in + 3 * s.deep), y = x;
    lowered_put_channels(x, cat, 0);
    for (int i = 0; i < 3; i++) {
        y = convolved(t, y, &l[i], 1, i == 2 ? third_act(odd) : IST_ACT_RELU);
        lowered_put_channels(y, cat, s.in + i * s.deep);
    }
    return convolved(t, convolved(t, cat, &l[3], 0, IST_ACT_RELU), &l[4], 0, IST_ACT_RELU);
}

static ref_map downsampled(optest *t, ref_map x, const ist_filter *down, twist odd) {
    ref_map y = optest_zeros(t, x.n, (x.h + 1) / 2, (x.w + 1) / 2, x.c);
    ref_dwconv(x, down->w, down->b, (ref_window){3, 3, 2, 1, 1}, &(ref_epilogue){.act = (int)down_act(odd)}, y);
    return y;
}

/* A layer of the stage: an activation, LAB, the input's extents. */
static ist_tensor add_layer(lowered *g, ist_tensor x, const ist_stem_layer *l, ist_act act) {
    const int pad = l->f.kh / 2;
    const ist_epilogue e = {.act = act, .has_lab = true, .lab_scale = l->lab_scale, .lab_bias = l->lab_bias};
    ist_conv node = {.label = "layer",
                     .x = x,
                     .filter = l->f,
                     .o = {.top = pad, .left = pad, .bottom = pad, .right = pad, .epi = e}};
    lowered_add(g, IST_NODE_CONV, &node);
    return node.y;
}

/* The span: five layers, a concatenation between them, the downsampling. *whole is what is downsampled. */
static ist_tensor add_stage(lowered *g, ist_tensor x, const ist_stem_layer l[LAYERS], ist_filter down, twist odd,
                            ist_tensor *whole) {
    ist_concat cat = {.label = "cat", .x = {x}};
    ist_graph_begin(g->graph, IST_SPAN_STAGE, "stage");
    ist_tensor y = x;
    for (int i = 0; i < 3; i++) y = cat.x[1 + i] = add_layer(g, y, &l[i], i == 2 ? third_act(odd) : IST_ACT_RELU);
    lowered_add(g, IST_NODE_CONCAT, &cat);
    *whole = add_layer(g, add_layer(g, cat.y, &l[3], IST_ACT_RELU), &l[4], IST_ACT_RELU);
    ist_conv_opts o = {.stride = 2, .top = 1, .left = 1, .bottom = 1, .right = 1, .epi.act = down_act(odd)};
    ist_conv last = {.label = "down", .x = *whole, .filter = down, .o = o};
    lowered_add(g, IST_NODE_DWCONV, &last);
    ist_graph_end(g->graph);
    if (odd == INNER_RESULT) ist_graph_output(g->graph, cat.x[2]);
    return last.y;
}

/* With `wide` the input is channels of a wider map, those from 8 on, and the result those of one from BESIDE on; with
 * `whole` what is downsampled is a result too. variant: what the stage is one launch of, NULL: several launches. */
typedef struct stage_case {
    stage_shape shape;
    const char *variant;
    int n, h, w;
    bool lab, wide, whole;
    int items; /* -1: all */
    twist odd;
} stage_case;
enum { BESIDE = 16 };

/* One launch of the variant; without one none of any that takes stages whole. */
static void check_launches(const optest *t, const char *variant) {
    int all = ist_plan_describe(t->plan).launches, of[8] = {0}, count;
    const ist_variant *v = ist_variants_of(IST_SPAN_STAGE, &count);
    cr_assert_leq(count, 8);
    for (int i = 0; i < all; i++) {
        const ist_launch *l = ist_plan_launch_at(t->plan, i);
        bool fused = !strcmp(l->op, "nvidia/stage") || !strcmp(l->op, "nvidia/stage_wide");
        cr_assert(fused || !variant || strncmp(l->op, "nvidia/conv", 11), "%s beside %s", l->op, variant);
        for (int k = 0; k < count && fused; k++) of[k] += !strcmp(l->from.variant, v[k].name);
    }
    for (int k = 0; k < count; k++)
        cr_assert_eq(of[k], variant && !strcmp(v[k].name, variant), "%d launches of %s", of[k], v[k].name);
    if (!variant) cr_assert_gt(all, LAYERS, "%d launches", all);
}

/* The input of the case's stage, and what is beside its result (empty: nothing). */
typedef struct stage_maps {
    ref_map x, other;
} stage_maps;

static stage_maps inputs_of(optest *t, const stage_case *c, ist_tensor *from, ist_tensor *other) {
    int in = c->shape.in, h = (c->h + 1) / 2, w = (c->w + 1) / 2;
    stage_maps m = {optest_random(t, c->n, c->h, c->w, in), {0}};
    if (!c->wide) {
        *from = optest_in(t, m.x, IST_ELEM_T, false);
        return m;
    }
    ref_map room = optest_random(t, c->n, c->h, c->w, in + 16);
    lowered_put_channels(m.x, room, 8);
    *from = ist_slice(optest_in(t, room, IST_ELEM_T, false), 8, in);
    m.other = optest_random(t, c->n, h, w, BESIDE);
    *other = optest_in(t, m.other, IST_ELEM_T, false);
    return m;
}

/* The graph of the case; returns its result, what is beside it included. */
static ist_tensor add_case(lowered *g, const stage_case *c, const ist_stem_layer l[LAYERS], ist_filter down,
                           ist_tensor from, ist_tensor other, ist_tensor limit, ist_tensor *whole) {
    if (ist_has(limit)) ist_graph_limit(g->graph, lowered_input(g, limit));
    ist_concat cat = {.label = "beside"};
    if (c->wide) cat.x[0] = lowered_input(g, other);
    ist_tensor y = add_stage(g, lowered_input(g, from), l, down, c->odd, whole);
    if (c->whole) ist_graph_output(g->graph, *whole);
    if (c->wide) { /* since lowering makes results where they belong */
        cat.x[1] = y;
        lowered_add(g, IST_NODE_CONCAT, &cat);
        y = cat.y;
    }
    ist_graph_output(g->graph, y);
    return y;
}

static void check_case(stage_case c, unsigned salt) {
    optest t;
    lowered g;
    optest_begin(&t, "stage", salt);
    lowered_begin(&g);
    ist_stem_layer l[LAYERS];
    layers_of(&t, c.shape, c.lab, l);
    ist_filter down = filter(&t, c.shape.out, 1, 3, !c.wide);
    ist_tensor from, other = {0}, limit = {0}, whole;
    stage_maps in = inputs_of(&t, &c, &from, &other);
    if (c.items >= 0) limit = optest_ints(&t, &c.items, 1);
    ist_tensor y = add_case(&g, &c, l, down, from, other, limit, &whole);
    lowered_run(&g, &t);
    ist_tensor got = lowered_place(&g, y), got_whole = c.whole ? lowered_place(&g, whole) : got;
    lowered_end(&g);
    optest_run(&t);
    check_launches(&t, c.variant);
    ref_map want = wanted(&t, c.shape, in.x, l, c.odd), less = downsampled(&t, want, &down, c.odd), all = less;
    double tol = optest_tolerance(&t, 9 * c.shape.in);
    int items = c.items >= 0 ? c.items : c.n;
    if (c.wide) {
        all = optest_zeros(&t, less.n, less.h, less.w, BESIDE + less.c);
        lowered_put_channels(in.other, all, 0);
        lowered_put_channels(less, all, BESIDE);
    }
    if (c.whole) lowered_check_items(&t, "what is downsampled", got_whole, want, tol, 2 * tol, items);
    lowered_check_items(&t, "result", got, all, tol, 2 * tol, items);
    optest_end(&t);
}

static void claim_all(void) {
    if (!ist_variant_named(IST_SPAN_STAGE, "mma")) cr_skip_test("built without variants that take stages whole");
    claim("-CPU,-SIMD16,+PTX_MMA,+PTX_WGMMA");
}
TestSuite(stage_mma, .init = claim_all);

/* Whole tiles, tiles that end outside the map, odd sides, a map smaller than a tile. */
Test(stage_mma, matches_its_layers) {
    check_case((stage_case){first, "mma", 1, 20, 22, true, false, false, -1, NO_TWIST}, 1);
    if (optest_small()) return;
    check_case((stage_case){first, "mma", 1, 7, 13, true, true, false, -1, NO_TWIST}, 2);
    check_case((stage_case){first, "mma", 2, 11, 4, false, true, false, -1, NO_TWIST}, 3);
}

/* As many groups as PoCL's two units take. */
Test(stage_mma, second_matches_its_layers) {
    check_case((stage_case){second, "mma_wide", 1, 16, 8, true, false, true, -1, NO_TWIST}, 4);
    if (optest_small()) return;
    check_case((stage_case){second, "mma_wide", 1, 7, 13, true, true, true, -1, NO_TWIST}, 5);
    check_case((stage_case){second, "mma_wide", 2, 3, 6, false, true, false, -1, NO_TWIST}, 6);
}

Test(stage_mma, items_beyond_the_count_are_untouched) {
    if (optest_small()) return;
    for (int items = 0; items < 2; items++) {
        check_case((stage_case){first, "mma", 2, 5, 6, true, true, false, items, NO_TWIST}, 10 + (unsigned)items);
        check_case((stage_case){second, "mma_wide", 2, 5, 6, true, true, true, items, NO_TWIST}, 12 + (unsigned)items);
    }
}

/* Images of 40 x 40 pixels whose groups, 16 each, are more than the device's compute units are given: four each. */
static int images_too_many(void) {
    return 4 * optest_units() / 16 + 1;
}

/* Shapes that no kernel takes are several launches: other channels than one has, a second result that the first stage's
 * kernel has not, so many groups that they compute too much twice, and layers that are not those of a stage. */
Test(stage_mma, others_are_several_launches) {
    static const stage_shape other_in = {24, 16, 32, 64}, other_out = {64, 32, 128, 128}, deeper = {16, 32, 32, 64};
    if (optest_small()) return;
    check_case((stage_case){other_in, NULL, 1, 8, 9, true, false, false, -1, NO_TWIST}, 20);
    check_case((stage_case){first, NULL, 1, 8, 8, true, false, true, -1, NO_TWIST}, 21);
    check_case((stage_case){first, NULL, images_too_many(), 40, 40, false, false, false, -1, NO_TWIST}, 22);
    check_case((stage_case){other_out, NULL, 1, 6, 5, true, false, false, -1, NO_TWIST}, 23);
    check_case((stage_case){deeper, NULL, 2, 5, 6, true, true, false, 1, NO_TWIST}, 24);
    for (twist odd = OTHER_ACT; odd <= INNER_RESULT; odd++) {
        check_case((stage_case){first, NULL, 1, 7, 6, true, false, false, -1, odd}, 25 + (unsigned)odd);
        check_case((stage_case){second, NULL, 1, 4, 5, true, false, true, -1, odd}, 30 + (unsigned)odd);
    }
}

static void hide_all(void) {
    claim("-CPU,-SIMD16,-PTX_MMA,-PTX_WGMMA");
}
TestSuite(stage, .init = hide_all);

/* Nor does a device without matrix instructions, nor one without those of warpgroups the second stage. */
Test(stage, is_several_launches_without_matrix_instructions) {
    check_case((stage_case){first, NULL, 1, 5, 6, true, false, false, -1, NO_TWIST}, 40);
}
Test(stage, second_needs_warpgroups) {
    if (optest_small()) return;
    claim("-CPU,-SIMD16,+PTX_MMA,-PTX_WGMMA");
    check_case((stage_case){second, NULL, 1, 4, 5, true, false, false, -1, NO_TWIST}, 41);
}
