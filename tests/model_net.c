/* models/net: filters by their names in a checkpoint, the nodes that are made of them, and the numbers that a plan
 * computes with them, against the scalar reference. */
#include "models/net.h"
#include "support/optest.h"
#include "synth.h"
#include "variants/lower.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { HEIGHT = 6, WIDTH = 5, IN = 7, OUT = 9 };

static ist_weights *w;
static ist_graph *g;
static ist_net net;
static ist_error err;

static void add(const char *name, int rank, const int64_t *dims) {
    float values[4096];
    synth_weight(name, rank, dims, 9, values);
    cr_assert_eq(ist_weights_add(w, name, IST_WEIGHT_F32, rank, dims, values, &err), IST_OK, "%s", err.text);
}

static void add_vectors(const char *at, const char *const *parts, int count, int size) {
    for (int i = 0; i < count; i++) add(ist_name_of("%s.%s", at, parts[i]).text, 1, (int64_t[]){size});
}

static void add_conv(const char *at, const char *norm, int out, int in, int k) {
    static const char *const parts[] = {"weight", "bias", "running_mean", "running_var"};
    add(ist_name_of("%s.conv.weight", at).text, 4, (int64_t[]){out, in, k, k});
    add_vectors(ist_name_of("%s.%s", at, norm).text, parts, 4, out);
}

static void fill(void) {
    static const char *const pair[] = {"weight", "bias"};
    cr_assert_eq(ist_weights_create(&w, &err), IST_OK);
    cr_assert_eq(ist_graph_open(&g, &err), IST_OK);
    net = (ist_net){g, w};
    add_conv("stem.0", "bn", OUT, IN, 3);
    add("stem.0.lab.scale", 1, (int64_t[]){1});
    add("stem.0.lab.bias", 1, (int64_t[]){1});
    add_conv("deep", "norm", OUT, 1, 3);
    add_conv("rep.conv1", "norm", OUT, OUT, 3);
    add_conv("rep.conv2", "norm", OUT, OUT, 1);
    add("fc.weight", 2, (int64_t[]){8, OUT});
    add("fc.bias", 1, (int64_t[]){8});
    add("bare.weight", 2, (int64_t[]){4, OUT});
    add("pixel.weight", 4, (int64_t[]){8, OUT, 1, 1});
    add_vectors("ln", pair, 2, 8);
}
static void empty(void) {
    ist_graph_close(&g);
    ist_weights_close(&w);
}
TestSuite(model_net, .init = fill, .fini = empty);

static void is_filter(ist_filter f, int out, int in, int k) {
    cr_assert(f.out == out && f.in == in && f.kh == k && f.kw == k && !f.w && !f.b && f.recipe, "[%d,%d,%d,%d]: %s",
              f.out, f.in, f.kh, f.kw, g->error.text);
}

static const ist_conv *last_conv(ist_node_kind kind) {
    const ist_node *n = &g->nodes[g->node_count - 1];
    cr_assert(n->kind == kind, "%s: %s", ist_kind_of(n->kind)->name, g->error.text);
    return n->of;
}

static ist_tensor map(int c) {
    return ist_graph_input(g, 1, HEIGHT, WIDTH, c, IST_ELEM_T);
}

/* ---- what is recorded ---- */

