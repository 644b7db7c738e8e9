/* Inverted bottlenecks against the scalar convolutions, by every variant of the table. */
#include "support/alike_rows.h"
#include "support/claimed_amx.h"
#include "support/claimed_matrix.h"
#include "support/each_variant.h"

#include <criterion/criterion.h>

typedef struct shape {
    int n, h, w, in, hidden, out, stride;
    bool residual;
    ist_act act;
} shape;

/* What a product reads of v where the plan is narrow. */
static const float *seen(optest *t, const float *v, size_t count, bool narrow) {
    if (!narrow) return v;
    float *near = optest_values(t, count, 0, 0);
    for (size_t i = 0; i < count; i++) near[i] = ref_bf16(v[i]);
    return near;
}

static ref_map reference(optest *t, const shape *s, ref_map x, const ist_mbconv *b, bool narrow) {
    int h = (s->h - 1) / s->stride + 1, w = (s->w - 1) / s->stride + 1;
    ref_map wide = optest_zeros(t, s->n, s->h, s->w, s->hidden), spread = optest_zeros(t, s->n, h, w, s->hidden);
    ref_map y = optest_zeros(t, s->n, h, w, s->out);
    ref_epilogue gelu = {.act = 3}, last = {.act = (int)s->act};
    if (s->residual) last.add_before = x;
    ref_map input = x;
    input.v = (float *)seen(t, x.v, ref_size(x), narrow);
    ref_conv(input, seen(t, b->expand.w, (size_t)(s->in * s->hidden), narrow), b->expand.b, (ref_window){1, 1, 1, 0, 0},
             &gelu, wide);
    ref_dwconv(wide, b->spread.w, b->spread.b, (ref_window){3, 3, s->stride, 1, 1}, &gelu, spread);
    spread.v = (float *)seen(t, spread.v, ref_size(spread), narrow);
    ref_conv(spread, seen(t, b->project.w, (size_t)(s->out * s->hidden), narrow), b->project.b,
             (ref_window){1, 1, 1, 0, 0}, &last, y);
    return y;
}

