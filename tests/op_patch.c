/* Patch embedding against the scalar convolutions, in one launch and in two. */
#include "variants/variant.h"
#include "support/alike_rows.h"
#include "support/claimed_matrix.h"
#include "support/hidden_caps.h"
#include "support/optest.h"

#include <criterion/criterion.h>

typedef struct shape {
    int n, h, w, mid, out;
} shape;

static const char *row; /* the kernel that a case must launch, NULL: any */

/* The node by the variant that the plan chooses; *alike: which rows of x are the same, then of the result. */
static ist_tensor embed(ist_plan *p, ist_tensor x, ist_filter first, ist_filter second, ist_padding_reuse *alike) {
    ist_patch_embed node = {.label = "patch", .image = x, .first = first, .second = second, .alike = *alike};
    ist_emit(p, IST_NODE_PATCH_EMBED, &node);
    *alike = node.alike;
    return node.y;
}

/* bits of i: 1 slices, 2 limit, 4 no biases, 8 letterboxed pictures. */
static void patch_case(const shape *s, unsigned i) {
    optest t;
    pictures all = {{0}, {{0}, 0, 0, 0}};
    ist_padding_reuse unlike = {0};
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
    ist_tensor y = embed(t.plan, xt, first, second, &unlike), copied = {0};
    ist_padding_reuse alike = all.alike;
    if (i & 8) copied = embed(t.plan, xt, first, second, &alike);
    optest_run(&t);
    optest_takes(&t, row);
    ref_conv(x, w1, first.b, (ref_window){3, 3, 2, 1, 1}, &(ref_epilogue){.act = 3}, middle);
    ref_conv(middle, w2, second.b, (ref_window){3, 3, 2, 1, 1}, &(ref_epilogue){0}, want);
    ref_map got = optest_read(&t, y);
    want.n = got.n = count;
    optest_close(&t, "patch", got, want, t.half ? 2e-3 : 2e-6, t.half ? 1e-2 : 2e-5);
    if (i & 8) check_alike(&all, alike, optest_read(&t, copied), got, count);
    optest_end(&t);
}

static void shapes(void) {
    static const shape all[] = {
        {1, 40, 72, 32, 64}, {2, 33, 131, 32, 64}, {2, 1, 1, 32, 64}, {1, 7, 10, 16, 24}, {3, 22, 561, 32, 64}};
    static const shape boxed[] = {{6, 90, 20, 32, 64}, {5, 73, 131, 32, 64}, {4, 128, 33, 32, 64}, {3, 6, 5, 32, 64}};
    static const shape tiny = {2, 5, 6, 16, 16};
    if (optest_small()) {
        patch_case(&tiny, 3);
        return;
    }
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        for (unsigned i = 0; i < 8; i++) patch_case(&all[k], i);
    for (size_t k = 0; k < sizeof boxed / sizeof *boxed; k++)
        for (unsigned i = 8; i < 16; i++) patch_case(&boxed[k], i);
}

Test(patch, own_row) {
    without = 0;
    shapes();
}

/* A CPU's two convolutions, which those without wide vectors keep. */
Test(patch, in_steps) {
    static const shape s = {2, 18, 37, 32, 64};
    without = IST_CAP_SIMD16;
    patch_case(&s, 3);
}

Test(patch, portable) {
    without = IST_CAP_VEC16;
    shapes();
}

/* The row on matrix instructions, emulated where there are none. */
Test(patch, matrix_row) {
    static const shape few[] = {{2, 9, 71, 32, 64}, {1, 37, 6, 32, 64}};
    if (!claim_matrix_instructions()) return;
    without = IST_CAP_VEC16; /* else a CPU takes a row of its own */
    row = "nvidia/patch";
    patch_case(&few[0], 3);
    patch_case(&few[1], 4);
}

Test(patch, refuses_what_does_not_fit) {
    without = 0;
    optest t;
    ist_padding_reuse alike = {0};
    optest_begin(&t, "patch refusal", 1);
    float zeros[64 * 64] = {0};
    ist_filter first = {8, 3, 3, 3, zeros, NULL}, second = {8, 16, 3, 3, zeros, NULL};
    ist_tensor x = optest_in(&t, optest_random(&t, 1, 4, 4, 3), IST_ELEM_T, false);
    cr_assert_not(ist_has(embed(t.plan, x, first, second, &alike)));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    optest_drop(&t);
}