Test(model_net, filters_by_name) {
    is_filter(ist_take_conv_bn(&net, "stem.%d", 0), OUT, IN, 3);
    is_filter(ist_take_conv_norm(&net, "deep"), OUT, 1, 3);
    is_filter(ist_take_repvgg(&net, "rep"), OUT, OUT, 3);
    is_filter(ist_take_dense(&net, "fc"), 8, OUT, 1);
    is_filter(ist_take_dense(&net, "bare"), 4, OUT, 1);
    is_filter(ist_take_dense(&net, "pixel"), 8, OUT, 1);
    is_filter(ist_take_stack(&net, ist_take_dense(&net, "fc"), ist_take_dense(&net, "bare")), 12, OUT, 1);
    is_filter(ist_take_outputs(&net, ist_take_dense(&net, "fc"), 2, 3), 3, OUT, 1);
    ist_filter scaled = ist_take_scaled(&net, ist_take_dense(&net, "fc"), 0.5f);
    is_filter(scaled, 8, OUT, 1);
    cr_assert_eq(scaled.recipe->scale, 0.5f);
    cr_assert_str_eq(scaled.recipe->names[1], "fc.bias");
    cr_assert_null(ist_take_dense(&net, "bare").recipe->names[1]);
    cr_assert_eq(ist_take_norm(&net, "ln").n, 8);
    cr_assert_eq(ist_take_array(&net, "fc.%s", "weight").count, 8 * OUT);
    float lab = 0;
    cr_assert_eq(ist_weights_scalar(w, "stem.0.lab.scale", &lab, &err), IST_OK);
    cr_assert_eq(ist_take_scalar(&net, "stem.0.lab.scale"), lab);
    cr_assert(!ist_graph_failed(g), "%s", g->error.text);
}

Test(model_net, kinds_follow_from_shapes) {
    ist_tensor x = ist_net_conv_bn(&net, map(IN), &(ist_conv_opts){IST_PAD(1)}, "stem.%d", 0);
    cr_assert(last_conv(IST_NODE_CONV)->o.epi.has_lab);
    cr_assert_str_eq(last_conv(IST_NODE_CONV)->label, "stem.0");
    x = ist_net_conv_norm(&net, x, &(ist_conv_opts){.stride = 2, IST_PAD(1)}, "deep");
    cr_assert(!last_conv(IST_NODE_DWCONV)->o.epi.has_lab && x.h == HEIGHT / 2 && x.w == (WIDTH + 1) / 2);
    x = ist_net_dense(&net, x, NULL, "fc");
    cr_assert(last_conv(IST_NODE_CONV)->filter.kh == 1 && x.c == 8);
    x = ist_net_layer_norm(&net, (ist_layer_norm){.x = x, .eps = 1e-5f}, "ln");
    cr_assert(g->nodes[g->node_count - 1].kind == IST_NODE_LAYER_NORM && x.c == 8);
    x = ist_net_add(&net, x, x, "twice");
    ist_net_name(&net, x, "layer%d", 3);
    cr_assert(ist_has(x) && g->tap_count == 1);
    cr_assert_str_eq(g->taps[0].name, "layer3");
}

/* ---- failures ---- */

/* The graph fails with the sentence, and everything after is empty. */
static void fails_with(const char *sentence) {
    cr_assert_eq(g->error.code, IST_E_WEIGHTS, "%d", g->error.code);
    cr_assert_not_null(strstr(g->error.text, sentence), "%s", g->error.text);
    cr_assert(!ist_has(ist_net_dense(&net, (ist_tensor){1, 1, 1, 1, OUT, OUT, 0, IST_ELEM_T}, NULL, "fc")));
    cr_assert_eq(ist_take_scalar(&net, "stem.0.lab.scale"), 0);
    cr_assert_not_null(strstr(g->error.text, sentence), "%s", g->error.text);
}

Test(model_net, missing_layer) {
    ist_filter f = ist_take_conv_bn(&net, "stem.%d", 7);
    cr_assert(f.out == 0 && !f.recipe);
    fails_with("stem.7.conv.weight");
}

Test(model_net, missing_norm) {
    cr_assert_eq(ist_take_norm(&net, "none").n, 0);
    fails_with("none.weight");
}

Test(model_net, missing_scalar) {
    cr_assert_eq(ist_take_scalar(&net, "none"), 0);
    fails_with("none");
}

Test(model_net, layers_of_other_inputs_cannot_be_stacked) {
    add("wide.weight", 2, (int64_t[]){4, OUT + 1});
    ist_take_stack(&net, ist_take_dense(&net, "fc"), ist_take_dense(&net, "wide"));
    fails_with("layers with 9 and 10 inputs share one input");
}

