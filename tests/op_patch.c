/* Patch embedding against the scalar convolutions, by every variant of the table. */
#include "support/alike_rows.h"
#include "support/claimed_matrix.h"
#include "support/each_variant.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct shape {
    int n, h, w, mid, out;
} shape;

/* bits of i: 1 slices, 2 limit, 4 no biases, 8 letterboxed pictures. */
static bool patch_case(each_way way, const void *what, unsigned i) {
    const shape *s = what;
    optest t;
    pictures all = {0};
    optest_begin(&t, "patch embedding", i + 10u * (unsigned)(s->h + s->w));
    int count = i & 2 ? s->n - 1 : s->n, h = (s->h + 1) / 2, w = (s->w + 1) / 2;
    ref_map x = optest_random(&t, s->n, s->h, s->w, 3), middle = optest_zeros(&t, s->n, h, w, s->mid);
    if (i & 8) all = draw_pictures(&t, s->n, s->h, 1, 0, 0);
    if (i & 8) make_alike(x, &all, true);
    ref_map want = optest_zeros(&t, s->n, (h + 1) / 2, (w + 1) / 2, s->out);
    float *w1 = optest_values(&t, (size_t)(27 * s->mid), -0.5f, 0.5f);
    float *w2 = optest_values(&t, (size_t)(9 * s->mid * s->out), -0.1f, 0.1f);
    float *b = optest_values(&t, (size_t)(s->mid + s->out), -1, 1);
    ist_filter first = {s->mid, 3, 3, 3, w1, i & 4 ? NULL : b};
    ist_filter second = {s->out, s->mid, 3, 3, w2, i & 4 ? NULL : b + s->mid};
    ist_tensor xt = optest_in(&t, x, IST_ELEM_T, i & 1);
    if (count < s->n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_patch_embed node = {.label = "patch", .image = xt, .first = first, .second = second}, copied = node;
    copied.reuse = all.reuse; /* rows that are alike are computed once */
    if (!each_emits(&t, way, &node) || (i & 8 && !each_emits(&t, way, &copied))) {
        optest_drop(&t);
        return false;
    }
    if (i & 8) fill_rows(&t, copied.y, &copied.reuse);
    optest_run(&t);
    each_launched(&t, way);
    ref_conv(x, w1, first.b, (ref_window){3, 3, 2, 1, 1}, &(ref_epilogue){.act = 3}, middle);
    ref_conv(middle, w2, second.b, (ref_window){3, 3, 2, 1, 1}, &(ref_epilogue){0}, want);
    ref_map got = optest_read(&t, node.y);
    want.n = got.n = count;
    optest_close(&t, way.v->name, got, want, t.half ? 2e-3 : 2e-6, t.half ? 1e-2 : 2e-5);
    if (i & 8) check_alike(&all, copied.reuse, optest_read(&t, copied.y), got, count);
    optest_end(&t);
    return true;
}

static void by_each(const shape *s, unsigned i, unsigned needs) {
    each_variant(IST_NODE_PATCH_EMBED, needs, patch_case, s, i, i % 4 == 3);
}

Test(patch, matches_its_layers) {
    static const shape all[] = {
        {1, 40, 72, 32, 64}, {2, 33, 131, 32, 64}, {2, 1, 1, 32, 64}, {1, 7, 10, 16, 24}, {3, 22, 561, 32, 64}};
    static const shape boxed[] = {{6, 90, 20, 32, 64}, {5, 73, 131, 32, 64}, {4, 128, 33, 32, 64}, {3, 6, 5, 32, 64}};
    static const shape tiny = {2, 5, 6, 16, 16};
    if (optest_small()) {
        by_each(&tiny, 3, 0);
        return;
    }
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        for (unsigned i = 0; i < 8; i++) by_each(&all[k], i, 0);
    for (size_t k = 0; k < sizeof boxed / sizeof *boxed; k++)
        for (unsigned i = 8; i < 16; i++) by_each(&boxed[k], i, 0);
    each_had_its_case(IST_NODE_PATCH_EMBED, 0);
}

/* The two convolutions that CPUs without wide vectors keep. */
Test(patch, without_wide_vectors) {
    static const shape s = {2, 18, 37, 32, 64};
    const char *before = getenv("ISTHMUS_CAPS");
    char caps[200];
    snprintf(caps, sizeof caps, "%s%s-SIMD16", before ? before : "", before && *before ? "," : "");
    setenv("ISTHMUS_CAPS", caps, 1);
    by_each(&s, 3, 0);
}

/* The variant on matrix instructions, emulated where there are none. */
Test(patch, on_matrix_instructions) {
    static const shape few[] = {{2, 9, 71, 32, 64}, {1, 37, 6, 32, 64}};
    each_needs(IST_NODE_PATCH_EMBED, IST_CAP_PTX_MMA);
    if (!claim_matrix_groups()) return;
    by_each(&few[0], 3, IST_CAP_PTX_MMA);
    by_each(&few[1], 4, IST_CAP_PTX_MMA);
    static const shape boxed = {3, 90, 20, 32, 64};
    by_each(&boxed, 10, IST_CAP_PTX_MMA);
    each_had_its_case(IST_NODE_PATCH_EMBED, IST_CAP_PTX_MMA);
}

Test(patch, refuses_what_does_not_fit) {
    optest t;
    optest_begin(&t, "patch refusal", 1);
    float zeros[64 * 64] = {0};
    ist_filter first = {8, 3, 3, 3, zeros, NULL}, second = {8, 16, 3, 3, zeros, NULL};
    ist_patch_embed node = {.label = "patch", .first = first, .second = second};
    node.image = optest_in(&t, optest_random(&t, 1, 4, 4, 3), IST_ELEM_T, false);
    ist_emit(t.plan, IST_NODE_PATCH_EMBED, &node);
    cr_assert_not(ist_has(node.y));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    optest_drop(&t);
}
