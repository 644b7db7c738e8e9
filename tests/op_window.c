/* Window attention against the scalar reference, by every variant of the table. */
#include "variants/ops.h"
#include "support/alike_rows.h"
#include "support/claimed_matrix.h"
#include "support/each_variant.h"

#include <criterion/criterion.h>
#include <string.h>

typedef struct shape {
    int n, h, w, heads, ws;
    float gain; /* on qkv and pad */
} shape;

/* Averages of values up to `gain`; scores reach gain^2 32 / sqrt(32), wrong by a few parts in 2^24. */
static double tolerance(const optest *t, const shape *s) {
    double score = (double)s->gain * s->gain * 5.7;
    return s->gain * (optest_tolerance(t, s->ws * s->ws) + 4e-7 * (score + 2)) * (t->half ? 2 : 1);
}

/* bits of i: 1 slices, 2 limit. */
static bool window_case(each_way way, const void *what, unsigned i) {
    const shape *s = what;
    optest t;
    optest_begin(&t, "window attention", i + 100u * (unsigned)(s->h + s->w));
    int c = s->heads * 96, count = i & 2 ? s->n - 1 : s->n;
    ref_map qkv = optest_random(&t, s->n, s->h, s->w, c), want = optest_zeros(&t, s->n, s->h, s->w, s->heads * 32);
    for (size_t e = 0; e < ref_size(qkv); e++) qkv.v[e] *= s->gain;
    float *pad = optest_values(&t, (size_t)c, -s->gain, s->gain);
    float *bias = optest_values(&t, (size_t)(s->heads * s->ws * s->ws), -2, 2);
    ist_window_attention node = {.label = "window", .pad = pad, .bias = bias, .heads = s->heads, .ws = s->ws};
    node.qkv = optest_in(&t, qkv, IST_ELEM_T, i & 1);
    if (count < s->n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    if (!each_emits(&t, way, &node)) {
        optest_drop(&t);
        return false;
    }
    optest_run(&t);
    each_launched(&t, way);
    ref_window_attention(qkv, pad, bias, s->heads, s->ws, want);
    optest_check(&t, way.v->name, node.y, want, 0, tolerance(&t, s), count);
    optest_end(&t);
    return true;
}

static void by_each(const shape *s, unsigned i, unsigned needs) {
    each_variant(IST_NODE_WINDOW_ATTENTION, needs, window_case, s, i, false);
}

Test(window, matches_its_definition) {
    static const shape tiny[] = {{1, 3, 5, 1, 3, 1}, {2, 4, 2, 1, 2, 1}};
    static const shape all[] = {
        {1, 7, 7, 2, 7, 1},    {2, 9, 16, 1, 7, 2},   {1, 20, 15, 3, 7, 1}, {1, 14, 14, 1, 14, 2},
        {2, 22, 15, 1, 14, 1}, {1, 29, 28, 2, 14, 1}, {1, 5, 3, 2, 7, 1},   {2, 1, 1, 1, 14, 2},
        {1, 10, 7, 2, 3, 1},   {1, 17, 18, 1, 16, 1}, {1, 4, 6, 1, 1, 1},
    };
    const shape *list = optest_small() ? tiny : all;
    int count = optest_small() ? 2 : (int)(sizeof all / sizeof *all);
    for (int k = 0; k < count; k++)
        for (unsigned i = 0; i < 4; i++) by_each(&list[k], i, 0);
    each_had_its_case(IST_NODE_WINDOW_ATTENTION, 0);
}

/* The variant on matrix instructions, emulated where there are none. It takes no slices as odd as the tests'. */
Test(window, on_matrix_instructions) {
    static const shape few[] = {{2, 9, 8, 1, 7, 2}, {1, 15, 14, 1, 14, 1}, {2, 5, 4, 2, 3, 1}};
    each_needs(IST_NODE_WINDOW_ATTENTION, IST_CAP_PTX_MMA);
    if (!claim_matrix_groups()) return;
    for (int k = 0; k < 3; k++)
        for (unsigned i = 0; i < 4; i += 2) by_each(&few[k], i, IST_CAP_PTX_MMA);
    each_had_its_case(IST_NODE_WINDOW_ATTENTION, IST_CAP_PTX_MMA);
}

/* Scores of some hundred: nothing overflows and the pad keys still take part. */
Test(window, large_scores) {
    static const shape s = {1, 9, 9, 1, 7, 8};
    by_each(&s, 0, 0);
}

/* bits of i: 1 slices, 2 limit, 4 no biases of the projection, 8 letterboxed pictures, 16 behind such windows. */
static bool norm_case(each_way way, const void *what, unsigned i) {
    const shape *s = what;
    optest t;
    pictures all = {0};
    optest_begin(&t, "norm and windows", i + 100u * (unsigned)(s->h + s->w));
    int c = s->heads * 32, count = i & 2 ? s->n - 1 : s->n;
    ref_map x = optest_random(&t, s->n, s->h, s->w, c), u = optest_zeros(&t, s->n, s->h, s->w, c), none = {0};
    ref_map qkv = optest_zeros(&t, s->n, s->h, s->w, 3 * c), want = optest_zeros(&t, s->n, s->h, s->w, c);
    for (size_t e = 0; e < ref_size(x); e++) x.v[e] += 0.5f;
    if (i & 8) all = draw_pictures(&t, s->n, s->h, 1, 2, 2);
    if (i & 16) all.reuse.period = s->ws, all.reuse.after = 1;
    if (i & 8) make_alike(x, &all, false);
    float *w = optest_values(&t, (size_t)(3 * c * c), -s->gain / (float)c, s->gain / (float)c);
    float *norm = optest_values(&t, (size_t)(2 * c), -2, 2), *b = optest_values(&t, (size_t)(3 * c), -0.5f, 0.5f);
    float *bias = optest_values(&t, (size_t)(s->heads * s->ws * s->ws), -2, 2);
    float *pad = optest_values(&t, (size_t)(3 * c), 0, 0);
    if (i & 4) memset(b, 0, (size_t)(3 * c) * sizeof *b);
    for (int o = 0; o < 3 * c; o++) {
        double sum = b[o];
        for (int k = 0; k < c; k++) sum += (double)w[o * c + k] * norm[c + k];
        pad[o] = (float)sum;
    }
    ist_norm_window layer = {.label = "window",
                             .norm = {norm, norm + c, c, NULL},
                             .bias = {bias, (size_t)(s->heads * s->ws * s->ws), NULL},
                             .eps = 1e-5f,
                             .qkv = {3 * c, c, 1, 1, w, i & 4 ? NULL : b},
                             .heads = s->heads,
                             .ws = s->ws};
    layer.x = optest_in(&t, x, IST_ELEM_T, i & 1);
    if (count < s->n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_norm_window left_out = layer; /* rows that are alike are not there */
    left_out.reuse = all.reuse;
    left_out.reuse.left_out = true;
    if (i & 8) left_out.x = optest_in(&t, without_rows(&t, x, &all, 0), IST_ELEM_T, i & 1);
    if (!each_emits(&t, way, &layer) || (i & 8 && !each_emits(&t, way, &left_out))) {
        optest_drop(&t);
        return false;
    }
    if (i & 8) fill_rows(&t, left_out.y, &left_out.reuse);
    optest_run(&t);
    each_launched(&t, way);
    ref_layernorm(x, none, 0, norm, norm + c, 1e-5f, 0, u);
    ref_conv(u, w, b, (ref_window){1, 1, 1, 0, 0}, &(ref_epilogue){0}, qkv);
    ref_window_attention(qkv, pad, bias, s->heads, s->ws, want);
    ref_map got = optest_read(&t, layer.y);
    want.n = got.n = count;
    optest_close(&t, way.v->name, got, want, t.half ? 2e-3 : 2e-6, t.half ? 2e-2 : 3e-5);
    if (i & 8) check_alike(&all, left_out.reuse, optest_read(&t, left_out.y), got, count);
    optest_end(&t);
    return true;
}

/* Its steps on the device's own variants too, always: that is what CPUs take. */
static void normed_by_each(const shape *s, unsigned i, unsigned needs) {
    each_variant(IST_NODE_NORM_WINDOW, needs, norm_case, s, i, true);
}

Test(norm_window, matches_its_layers) {
    static const shape tiny = {1, 3, 5, 1, 3, 4};
    static const shape all[] = {{1, 7, 7, 2, 7, 4},   {2, 9, 16, 1, 7, 8}, {2, 20, 15, 4, 7, 8}, {1, 15, 29, 5, 14, 8},
                                {2, 3, 14, 1, 14, 8}, {1, 8, 7, 10, 7, 8}, {1, 10, 7, 2, 3, 8},  {1, 17, 18, 1, 16, 8},
                                {1, 11, 9, 1, 9, 8},  {1, 2, 5, 12, 2, 8}};
    static const shape boxed[] = {{6, 33, 8, 1, 7, 8}, {5, 23, 16, 2, 7, 8}, {4, 26, 5, 1, 3, 8}};
    if (optest_small()) {
        normed_by_each(&tiny, 3, 0);
        return;
    }
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        for (unsigned i = 0; i < 8; i++) normed_by_each(&all[k], i, 0);
    for (size_t k = 0; k < sizeof boxed / sizeof *boxed; k++)
        for (unsigned i = 8; i < 32; i += 3) normed_by_each(&boxed[k], i | 8, 0);
    each_had_its_case(IST_NODE_NORM_WINDOW, 0);
}

/* The variant on matrix instructions of warpgroups, emulated where there are none; no slices either. */
Test(norm_window, on_matrix_instructions) {
    static const shape few[] = {{2, 9, 15, 2, 7, 8}, {1, 3, 15, 1, 14, 8}, {1, 5, 4, 1, 3, 8}, {1, 10, 1, 1, 9, 8}};
    each_needs(IST_NODE_NORM_WINDOW, IST_CAP_PTX_MMA);
    if (!claim_matrix_groups()) return;
    static const shape boxed = {4, 33, 15, 2, 7, 8};
    for (unsigned k = 0; k < 4; k++) normed_by_each(&few[k], k == 0 ? 2 : k == 1 ? 4 : 0, IST_CAP_PTX_MMA);
    for (unsigned i = 8; i < 28; i += 18) normed_by_each(&boxed, i, IST_CAP_PTX_MMA);
    /* Groups have several heads, of two windows and of two maps. */
    const shape shared = {optest_units(), 3, 15, 2, 14, 8};
    normed_by_each(&shared, 2, IST_CAP_PTX_MMA);
    each_had_its_case(IST_NODE_NORM_WINDOW, IST_CAP_PTX_MMA);
}

Test(window, refuses_wrong_channels) {
    optest t;
    optest_begin(&t, "window refusal", 1);
    float zero[96] = {0};
    ist_tensor x = optest_in(&t, optest_random(&t, 1, 7, 7, 64), IST_ELEM_T, false);
    cr_assert_not(ist_has(ist_op_window_attention(t.plan, x, zero, zero, 1, 7, "window")));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    optest_drop(&t);
    ist_device_close(&t.device);
}
