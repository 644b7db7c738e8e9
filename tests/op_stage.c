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
static ref_map wanted(optest *t, stage_shape s, ref_map x, const ist_stem_layer l[LAYERS]) {
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

/* A layer of the stage: relu, LAB, the input's extents. */
static ist_tensor add_layer(lowered *g, ist_tensor x, const ist_stem_layer *l) {
    const int pad = l->f.kh / 2;
    const ist_epilogue e = {.act = IST_ACT_RELU, .has_lab = true, .lab_scale = l->lab_scale, .lab_bias = l->lab_bias};
    ist_conv node = {.label = "layer",
                     .x = x,
                     .filter = l->f,
                     .o = {.top = pad, .left = pad, .bottom = pad, .right = pad, .epi = e}};
    lowered_add(g, IST_NODE_CONV, &node);
    return node.y;
}

/* The span: five layers, a concatenation between them, the downsampling. *whole is what is downsampled. */
static ist_tensor add_stage(lowered *g, ist_tensor x, const ist_stem_layer l[LAYERS], ist_filter down,
                            ist_tensor *whole) {
    ist_concat cat = {.label = "cat", .x = {x}};
    ist_graph_begin(g->graph, IST_SPAN_STAGE, "stage");
    ist_tensor y = x;
    for (int i = 0; i < 3; i++) y = cat.x[1 + i] = add_layer(g, y, &l[i]);
    lowered_add(g, IST_NODE_CONCAT, &cat);
    *whole = add_layer(g, add_layer(g, cat.y, &l[3]), &l[4]);
    ist_conv last = {
        .label = "down", .x = *whole, .filter = down, .o = {.stride = 2, .top = 1, .left = 1, .bottom = 1, .right = 1}};
    lowered_add(g, IST_NODE_DWCONV, &last);
    ist_graph_end(g->graph);
    return last.y;
}

/* With `wide` the input is channels of a wider map, those from 8 on; with `whole` what is downsampled is a result too.
 * kernel: what must be launched, NULL: several launches. */
typedef struct stage_case {
    stage_shape shape;
    const char *kernel;
    int n, h, w;
    bool lab, wide, whole;
    int items; /* -1: all */
} stage_case;

/* A map [n,h,w,c] beside something else, since lowering makes results where they belong. */
static ist_tensor beside(lowered *g, ist_tensor y, ist_tensor other) {
    ist_concat cat = {.label = "beside", .x = {other, y}};
    lowered_add(g, IST_NODE_CONCAT, &cat);
    ist_graph_output(g->graph, cat.y);
    return ist_slice(cat.y, other.c, y.c);
}

static void check_case(stage_case c, unsigned salt) {
    optest t;
    lowered g;
    optest_begin(&t, "stage", salt);
    lowered_begin(&g);
    ist_stem_layer l[LAYERS];
    layers_of(&t, c.shape, c.lab, l);
    int in = c.shape.in, out = c.shape.out;
    ist_filter down = filter(&t, out, 1, 3, !c.wide);
    ref_map x = optest_random(&t, c.n, c.h, c.w, in), room = optest_random(&t, c.n, c.h, c.w, in + 16);
    put_channels(x, room, 8);
    ist_tensor from =
        c.wide ? ist_slice(optest_in(&t, room, IST_ELEM_T, false), 8, in) : optest_in(&t, x, IST_ELEM_T, false);
    ist_tensor limit = {0}, whole, y, other = {0};
    if (c.items >= 0) limit = lowered_input(&g, optest_ints(&t, &c.items, 1));
    if (c.wide)
        other = lowered_input(
            &g, optest_in(&t, optest_random(&t, c.n, (c.h + 1) / 2, (c.w + 1) / 2, 16), IST_ELEM_T, false));
    ist_graph_limit(g.graph, limit);
    y = add_stage(&g, lowered_input(&g, from), l, down, &whole);
    if (c.whole) ist_graph_output(g.graph, whole);
    if (c.wide)
        y = beside(&g, y, other);
    else
        ist_graph_output(g.graph, y);
    lowered_run(&g, &t);
    ist_tensor got = lowered_place(&g, y), got_whole = c.whole ? lowered_place(&g, whole) : got;
    lowered_end(&g);
    optest_run(&t);
    optest_takes(&t, c.kernel);
    ref_map want = wanted(&t, c.shape, x, l), less = downsampled(&t, want, &down);
    double tol = optest_tolerance(&t, 9 * in);
    int items = c.items >= 0 ? c.items : c.n;
    if (c.whole) {
        ref_map all = optest_read(&t, got_whole);
        all.n = want.n = items;
        optest_close(&t, "what is downsampled", all, want, tol, tol * 2);
    }
    ref_map all = optest_read(&t, got);
    all.n = less.n = items;
    optest_close(&t, "result", all, less, tol, tol * 2);
    optest_end(&t);
}

static void claim_all(void) {
    claim("-CPU,-SIMD16,+PTX_MMA,+PTX_WGMMA");
}
TestSuite(stage_mma, .init = claim_all);

/* Whole tiles, tiles that end outside the map, odd sides, a map smaller than a tile. */
Test(stage_mma, matches_its_layers) {
    check_case((stage_case){first, "nvidia/stage", 1, 20, 22, true, false, false, -1}, 1);
    if (optest_small()) return;
    check_case((stage_case){first, "nvidia/stage", 1, 7, 13, true, true, false, -1}, 2);
    check_case((stage_case){first, "nvidia/stage", 2, 11, 4, false, true, false, -1}, 3);
}

/* As many groups as PoCL's two units take. */
Test(stage_mma, second_matches_its_layers) {
    check_case((stage_case){second, "nvidia/stage_wide", 1, 16, 8, true, false, true, -1}, 4);
    if (optest_small()) return;
    check_case((stage_case){second, "nvidia/stage_wide", 1, 7, 13, true, true, true, -1}, 5);
    check_case((stage_case){second, "nvidia/stage_wide", 2, 3, 6, false, true, false, -1}, 6);
}

Test(stage_mma, items_up_to_the_count) {
    if (optest_small()) return;
    for (int items = 0; items < 2; items++) {
        check_case((stage_case){first, "nvidia/stage", 2, 5, 6, true, true, false, items}, 10 + (unsigned)items);
        check_case((stage_case){second, "nvidia/stage_wide", 2, 5, 6, true, true, true, items}, 12 + (unsigned)items);
    }
}

/* Other channels than a kernel has, and a second result that the first stage's kernel has not, are several launches. */
Test(stage_mma, others_are_several_launches) {
    if (optest_small()) return;
    check_case((stage_case){{24, 16, 32, 64}, NULL, 1, 8, 9, true, false, false, -1}, 20);
    check_case((stage_case){first, NULL, 1, 8, 8, true, false, true, -1}, 21);
    check_case((stage_case){first, NULL, 8, 40, 40, false, false, false, -1},
               22); /* so many groups compute too much twice */
}
