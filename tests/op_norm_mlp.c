/* Norm and linear layers against the scalar operators, by every variant of the table. */
#include "support/alike_rows.h"
#include "support/claimed_amx.h"
#include "support/claimed_matrix.h"
#include "support/each_variant.h"

#include <criterion/criterion.h>

typedef struct shape {
    int n, h, w, c, hidden;
    bool second;
} shape;

/* What a product reads of v where the plan is narrow. */
static const float *seen(optest *t, const float *v, size_t count, bool narrow) {
    if (!narrow) return v;
    float *near = optest_values(t, count, 0, 0);
    for (size_t i = 0; i < count; i++) near[i] = ref_bf16(v[i]);
    return near;
}

/* bits of i: 1 slices, 2 limit, 4 no biases, 8 a convolution in front, 16 bfloat16, 32 letterboxed pictures, 64 a mean
 * that is large beside the deviation, as it may be in a residual stream. */
static bool layer_case(each_way way, const void *what, unsigned i) {
    const shape *s = what;
    optest t;
    optest_begin(&t, "norm and layers", i + 10u * (unsigned)(s->w + s->c + s->hidden));
    const bool narrow = i & 16;
    pictures all = {0};
    ist_plan_reduced(t.plan, narrow);
    int count = i & 2 ? s->n - 1 : s->n, c = s->c;
    ref_map x = optest_random(&t, s->n, s->h, s->w, c), z = x, u = optest_zeros(&t, s->n, s->h, s->w, c);
    for (size_t k = 0; i & 64 && k < ref_size(x); k++) x.v[k] = rintf((x.v[k] + 3) * 256) / 256; /* exact in half */
    if (i & 32) {
        all = draw_pictures(&t, s->n, s->h, 1, 1, 2);
        all.reuse.period = optest_int(&t, 1, 3);
        if (all.reuse.period > 1) all.reuse.after = 1;
        make_alike(x, &all, false);
    }
    ref_map h = optest_zeros(&t, s->n, s->h, s->w, s->hidden), want = h, none = {0};
    float *w1 = optest_values(&t, (size_t)(c * s->hidden), -0.2f, 0.2f);
    float *w2 = optest_values(&t, (size_t)(c * s->hidden), -0.2f, 0.2f);
    float *b = optest_values(&t, (size_t)(3 * c + s->hidden), -1, 1);
    ist_norm_mlp layer = {.label = "layers",
                          .norm = {b, b + c, c, NULL},
                          .eps = 1e-5f,
                          .fc1 = {s->hidden, c, 1, 1, w1, i & 4 ? NULL : b + 3 * c},
                          .act = s->second ? IST_ACT_GELU : IST_ACT_NONE};
    if (s->second) layer.fc2 = (ist_filter){c, s->hidden, 1, 1, w2, i & 4 ? NULL : b + 2 * c};
    float *taps = optest_values(&t, (size_t)(10 * c), -0.4f, 0.4f);
    if (i & 8) {
        layer.spread = (ist_filter){c, 1, 3, 3, taps, i & 4 ? NULL : taps + 9 * c};
        z = optest_zeros(&t, s->n, s->h, s->w, c);
        ref_dwconv(x, taps, layer.spread.b, (ref_window){3, 3, 1, 1, 1}, &(ref_epilogue){0}, z);
    }
    layer.x = optest_in(&t, x, IST_ELEM_T, i & 1);
    if (count < s->n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_norm_mlp left_out = layer; /* rows that are alike are not there */
    left_out.reuse = all.reuse;
    left_out.reuse.left_out = true;
    left_out.reuse.ahead.spare = i & 8 ? 2 : 0;
    if (i & 32) left_out.x = optest_in(&t, without_rows(&t, x, &all, 0), IST_ELEM_T, i & 1);
    if (!each_emits(&t, way, &layer) || (i & 32 && !each_emits(&t, way, &left_out))) {
        optest_drop(&t);
        return false;
    }
    if (i & 32) fill_rows(&t, left_out.y, &left_out.reuse);
    optest_run(&t);
    each_launched(&t, way);
    ref_epilogue act = {.act = (int)layer.act}, residual = {.add_before = z};
    ref_layernorm(z, none, 0, layer.norm.gamma, layer.norm.beta, 1e-5f, 0, u);
    u.v = (float *)seen(&t, u.v, ref_size(u), narrow);
    ref_conv(u, seen(&t, w1, (size_t)(c * s->hidden), narrow), layer.fc1.b, (ref_window){1, 1, 1, 0, 0}, &act, h);
    if (s->second) {
        want = optest_zeros(&t, s->n, s->h, s->w, c);
        h.v = (float *)seen(&t, h.v, ref_size(h), narrow);
        ref_conv(h, seen(&t, w2, (size_t)(c * s->hidden), narrow), layer.fc2.b, (ref_window){1, 1, 1, 0, 0}, &residual,
                 want);
    }
    ref_map got = optest_read(&t, layer.y);
    want.n = got.n = count;
    const double more = i & 64 ? 4 : 1;
    optest_close(&t, way.v->name, got, want, (t.half || narrow ? 2e-3 : 2e-6) * more,
                 (t.half || narrow ? 2e-2 : 3e-5) * more);
    if (i & 32) check_alike(&all, left_out.reuse, optest_read(&t, left_out.y), got, count);
    optest_end(&t);
    return true;
}

static void by_each(const shape *s, unsigned i, unsigned needs) {
    each_variant(IST_NODE_NORM_MLP, needs, layer_case, s, i, i % 4 == 3);
}

Test(norm_mlp, matches_its_layers) {
    static const shape all[] = {{1, 1, 7, 64, 64, true},     {2, 1, 67, 128, 192, true}, {2, 5, 13, 320, 320, false},
                                {2, 3, 5, 160, 640, true},   {2, 1, 1, 16, 64, false},   {2, 2, 9, 24, 40, true},
                                {1, 1, 140, 64, 704, true},  {2, 2, 3, 40, 36, false},   {2, 5, 8, 64, 64, true},
                                {1, 3, 29, 160, 480, false}, {2, 1, 8, 48, 112, true},   {2, 5, 23, 64, 128, true},
                                {2, 3, 35, 128, 256, true},  {1, 2, 6, 288, 384, true},  {2, 1, 13, 96, 128, true},
                                {1, 7, 30, 64, 96, false},   {1, 1, 25, 320, 640, true}};
    static const shape boxed[] = {{6, 27, 12, 64, 128, true}, {4, 40, 8, 160, 64, true}, {5, 21, 7, 48, 96, false}};
    static const shape tiny = {2, 1, 3, 64, 64, true};
    if (optest_small()) {
        by_each(&tiny, 3, 0);
        return;
    }
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        for (unsigned i = 0; i < 16; i++) by_each(&all[k], i, 0);
    /* as many rows as fill the units with groups that share none; and groups that do */
    const shape filling = {2, optest_units() / 2 + 1, 64, 192, 64, true};
    static const shape shared[] = {{2, 5, 29, 320, 512, true}, {1, 9, 31, 256, 128, true}};
    for (unsigned i = 2; i < 12; i += 9) by_each(&filling, i, 0);
    for (size_t k = 0; k < 2; k++)
        for (unsigned i = 1; i < 12; i += 5) by_each(&shared[k], i, 0);
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (!all[k].second) by_each(&all[k], 64 + 4 * (unsigned)k % 8, 0);
    for (size_t k = 0; k < sizeof boxed / sizeof *boxed; k++)
        for (unsigned i = 32; i < 48; i += 3) by_each(&boxed[k], i, 0);
    each_had_its_case(IST_NODE_NORM_MLP, 0);
}

/* Variants on AMX: by its instructions where the processor has them, else in plain OpenCL. */
Test(norm_mlp, on_amx) {
    static const shape some[] = {{2, 1, 7, 32, 32, true},    {2, 5, 29, 160, 640, true}, {1, 1, 140, 128, 512, true},
                                 {2, 5, 20, 320, 160, true}, {2, 9, 15, 96, 96, false},  {1, 1, 1, 320, 32, false}};
    if (getenv("ISTHMUS_HALF") || getenv("ISTHMUS_SMALL")) return;
    claim_amx();
    for (int narrow = 0; narrow < 2; narrow++) {
        setenv("ISTHMUS_BF16", narrow ? "1" : "0", 1);
        for (unsigned k = 0; k < sizeof some / sizeof *some; k++)
            for (unsigned i = k % 2; i < (k < 2 ? 16 : 8); i += 3)
                by_each(&some[k], i + (narrow ? 16 : 0), IST_CAP_X86_AMX);
    }
    each_had_its_case(IST_NODE_NORM_MLP, IST_CAP_X86_AMX);
}

/* Those on matrix instructions, of warps and of warpgroups, emulated where there are none. Slices as odd as the tests'
 * are taken only behind a convolution. */
Test(norm_mlp, on_matrix_instructions) {
    static const shape few[] = {{2, 3, 13, 32, 64, true}, {2, 1, 5, 160, 128, true}, {1, 3, 11, 96, 96, true}};
    static const shape fours[] = {{2, 5, 8, 64, 64, true}, {1, 3, 12, 160, 32, true}};
    static const shape wide[] = {{2, 1, 67, 64, 128, true},   {2, 3, 5, 160, 192, true}, {1, 5, 28, 64, 256, true},
                                 {2, 1, 9, 128, 64, true},    {2, 7, 12, 160, 64, true}, {2, 5, 15, 320, 64, true},
                                 {1, 1, 131, 192, 128, true}, {1, 3, 43, 256, 64, true}};
    static const unsigned of_wide[] = {2, 6, 11, 0, 15, 2, 4, 8};
    static const shape one = {2, 3, 11, 64, 40, false};
    each_needs(IST_NODE_NORM_MLP, IST_CAP_PTX_MMA);
    if (!claim_matrix_groups()) return;
    for (int k = 0; k < 3; k++) by_each(&few[k], k == 1 ? 2 : 6, IST_CAP_PTX_MMA);
    for (unsigned k = 0; k < 2; k++) by_each(&fours[k], 11 + 4 * k, IST_CAP_PTX_MMA);
    for (unsigned k = 0; k < sizeof wide / sizeof *wide; k++) by_each(&wide[k], of_wide[k], IST_CAP_PTX_MMA);
    by_each(&one, 2, IST_CAP_PTX_MMA);
    static const shape boxed[] = {{4, 27, 12, 64, 64, true}, {4, 22, 32, 160, 64, true}};
    for (unsigned k = 0; k < 2; k++)
        for (unsigned i = 34; i < 48; i += 8) by_each(&boxed[k], i, IST_CAP_PTX_MMA);
    each_had_its_case(IST_NODE_NORM_MLP, IST_CAP_PTX_MMA);
}

Test(norm_mlp, refuses_what_does_not_fit) {
    optest t;
    optest_begin(&t, "norm and layers refusal", 1);
    float zeros[64 * 64] = {0};
    ist_norm_mlp layer = {.label = "layers", .norm = {zeros, zeros, 64, NULL}, .fc1 = {64, 32, 1, 1, zeros, NULL}};
    layer.x = optest_in(&t, optest_random(&t, 1, 1, 4, 64), IST_ELEM_T, false);
    ist_emit(t.plan, IST_NODE_NORM_MLP, &layer);
    cr_assert_not(ist_has(layer.y));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    optest_drop(&t);
}

/* Its parts need local memory: a device without is told so, and the choice among variants survives it. */
Test(norm_mlp, without_local_memory) {
    optest t;
    without = EACH_CPU | EACH_PTX | EACH_MATRIX | IST_CAP_LOCAL;
    optest_begin(&t, "norm and a layer without local memory", 1);
    float zeros[64 * 64] = {0};
    ist_norm_mlp layer = {.label = "layer", .norm = {zeros, zeros, 64, NULL}, .fc1 = {64, 64, 1, 1, zeros, NULL}};
    layer.x = optest_in(&t, optest_random(&t, 1, 1, 4, 64), IST_ELEM_T, false);
    ist_emit(t.plan, IST_NODE_NORM_MLP, &layer);
    cr_expect_eq(ist_plan_status(t.plan), IST_E_UNSUPPORTED);
    cr_expect(strstr(ist_plan_error(t.plan)->text, "LOCAL"), "%s", ist_plan_error(t.plan)->text);
    optest_drop(&t);
    without = 0;
}
