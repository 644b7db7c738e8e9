/* Two-way attention between tokens and an image against the scalar reference, on the device's own row and the portable
 * one. */
#include "ops/two_way.h"
#include "support/hidden_caps.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <math.h>

enum { HEADS = IST_TWO_WAY_HEADS };

typedef struct shape {
    int n, tokens, length, k, d; /* prompts, tokens, image rows, image channels, channels per head */
    float gain;                  /* on folded tokens: scores reach some ten times it */
} shape;

static int columns_of(int tokens) {
    return (tokens + 7) / 8 * 64;
}

/* ---- folding ---- */

/* bits of i: 1 slices, 2 addend, 4 addend for all, 8 columns, 16 limit. */
static void fold_case(const shape *s, unsigned i) {
    optest t;
    optest_begin(&t, "fold heads", i + 10u * (unsigned)(s->tokens + s->d));
    int c = 36, rows = HEADS * s->d, count = i & 16 ? s->n - 1 : s->n, columns = columns_of(s->tokens);
    ref_map x = optest_random(&t, s->n, 1, s->tokens, c), add = {0}, want;
    float *w = optest_values(&t, (size_t)(rows * c), -0.3f, 0.3f), *b = optest_values(&t, (size_t)rows, -1, 1);
    float *m = optest_values(&t, (size_t)(rows * s->k), -0.3f, 0.3f), *mb = optest_values(&t, (size_t)rows, -1, 1);
    ist_tensor xt = optest_in(&t, x, IST_ELEM_T, i & 1), at = {0};
    if (i & 2) {
        add = optest_random(&t, i & 4 ? 1 : s->n, 1, s->tokens, c);
        at = optest_in(&t, add, IST_ELEM_T, i & 1);
    }
    if (i & 8)
        want = optest_zeros(&t, s->n, 1, s->k + 1, columns);
    else
        want = optest_zeros(&t, s->n, s->k / 64, s->tokens * HEADS, 64);
    ist_head_fold fold = {s->d, s->k, w, b, m, i & 1 ? mb : NULL, 0.7f, i & 8};
    if (count < s->n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_tensor y = ist_op_fold_heads(t.plan, xt, at, &fold, "fold");
    optest_run(&t);
    ref_fold_heads(x, add, s->d, w, b, m, fold.mb, 0.7f, i & 8, want);
    want.n = count;
    ref_map got = optest_read(&t, y);
    got.n = count;
    optest_close(&t, "fold", got, want, 1e-6, 3e-6 * s->d); /* the result is float whatever the storage */
    optest_end(&t);
}

Test(two_way, folding) {
    static const shape all[] = {
        {2, 7, 0, 256, 16, 1}, {3, 3, 0, 64, 4, 1}, {2, 11, 0, 128, 20, 1}, {2, 32, 0, 64, 32, 1}};
    for (int portable = 0; portable < 2; portable++) {
        without = portable ? IST_CAP_VEC16 : 0;
        for (int k = 0; k < (optest_small() ? 2 : 4); k++)
            for (unsigned i = 0; i < 32; i += optest_small() ? 13 : 3) fold_case(&all[k], i);
    }
}

/* ---- the image ---- */

/* Random columns of real tokens, as ist_op_fold_heads leaves them. */
static ref_map random_columns(optest *t, const shape *s) {
    ref_map m = optest_zeros(t, s->n, 1, s->k + 1, columns_of(s->tokens));
    for (int n = 0; n < s->n; n++)
        for (int k = 0; k <= s->k; k++)
            for (int c = 0; c < m.c; c++) {
                bool token = c < s->tokens * HEADS;
                ref_at(m, n, 0, k)[c] = token      ? optest_uniform(t, -1, 1) * s->gain / (k < s->k ? 4 : 1)
                                        : k < s->k ? 0
                                                   : -3.0e38f;
            }
    return m;
}

/* Items of x by map, plus shift: what the reference sees. */
static ref_map picked(optest *t, ref_map x, const int *map, const float *shift, int n) {
    ref_map y = optest_zeros(t, n, 1, x.w, x.c);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < x.w; r++)
            for (int k = 0; k < x.c; k++)
                ref_at(y, i, 0, r)[k] = ref_at(x, map ? map[i] : i, 0, r)[k] + (shift ? shift[k] : 0);
    return y;
}