Test(model_net, more_outputs_than_there_are) {
    ist_take_outputs(&net, ist_take_dense(&net, "fc"), 6, 3);
    fails_with("a 8 x 9 matrix has no part [6,9) x [0,9)");
}

/* ---- numbers ---- */

static ref_map conv_of(optest *t, ref_map x, const ist_recipe *recipe, int k, const ref_epilogue *e) {
    ist_conv_weights c;
    ref_epilogue own = *e;
    cr_assert_eq(ist_recipe_load(recipe, &c, &err), IST_OK, "%s", err.text);
    if (c.has_lab) own.has_lab = true, own.lab_scale = c.lab_scale, own.lab_bias = c.lab_bias;
    ref_map y = optest_zeros(t, x.n, x.h, x.w, c.out);
    ref_conv(x, c.w, c.b, (ref_window){k, k, 1, k / 2, k / 2}, &own, y);
    ist_conv_weights_free(&c);
    return y;
}

/* A layer with LAB, a RepVGG block, their concatenation with a slice of the first, and part of a stacked layer of all:
 * parts of the concatenation lie in place or are copied, filters are loaded as their recipes say. */
Test(model_net, a_small_net_computes) {
    optest t;
    optest_begin(&t, "small net", 1);
    ref_map x = optest_random(&t, 1, HEIGHT, WIDTH, IN);
    ist_tensor input = optest_in(&t, x, IST_ELEM_T, false);
    add("all.weight", 2, (int64_t[]){6, 2 * OUT + 4});
    add("more.weight", 2, (int64_t[]){5, 2 * OUT + 4});

    ist_filter first = ist_take_conv_bn(&net, "stem.0"), block = ist_take_repvgg(&net, "rep");
    ist_tensor a = ist_net_apply(&net, map(IN), first, &(ist_conv_opts){IST_PAD(1), .epi.act = IST_ACT_RELU}, "first");
    ist_tensor b = ist_net_apply(&net, a, block, &(ist_conv_opts){IST_PAD(1), .epi.act = IST_ACT_SILU}, "block");
    ist_tensor joined = IST_NODE(&net, CONCAT, concat, .label = "joined", .x = {a, b, ist_slice(a, 2, 4)});
    ist_filter stack = ist_take_stack(&net, ist_take_dense(&net, "all"), ist_take_dense(&net, "more"));
    ist_filter part = ist_take_outputs(&net, stack, 4, 4);
    ist_tensor y = ist_net_apply(&net, joined, part, NULL, "part");
    cr_assert(!ist_graph_failed(g), "%s", g->error.text);

    ist_lowering *lowering = NULL;
    ist_lower(t.plan, g, &input, &lowering);
    ist_tensor got = ist_lowered(lowering, y), got_b = ist_lowered(lowering, b);
    cr_assert(ist_has(got) && ist_has(got_b), "%s", ist_plan_error(t.plan)->text);
    ist_lowering_close(&lowering);
    optest_run(&t);

    ref_map ra = conv_of(&t, x, first.recipe, 3, &(ref_epilogue){.act = IST_ACT_RELU});
    ref_map rb = conv_of(&t, ra, block.recipe, 3, &(ref_epilogue){.act = IST_ACT_SILU});
    ref_map all = optest_zeros(&t, 1, HEIGHT, WIDTH, 2 * OUT + 4);
    for (int p = 0; p < HEIGHT * WIDTH; p++)
        for (int c = 0; c < all.c; c++) {
            const float *of_a = ra.v + p * OUT, *of_b = rb.v + p * OUT;
            all.v[p * all.c + c] = c < OUT ? of_a[c] : c < 2 * OUT ? of_b[c - OUT] : of_a[c - 2 * OUT + 2];
        }
    ref_map want = conv_of(&t, all, part.recipe, 1, &(ref_epilogue){0});
    double tolerance = optest_tolerance(&t, OUT * 9 * 3);
    optest_close(&t, "result", optest_read(&t, got), want, tolerance, tolerance);
    optest_end(&t);
}
