/* Nodes of SAM's mask decoder by themselves, from their steps, against the scalar reference. */
#include "variants/variant.h"
#include "support/chosen_variant.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* Weights that halves hold exactly. */
static ref_linear layer(optest *t, int out, int in, bool bias) {
    float reach = 1.5f / sqrtf((float)in), *w = optest_values(t, (size_t)(out * in), -reach, reach);
    for (int i = 0; i < out * in; i++) w[i] = rintf(w[i] * 1024) / 1024;
    return (ref_linear){out, in, w, bias ? optest_values(t, (size_t)out, -0.5f, 0.5f) : NULL};
}

static ist_filter filter(ref_linear l) {
    return (ist_filter){l.out, l.in, 1, 1, l.w, l.b, NULL};
}

/* ---- ATTENTION_LAYER ---- */

typedef struct attention_shape {
    int n, asking, asked, c, inner, heads;
} attention_shape;

/* bits of i: 1 slices, 2 position of the queries, 4 of the keys, 8 one position for all items, 16 an addend, 32 limit,
 * 64 tokens attend to themselves, 128 no biases. */
static void attention_case(const attention_shape *s, unsigned i) {
    optest t;
    optest_begin(&t, "attention layer", i + 1000u * (unsigned)(s->asking + s->c));
    bool self = i & 64, bias = !(i & 128);
    int count = i & 32 ? s->n - 1 : s->n, keys = self ? s->asking : s->asked, items = i & 8 ? 1 : s->n;
    ref_map q = optest_random(&t, s->n, 1, s->asking, s->c), k = q, q_pos = {0}, k_pos = {0}, add = {0};
    ref_attention_weights w = {.heads = s->heads, .eps = 1e-5};
    w.query = layer(&t, s->inner, s->c, bias), w.key = layer(&t, s->inner, s->c, bias);
    w.value = layer(&t, s->inner, s->c, bias), w.out = layer(&t, s->c, s->inner, bias);
    float *gamma = optest_values(&t, (size_t)s->c, 0.5f, 1.5f), *beta = optest_values(&t, (size_t)s->c, -0.5f, 0.5f);
    w.gamma = gamma, w.beta = beta;
    ist_attention_layer node = {.label = "attention", .heads = s->heads, .eps = 1e-5f};
    node.query = filter(w.query), node.key = filter(w.key), node.value = filter(w.value), node.out = filter(w.out);
    node.norm = (ist_affine){gamma, beta, s->c, NULL};
    node.q = node.k = optest_in(&t, q, IST_ELEM_T, i & 1);
    if (!self) {
        k = optest_random(&t, s->n, 1, keys, s->c);
        node.k = optest_in(&t, k, IST_ELEM_T, i & 1);
    }
    if (i & 2) {
        q_pos = optest_random(&t, items, 1, s->asking, s->c);
        node.q_pos = optest_in(&t, q_pos, IST_ELEM_T, i & 1);
    }
    if (i & 4) {
        k_pos = optest_random(&t, items, 1, keys, s->c);
        node.k_pos = optest_in(&t, k_pos, IST_ELEM_T, i & 1);
    }
    if (i & 16) {
        add = optest_random(&t, s->n, 1, s->asking, s->c);
        node.add = optest_in(&t, add, IST_ELEM_T, i & 1);
    }
    if (count < s->n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_emit(t.plan, IST_NODE_ATTENTION_LAYER, &node);
    optest_run(&t);
    ref_map want = optest_zeros(&t, count, 1, s->asking, s->c), got = optest_read(&t, node.y);
    ref_attention_layer(q, q_pos, k, k_pos, add, &w, want);
    got.n = count;
    optest_close(&t, "attention layer", got, want, 0, t.half ? 2e-2 : 5e-5);
    optest_end(&t);
}

Test(sam_nodes, attention_layer) {
    static const attention_shape all[] = {
        {2, 7, 25, 64, 32, 8}, {3, 1, 1, 24, 24, 3}, {2, 37, 5, 40, 16, 4}, {2, 11, 70, 48, 64, 2}};
    for (int k = 0; k < (optest_small() ? 1 : 4); k++)
        for (unsigned i = (unsigned)k; i < 256; i += optest_small() ? 101 : 13) attention_case(&all[k], i);
}

/* ---- MLP_LAYER ---- */

/* bits of i: 1 slices, 2 limit, 4 gelu, 8 no biases. */
static void mlp_case(int n, int tokens, int c, int hidden, unsigned i) {
    optest t;
    optest_begin(&t, "MLP layer", i + 10u * (unsigned)(c + hidden));
    int count = i & 2 ? n - 1 : n;
    ref_map x = optest_random(&t, n, 1, tokens, c), want = optest_zeros(&t, n, 1, tokens, c);
    float *gamma = optest_values(&t, (size_t)c, 0.5f, 1.5f), *beta = optest_values(&t, (size_t)c, -0.5f, 0.5f);
    ref_mlp_weights w = {layer(&t, hidden, c, !(i & 8)), layer(&t, c, hidden, !(i & 8)), gamma, beta, 1e-5};
    ist_mlp_layer node = {.label = "MLP",
                          .x = optest_in(&t, x, IST_ELEM_T, i & 1),
                          .lin1 = filter(w.lin1),
                          .lin2 = filter(w.lin2),
                          .norm = {gamma, beta, c, NULL},
                          .eps = 1e-5f,
                          .act = i & 4 ? IST_ACT_GELU : IST_ACT_RELU};
    if (count < n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_emit(t.plan, IST_NODE_MLP_LAYER, &node);
    optest_run(&t);
    ref_mlp_layer(x, &w, (int)node.act, want);
    ref_map got = optest_read(&t, node.y);
    got.n = want.n = count;
    optest_close(&t, "MLP layer", got, want, 0, t.half ? 2e-2 : 5e-5);
    optest_end(&t);
}

Test(sam_nodes, mlp_layer) {
    for (unsigned i = 0; i < 16; i += optest_small() ? 11 : 1) {
        mlp_case(2, 7, 24, 40, i);
        if (optest_small()) continue;
        mlp_case(3, 1, 64, 132, i);
        mlp_case(2, 33, 36, 20, i);
    }
}

/* ---- constants ---- */

static void code_case(int grid, int f) {
    optest t;
    optest_begin(&t, "grid code", (unsigned)(grid + 100 * f));
    float *gauss = optest_values(&t, (size_t)(2 * f), -2, 2);
    ist_grid_code node = {.label = "code", .gauss = {gauss, (size_t)(2 * f), NULL}, .grid = grid};
    ist_emit(t.plan, IST_NODE_GRID_CODE, &node);
    /* a constant is read by a launch */
    ref_map x = optest_random(&t, 1, 1, grid * grid, 2 * f), want = optest_zeros(&t, 1, 1, grid * grid, 2 * f);
    ist_add sum = {.label = "sum", .a = optest_in(&t, x, IST_ELEM_T, false), .b = node.y};
    ist_emit(t.plan, IST_NODE_ADD, &sum);
    optest_run(&t);
    ref_grid_code(gauss, grid, want);
    ref_add(x, want, want);
    optest_close(&t, "grid code", optest_read(&t, sum.y), want, 0, t.half ? 2e-3 : 2e-6);
    optest_end(&t);
}

Test(sam_nodes, grid_code) {
    code_case(1, 1);
    code_case(5, 3);
    code_case(9, 32);
}

/* Rows of one array, and of two that follow each other: as they are, for all items of what they are added to. */
static void parameter_case(int h, int w, int c, int first) {
    optest t;
    optest_begin(&t, "parameter", (unsigned)(h + w + c));
    int all = h * w * c, n = 3;
    float *values = optest_values(&t, (size_t)all, -1, 1);
    for (int i = 0; i < all; i++) values[i] = rintf(values[i] * 1024) / 1024;
    ist_parameter node = {.label = "rows", .y = {.n = 1, .h = h, .w = w, .c = c}};
    node.rows[0] = (ist_array){values, (size_t)(first * c), NULL};
    if (first < h * w) node.rows[1] = (ist_array){values + first * c, (size_t)(all - first * c), NULL};
    ist_emit(t.plan, IST_NODE_PARAMETER, &node);
    ref_map x = optest_zeros(&t, n, h, w, c), want = optest_zeros(&t, n, h, w, c);
    ist_add sum = {.label = "sum", .a = optest_in(&t, x, IST_ELEM_T, false), .b = node.y};
    ist_emit(t.plan, IST_NODE_ADD, &sum);
    optest_run(&t);
    for (int i = 0; i < n; i++) memcpy(ref_at(want, i, 0, 0), values, (size_t)all * sizeof *values);
    optest_close(&t, "parameter", optest_read(&t, sum.y), want, 0, 0);
    optest_end(&t);
}

Test(sam_nodes, parameter) {
    parameter_case(1, 1, 12, 1);
    parameter_case(1, 5, 20, 1);
    parameter_case(1, 5, 9, 4);
    parameter_case(3, 7, 8, 21);
}

Test(sam_nodes, parameter_of_another_size) {
    optest t;
    optest_begin(&t, "parameter refusal", 1);
    float zeros[7] = {0};
    ist_parameter node = {.label = "rows", .y = {.n = 1, .h = 1, .w = 2, .c = 4}, .rows = {{zeros, 7, NULL}}};
    ist_emit(t.plan, IST_NODE_PARAMETER, &node);
    cr_assert_eq(ist_plan_status(t.plan), IST_E_WEIGHTS);
    cr_assert_not_null(strstr(ist_plan_error(t.plan)->text, "rows: 7 values for [1,1,2,4]"), "%s",
                       ist_plan_error(t.plan)->text);
    optest_drop(&t);
}

/* ---- TOKEN_MLPS, from steps and in one launch ---- */

static void token_mlps_by(const char *variant, int n, int tokens, int c, int masks, int first, int count) {
    enum { VECTOR = 32, IOUS = 5, HIDDEN = 28 };
    optest t;
    optest_begin(&t, "token MLPs", (unsigned)(n + 10 * tokens + 100 * c));
    chosen_variant = ist_variant_named(IST_NODE_TOKEN_MLPS, variant);
    cr_assert_not_null(chosen_variant);
    ref_map x = optest_random(&t, n, 1, tokens, c);
    ref_linear mlp[IST_TOKEN_MLPS_MAX][3];
    ist_token_mlps node = {.label = "MLPs", .count = 1 + masks, .first = first};
    node.x = optest_in(&t, x, IST_ELEM_T, false);
    for (int i = 0; i <= masks; i++) {
        node.names[i] = "MLP";
        for (int l = 0; l < 3; l++) {
            mlp[i][l] = layer(&t, l < 2 ? HIDDEN + 4 * l : i ? VECTOR : IOUS, l ? HIDDEN + 4 * (l - 1) : c, true);
            node.mlp[i][l] = filter(mlp[i][l]);
        }
    }
    if (count < n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_emit(t.plan, IST_NODE_TOKEN_MLPS, &node);
    optest_run(&t);
    if (strcmp(variant, "steps")) {
        cr_expect_eq(ist_plan_describe(t.plan).launches, 1);
        optest_takes(&t, "portable/token_mlps");
    }
    for (int i = 0; i < ist_plan_describe(t.plan).launches; i++)
        cr_expect_str_neq(ist_plan_launch_at(t.plan, i)->op, "nvidia/token_mlps");
    ref_map want = optest_zeros(&t, count, 1, masks, VECTOR), want_iou = optest_zeros(&t, count, 1, 1, IOUS);
    for (int p = 0; p < count; p++)
        for (int i = 0; i <= masks; i++)
            ref_token_mlp(ref_at(x, p, 0, i ? first + i : 0), mlp[i],
                          i ? ref_at(want, p, 0, i - 1) : ref_at(want_iou, p, 0, 0));
    ref_map got = optest_read(&t, node.vectors), got_iou = optest_read(&t, node.iou);
    got.n = got_iou.n = count;
    optest_close(&t, "vectors", got, want, 0, t.half ? 5e-3 : 1e-5);
    optest_close(&t, "IoU", got_iou, want_iou, 0, t.half ? 5e-3 : 1e-5);
    optest_end(&t);
}

Test(sam_nodes, token_mlps) {
    token_mlps_by("steps", 2, 3, 24, 1, 0, 2);
    if (optest_small()) return;
    token_mlps_by("steps", 5, 7, 64, 3, 1, 4);
    token_mlps_by("steps", 1, 9, 36, 4, 0, 1);
    token_mlps_by("steps", 17, 5, 20, 1, 3, 16);
}

/* No more MLPs than a device of one unit may have. */
Test(sam_nodes, token_mlps_in_one_launch) {
    token_mlps_by("group", 2, 3, 24, 1, 0, 2);
    token_mlps_by("group", 2, 9, 35, 1, 4, 1);
    if (optest_small()) return;
    token_mlps_by("group", 1, 7, 64, 3, 1, 1);
    token_mlps_by("group", 1, 6, 256, 3, 2, 1);
}