/* bits of i: 1 slices, 2 map, 4 shift, 8 update, 16 limit. */
static void step_case(const shape *s, unsigned i) {
    optest t;
    optest_begin(&t, "image step", i + 10u * (unsigned)(s->tokens + s->length + s->k));
    int count = i & 16 ? s->n - 1 : s->n, images = i & 2 ? 2 : s->n, map[8];
    for (int k = 0; k < s->n; k++) map[k] = k < count ? optest_int(&t, 0, images - 1) : 1 << 24;
    float *shift = i & 4 ? optest_values(&t, (size_t)s->k, -1, 1) : NULL;
    float *norm = optest_values(&t, 3 * (size_t)s->k, -1, 1);
    float *w = optest_values(&t, (size_t)(HEADS * s->d * s->k), -0.3f, 0.3f);
    float *b = optest_values(&t, (size_t)(HEADS * s->d), -1, 1);
    ref_map x = optest_random(&t, images, 1, s->length, s->k), position = optest_random(&t, 1, 1, s->length, s->k);
    ref_map queries = random_columns(&t, s), keys = random_columns(&t, s);
    ref_map values = optest_random(&t, s->n, s->k / 64, s->tokens * HEADS, 64);
    ist_image_side side = {.x = optest_in(&t, x, IST_ELEM_T, i & 1),
                           .position = optest_in(&t, position, IST_ELEM_T, i & 1),
                           .shift = shift};
    if (i & 2) side.map = optest_ints(&t, map, s->n);
    ist_image_update update = {.keys = optest_in(&t, keys, IST_ELEM_F32, false),
                               .values = optest_in(&t, values, IST_ELEM_F32, false),
                               .bias = norm,
                               .gamma = norm + s->k,
                               .beta = norm + 2 * s->k,
                               .eps = 1e-5f};
    ist_tensor folded = optest_in(&t, queries, IST_ELEM_F32, false), updated = {0};
    if (count < s->n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_tensor part = ist_op_image_step(t.plan, &side, i & 8 ? &update : NULL, folded, s->tokens, &updated, "step");
    ist_tensor y = ist_op_image_merge(t.plan, part, s->tokens, s->k, s->d, w, b, "merge");
    optest_run(&t);
    ref_map seen = picked(&t, x, i & 2 ? map : NULL, shift, count);
    if (i & 8) {
        ref_map want = optest_zeros(&t, count, 1, s->length, s->k), got = optest_read(&t, updated);
        ref_image_update(seen, position, keys, values, norm, norm + s->k, norm + 2 * s->k, 1e-5, want);
        got.n = count;
        optest_close(&t, "update", got, want, 0, (t.half ? 4e-3 : 2e-5) * s->gain);
        seen = want;
    }
    ref_map want = optest_zeros(&t, count, 1, s->tokens, HEADS * s->d), got = optest_read(&t, y);
    ref_image_read(seen, position, queries, s->d, w, b, want);
    got.n = count;
    optest_close(&t, "read", got, want, 0, (t.half ? 4e-3 : 2e-5) * s->gain);
    optest_end(&t);
}

static void shapes(void) {
    static const shape all[] = {{1, 7, 130, 256, 16, 1}, {3, 8, 42, 64, 4, 2},  {2, 3, 127, 128, 8, 1},
                                {2, 9, 65, 64, 16, 1},   {2, 32, 50, 64, 4, 1}, {2, 1, 1, 64, 4, 1},
                                {2, 5, 300, 64, 32, 8}};
    int count = optest_small() ? 1 : (int)(sizeof all / sizeof *all);
    static const shape tiny = {2, 7, 9, 64, 4, 1};
    for (int k = 0; k < count; k++)
        for (unsigned i = 0; i < 32; i += optest_small() ? 15 : 1) step_case(optest_small() ? &tiny : &all[k], i);
}

Test(two_way, own_row) {
    without = 0;
    shapes();
}

Test(two_way, portable) {
    without = IST_CAP_VEC16;
    shapes();
}

Test(two_way, portable_small_groups) {
    without = IST_CAP_VEC16 | IST_CAP_GROUP256;
    shapes();
}

Test(two_way, refuses_what_does_not_fit) {
    without = 0;
    optest t;
    optest_begin(&t, "two-way refusal", 1);
    float zeros[8 * 16 * 36] = {0};
    ist_head_fold fold = {16, 100, zeros, zeros, zeros, NULL, 1, true};
    ist_tensor x = optest_in(&t, optest_random(&t, 1, 1, 3, 36), IST_ELEM_T, false);
    cr_assert_not(ist_has(ist_op_fold_heads(t.plan, x, (ist_tensor){0}, &fold, "fold")));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    optest_drop(&t);
}
