/* Attention with decomposed relative positions against the scalar reference: every variant of the table that the device
 * can run. */
#include "support/claimed_matrix.h"
#include "support/optest.h"
#include "variants/ops.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

typedef struct shape {
    int n, h, w, heads, d, wh, ww;
    float gain; /* on queries: how peaked the softmax is */
} shape;

/* Averages of values up to 1 with weights in fp32: a score of size s is wrong by a few s 2^-24. */
static double tolerance(const optest *t, const shape *s) {
    double score = (double)s->gain * s->d;
    return (t->half ? 2e-3 : 0) + optest_tolerance(t, s->wh * s->ww) + 4 * score * 6e-8 * sqrt(s->d);
}

/* bits of i: 1 slices, 2 limit. Whether the variant takes it. */
static bool relative_case(const ist_variant *v, const shape *s, unsigned i) {
    optest t;
    optest_begin(&t, v->name, i + 10u * (unsigned)(s->h + s->w + s->d));
    int c = s->heads * s->d, count = i & 2 ? s->n - 1 : s->n;
    ref_map qkv = optest_random(&t, s->n, s->h, s->w, 3 * c), want = optest_zeros(&t, s->n, s->h, s->w, c);
    for (int p = 0; p < s->n * s->h * s->w; p++)
        for (int k = 0; k < c; k++) qkv.v[(size_t)p * 3 * (size_t)c + (size_t)k] *= s->gain;
    ref_map pad = optest_random(&t, 1, 1, 1, 3 * c);
    float *rel_h = optest_values(&t, (size_t)((2 * s->wh - 1) * s->d), -0.5f, 0.5f);
    float *rel_w = optest_values(&t, (size_t)((2 * s->ww - 1) * s->d), -0.5f, 0.5f);
    ist_relative_attention node = {.label = "relative",
                                   .qkv = optest_in(&t, qkv, IST_ELEM_T, i & 1),
                                   .rel_h = {rel_h, (size_t)((2 * s->wh - 1) * s->d), NULL},
                                   .rel_w = {rel_w, (size_t)((2 * s->ww - 1) * s->d), NULL},
                                   .pad = {pad.v, (size_t)(3 * c), NULL},
                                   .heads = s->heads,
                                   .y = optest_out(&t, s->n, s->h, s->w, c, IST_ELEM_T, i & 1)};
    if (count < s->n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    bool takes = ist_variant_takes(t.plan, v, &node);
    if (takes) {
        ist_emit_by(t.plan, v, 0, &node);
        optest_run(&t);
        ref_relative_attention(qkv, rel_h, s->wh, rel_w, s->ww, pad.v, s->heads, want);
        optest_check(&t, v->name, node.y, want, 0, tolerance(&t, s), count);
        optest_end(&t);
    } else {
        optest_drop(&t);
    }
    return takes;
}

Test(relative_attention, every_variant) {
    static const shape tiny[] = {{1, 3, 5, 1, 8, 2, 3, 1}, {2, 4, 2, 2, 4, 4, 2, 1}};
    static const shape all[] = {
        {1, 7, 7, 2, 64, 7, 7, 2},     {2, 9, 16, 1, 64, 14, 14, 2},  {1, 17, 16, 2, 64, 14, 14, 4},
        {1, 16, 16, 3, 64, 16, 16, 4}, {2, 5, 3, 2, 32, 5, 3, 1},     {1, 10, 7, 1, 12, 3, 4, 1},
        {1, 10, 64, 1, 64, 10, 64, 4}, {2, 6, 33, 1, 48, 6, 33, 2},   {1, 19, 2, 2, 20, 8, 1, 1},
        {3, 1, 1, 1, 16, 14, 14, 1},   {1, 30, 17, 1, 4, 15, 17, 16}, {1, 3, 65, 1, 36, 2, 63, 2},
    };
    int variants, count = optest_small() ? 2 : (int)(sizeof all / sizeof *all);
    const ist_variant *v = ist_variants_of(IST_NODE_RELATIVE_ATTENTION, &variants);
    cr_assert_geq(variants, 1);
    for (int j = 0; j < variants; j++)
        for (int k = 0; k < count; k++)
            for (unsigned i = 0; i < 4; i++) {
                bool takes = relative_case(&v[j], optest_small() ? &tiny[k] : &all[k], i);
                cr_expect(takes || j < variants - 1, "the last variant takes every shape");
            }
}

/* A block of SAM's that sees the whole map. */
Test(relative_attention, model_shape) {
    static const shape all = {1, 64, 64, 1, 64, 64, 64, 4};
    int variants;
    const ist_variant *v = ist_variants_of(IST_NODE_RELATIVE_ATTENTION, &variants);
    for (int j = 0; j < variants && !optest_small(); j++) relative_case(&v[j], &all, 0);
}

/* Matrix instructions, emulated where there are none. */
Test(relative_attention, matrix_instructions) {
    static const shape few[] = {{1, 7, 9, 2, 64, 7, 7, 2},
                                {2, 17, 3, 1, 32, 14, 14, 2},
                                {1, 3, 18, 1, 64, 3, 18, 4},
                                {2, 5, 40, 1, 32, 5, 40, 2}};
    if (!claim_matrix_instructions()) return;
    const ist_variant *v = ist_variant_named(IST_NODE_RELATIVE_ATTENTION, "mma");
    for (unsigned k = 0; v && k < 4; k++) cr_expect(relative_case(v, &few[k], k & 2));
}

/* A padding token is a key like any other: a window all of whose other keys score far below takes its value. */
Test(relative_attention, padding_takes_part) {
    enum { D = 32, SIDE = 3 };
    int variants;
    const ist_variant *v = ist_variants_of(IST_NODE_RELATIVE_ATTENTION, &variants);
    for (int j = 0; j < variants; j++) {
        optest t;
        optest_begin(&t, "padding", (unsigned)j);
        ref_map qkv = optest_zeros(&t, 1, 2, 2, 3 * D), want = optest_zeros(&t, 1, 2, 2, D);
        float rel[(2 * SIDE - 1) * D] = {0}, pad[3 * D] = {0};
        for (int p = 0; p < 4; p++) qkv.v[p * 3 * D] = 64;
        pad[D] = 64; /* q . k of 4096 with padding, 0 with tokens of the map */
        for (int c = 0; c < D; c++) pad[2 * D + c] = (float)(c + 1);
        for (int i = 0; i < 4 * D; i++) want.v[i] = (float)(i % D + 1);
        ist_relative_attention node = {.label = "padding",
                                       .qkv = optest_in(&t, qkv, IST_ELEM_T, false),
                                       .rel_h = {rel, (2 * SIDE - 1) * D, NULL},
                                       .rel_w = {rel, (2 * SIDE - 1) * D, NULL},
                                       .pad = {pad, 3 * D, NULL},
                                       .heads = 1};
        node.y = optest_out(&t, 1, 2, 2, D, IST_ELEM_T, false);
        if (ist_variant_takes(t.plan, &v[j], &node)) {
            ist_emit_by(t.plan, &v[j], 0, &node);
            optest_run(&t);
            optest_check(&t, v[j].name, node.y, want, t.half ? 2e-3 : 1e-5, 0, -1);
            optest_end(&t);
        } else {
            optest_drop(&t);
        }
    }
}

static void refused(int channels, int heads, int rows_h, int rows_w, ist_status status, const char *part) {
    optest t;
    float zero[3 * 64] = {0};
    optest_begin(&t, "refusal", 1);
    ist_tensor x = optest_in(&t, optest_random(&t, 1, 4, 4, channels), IST_ELEM_T, false);
    ist_relative_attention node = {.label = "blocks.3.attn",
                                   .qkv = x,
                                   .rel_h = {zero, (size_t)rows_h * 16, NULL},
                                   .rel_w = {zero, (size_t)rows_w * 16, NULL},
                                   .pad = {zero, (size_t)channels, NULL},
                                   .heads = heads};
    ist_emit(t.plan, IST_NODE_RELATIVE_ATTENTION, &node);
    cr_assert_eq(ist_plan_status(t.plan), status);
    cr_assert_not(ist_has(node.y));
    cr_assert_not_null(strstr(ist_plan_error(t.plan)->text, part), "%s", ist_plan_error(t.plan)->text);
    optest_drop(&t);
    ist_device_close(&t.device);
}

Test(relative_attention, refuses_channels_that_are_no_heads) {
    refused(96, 5, 7, 7, IST_E_ARGUMENT, "blocks.3.attn: attention of 96 channels, 96 of padding, in 5 heads");
}

Test(relative_attention, refuses_even_tables) {
    refused(96, 2, 6, 7, IST_E_WEIGHTS,
            "blocks.3.attn: 6 and 7 relative positions of 16 channels are not 2 s - 1 of windows of up to 64 tokens");
}

Test(relative_attention, refuses_large_windows) {
    refused(96, 2, 7, 129, IST_E_WEIGHTS, "7 and 129 relative positions");
}