/* bits of i: 1 slices, 2 limit, 4 no biases, 8 bfloat16, 16 letterboxed pictures. */
static bool block_case(each_way way, const void *what, unsigned i) {
    const shape *s = what;
    optest t;
    pictures all = {0};
    optest_begin(&t, "bottleneck", i + 10u * (unsigned)(s->h + s->w + s->hidden));
    const bool narrow = i & 8;
    ist_plan_reduced(t.plan, narrow);
    int count = i & 2 ? s->n - 1 : s->n;
    ref_map x = optest_random(&t, s->n, s->h, s->w, s->in);
    if (i & 16) all = draw_pictures(&t, s->n, s->h, 2, 1, 1);
    if (i & 16) make_alike(x, &all, false);
    float *w1 = optest_values(&t, (size_t)(s->in * s->hidden), -0.3f, 0.3f);
    float *w2 = optest_values(&t, 9 * (size_t)s->hidden, -0.5f, 0.5f);
    float *w3 = optest_values(&t, (size_t)(s->out * s->hidden), -0.3f, 0.3f);
    float *b = optest_values(&t, (size_t)(2 * s->hidden + s->out), -1, 1);
    bool bias = !(i & 4);
    ist_mbconv block = {.label = "bottleneck",
                        .expand = {s->hidden, s->in, 1, 1, w1, bias ? b : NULL},
                        .spread = {s->hidden, 1, 3, 3, w2, bias ? b + s->hidden : NULL},
                        .project = {s->out, s->hidden, 1, 1, w3, bias ? b + 2 * s->hidden : NULL},
                        .stride = s->stride,
                        .residual = s->residual,
                        .act = s->act};
    ist_tensor xt = optest_in(&t, x, IST_ELEM_T, i & 1);
    if (count < s->n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    block.x = xt;
    ist_mbconv copied = block; /* rows that are alike are computed once */
    copied.reuse = all.reuse;
    ist_mbconv left_out = copied; /* rows that are alike are not there */
    left_out.reuse.left_out = true;
    left_out.reuse.kept.spare = 3;
    left_out.reuse.ahead.spare = 2;
    if (i & 16) left_out.x = optest_in(&t, without_rows(&t, x, &all, 3), IST_ELEM_T, i & 1);
    if (!each_emits(&t, way, &block) || (i & 16 && (!each_emits(&t, way, &copied) || !each_emits(&t, way, &left_out)))) {
        optest_drop(&t);
        return false;
    }
    if (i & 16) {
        fill_rows(&t, copied.y, &copied.reuse);
        fill_rows(&t, left_out.y, &left_out.reuse);
    }
    optest_run(&t);
    each_launched(&t, way);
    ref_map want = reference(&t, s, x, &block, narrow), got = optest_read(&t, block.y);
    want.n = got.n = count;
    optest_close(&t, way.v->name, got, want, t.half || narrow ? 2e-3 : 2e-6, t.half || narrow ? 1e-2 : 2e-5);
    if (i & 16) check_alike(&all, copied.reuse, optest_read(&t, copied.y), got, count);
    if (i & 16) check_alike(&all, left_out.reuse, optest_read(&t, left_out.y), got, count);
    optest_end(&t);
    return true;
}

static void by_each(const shape *s, unsigned i, unsigned needs) {
    each_variant(IST_NODE_MBCONV, needs, block_case, s, i, i % 4 == 3);
}

/* Pictures that fill the upper rows only. */
static void letterboxes(unsigned needs) {
    static const shape some[] = {{6, 41, 9, 64, 64, 64, 1, true, IST_ACT_GELU},
                                 {4, 26, 70, 64, 128, 64, 1, false, IST_ACT_NONE},
                                 {5, 35, 37, 32, 64, 128, 2, false, IST_ACT_NONE},
                                 {6, 64, 8, 64, 64, 64, 2, false, IST_ACT_RELU},
                                 {6, 3, 5, 64, 64, 64, 1, true, IST_ACT_GELU}};
    for (unsigned k = 0; k < sizeof some / sizeof *some; k++) {
        by_each(&some[k], 16 + k, needs);
        by_each(&some[k], 16 + (k + 1) % 4, needs);
    }
}

Test(mbconv, matches_its_layers) {
    static const shape all[] = {
        {1, 5, 7, 64, 64, 64, 1, true, IST_ACT_GELU},    {2, 18, 70, 16, 128, 64, 1, false, IST_ACT_NONE},
        {2, 9, 13, 32, 64, 128, 2, false, IST_ACT_NONE}, {1, 34, 131, 16, 64, 64, 2, false, IST_ACT_RELU},
        {2, 1, 1, 64, 128, 64, 1, true, IST_ACT_GELU},   {2, 6, 6, 24, 40, 24, 1, true, IST_ACT_GELU},
        {1, 17, 20, 64, 256, 64, 1, true, IST_ACT_GELU}, {2, 9, 17, 16, 64, 128, 2, false, IST_ACT_NONE},
    };
    static const shape tiny = {2, 3, 4, 16, 64, 64, 1, false, IST_ACT_GELU};
    if (optest_small()) {
        by_each(&tiny, 3, 0);
        return;
    }
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        for (unsigned i = 0; i < 8; i++) by_each(&all[k], i, 0);
    letterboxes(0);
    each_had_its_case(IST_NODE_MBCONV, 0);
}

/* Variants on AMX: by its instructions where the processor has them, else in plain OpenCL. */
Test(mbconv, on_amx) {
    static const shape some[] = {{2, 9, 13, 32, 64, 96, 2, false, IST_ACT_NONE},
                                 {1, 17, 45, 64, 256, 64, 1, true, IST_ACT_GELU},
                                 {1, 9, 521, 32, 160, 32, 1, true, IST_ACT_RELU},
                                 {2, 1, 1, 64, 32, 64, 1, true, IST_ACT_GELU}};
    if (getenv("ISTHMUS_HALF") || getenv("ISTHMUS_SMALL")) return;
    claim_amx();
    for (int narrow = 0; narrow < 2; narrow++) {
        setenv("ISTHMUS_BF16", narrow ? "1" : "0", 1);
        for (unsigned k = 0; k < sizeof some / sizeof *some; k++)
            for (unsigned i = k % 2; i < 8; i += 3) by_each(&some[k], i + (narrow ? 8 : 0), IST_CAP_X86_AMX);
    }
    setenv("ISTHMUS_BF16", "0", 1);
    letterboxes(IST_CAP_X86_AMX);
    each_had_its_case(IST_NODE_MBCONV, IST_CAP_X86_AMX);
}

/* Those on matrix instructions, emulated where there are none. */
Test(mbconv, on_matrix_instructions) {
    static const shape few[] = {{2, 9, 11, 16, 64, 64, 1, false, IST_ACT_GELU},
                                {1, 5, 17, 64, 128, 64, 1, true, IST_ACT_GELU},
                                {2, 9, 17, 16, 64, 128, 2, false, IST_ACT_NONE},
                                {1, 17, 20, 64, 256, 64, 1, true, IST_ACT_GELU}, /* groups of 8 x 16 pixels on two units */
                                {1, 9, 13, 32, 256, 64, 2, false, IST_ACT_NONE}};
    each_needs(IST_NODE_MBCONV, IST_CAP_PTX_MMA);
    if (!claim_matrix_groups()) return;
    static const shape boxed[] = {{4, 26, 9, 64, 64, 64, 1, true, IST_ACT_GELU},
                                  {3, 35, 10, 32, 64, 128, 2, false, IST_ACT_NONE}};
    for (unsigned k = 0; k < sizeof few / sizeof *few; k++)
        by_each(&few[k], k == 0 ? 3 : k % 2 ? 0 : 7, IST_CAP_PTX_MMA);
    for (unsigned k = 0; k < 2; k++) by_each(&boxed[k], 16 + 2 * k, IST_CAP_PTX_MMA);
    each_had_its_case(IST_NODE_MBCONV, IST_CAP_PTX_MMA);
}

Test(mbconv, refuses_what_does_not_fit) {
    optest t;
    optest_begin(&t, "bottleneck refusal", 1);
    float zeros[64 * 64] = {0};
    ist_filter wide = {64, 64, 1, 1, zeros, NULL}, spread = {64, 1, 3, 3, zeros, NULL};
    ist_mbconv block = {
        .label = "bottleneck", .expand = wide, .spread = spread, .project = wide, .stride = 2, .residual = true};
    block.x = optest_in(&t, optest_random(&t, 1, 4, 4, 64), IST_ELEM_T, false);
    ist_emit(t.plan, IST_NODE_MBCONV, &block);
    cr_assert_not(ist_has(block.y));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    optest_drop(&t);
}
