/* Two-way attention between tokens and an image against the scalar reference, on the device's own row and the portable
 * one. */
#include "support/claimed_matrix.h"
#include "support/hidden_caps.h"
#include "support/optest.h"
#include "support/relative_tokens.h"
#include "support/two_way_test.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

enum { HEADS = IST_TWO_WAY_HEADS };

static const char *row; /* the kernel of the image's steps that a case must launch, NULL: any */

typedef struct shape {
    int n, tokens, length, k, d; /* prompts, tokens, image rows, image channels, channels per head */
    float gain;                  /* on folded tokens: scores reach some ten times it */
} shape;

static int columns_of(int tokens) {
    return (tokens + 7) / 8 * 64;
}

/* What ref_fold_heads and the reference call columns [K + 1][C] or panels [K / 64][8 N][64], as rows of channels. */
static ref_map as_halves(optest *t, ref_map m, bool columns, int tokens) {
    int k_in = columns ? m.w - 1 : m.h * 64, rows = tokens * HEADS;
    ref_map y = optest_zeros(t, m.n, 1, rows + 2, k_in);
    for (int n = 0; n < m.n; n++)
        for (int c = 0; c < rows; c++) {
            for (int k = 0; k < k_in; k++)
                ref_at(y, n, 0, c)[ist_two_way_channel(two_way_groups(t->plan, y.c), y.c, k)] =
                    columns ? ref_at(m, n, 0, k)[c] : ref_at(m, n, k / 64, c)[k % 64];
            if (!columns) continue;
            float *constant = ref_at(y, n, 0, rows) + 2 * c, v = ref_at(m, n, 0, k_in)[c];
            constant[0] = rintf(v * 64) / 64; /* halves hold it */
            constant[1] = v - constant[0];
        }
    return y;
}

static ref_map from_halves(optest *t, ref_map y, bool columns, int tokens) {
    int rows = tokens * HEADS, wide = columns_of(tokens);
    ref_map m = columns ? optest_zeros(t, y.n, 1, y.c + 1, wide) : optest_zeros(t, y.n, y.c / 64, rows, 64);
    for (int n = 0; n < y.n; n++)
        for (int c = 0; c < (columns ? wide : rows); c++) {
            const float *constant = ref_at(y, n, 0, rows) + 2 * (c < rows ? c : 0);
            for (int k = 0; k < y.c; k++)
                *(columns ? ref_at(m, n, 0, k) + c : ref_at(m, n, k / 64, c) + k % 64) =
                    c < rows ? ref_at(y, n, 0, c)[ist_two_way_channel(two_way_groups(t->plan, y.c), y.c, k)] : 0;
            if (columns) ref_at(m, n, 0, y.c)[c] = c < rows ? constant[0] + constant[1] : -3.0e38f;
        }
    return m;
}

/* ---- folding ---- */

/* bits of i: 1 slices, 2 addend, 4 addend for all, 8 columns, 16 limit; where the device's row has them: 32 plain
 * columns, 64 relative to the last token. */
static void fold_case(const shape *s, unsigned i) {
    optest t;
    optest_begin(&t, "fold heads", i + 10u * (unsigned)(s->tokens + s->d));
    bool plain = i & 32, relative = i & 64;
    if (((plain || relative) && !absorbed_kernels(t.plan)->shares) || two_way_halves(t.plan, s->tokens, s->k)) {
        optest_drop(&t);
        return;
    }
    int c = 36, rows = HEADS * s->d, count = i & 16 ? s->n - 1 : s->n, columns = columns_of(s->tokens);
    ref_map x = optest_random(&t, s->n, 1, s->tokens, c), add = {0}, want;
    float *w = optest_values(&t, (size_t)(rows * c), -0.3f, 0.3f), *b = optest_values(&t, (size_t)rows, -1, 1);
    float *m = optest_values(&t, (size_t)(rows * s->k), -0.3f, 0.3f), *mb = optest_values(&t, (size_t)rows, -1, 1);
    ist_tensor xt = optest_in(&t, x, IST_ELEM_T, i & 1), at = {0};
    if (i & 2) {
        add = optest_random(&t, i & 4 ? 1 : s->n, 1, s->tokens, c);
        at = optest_in(&t, add, IST_ELEM_T, i & 1);
    }
    if (plain)
        want = optest_zeros(&t, s->n, 1, s->d + 1, columns);
    else if (i & 8)
        want = optest_zeros(&t, s->n, 1, s->k + 1, columns);
    else
        want = optest_zeros(&t, s->n, s->k / 64, s->tokens * HEADS, 64);
    ist_head_fold fold = {.d = s->d,
                          .k = s->k,
                          .w = w,
                          .b = b,
                          .m = plain ? NULL : m,
                          .mb = i & 1 && !plain ? mb : NULL,
                          .scale = 0.7f,
                          .columns = i & 8,
                          .plain = plain,
                          .relative = relative};
    if (count < s->n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_tensor y = ist_fold_heads(t.plan, absorbed_kernels(t.plan), &(ist_fold_job){xt, at, fold}, "fold");
    optest_run(&t);
    if (plain) /* the token itself: folded with ones */
        for (int o = 0; o < rows; o++)
            for (int k = 0; k < s->d; k++) m[o * s->d + k] = o % s->d == k;
    ref_fold_heads(x, add, s->d, w, b, m, fold.mb, 0.7f, plain || i & 8, want);
    if (relative) want = relative_to_last(&t, want, plain || i & 8, s->tokens, HEADS);
    want.n = count;
    ref_map got = optest_read(&t, y);
    got.n = count;
    /* Else the result is float whatever the storage. */
    optest_close(&t, "fold", got, want, 1e-6, 3e-6 * s->d);
    optest_end(&t);
}

Test(two_way, folding) {
    static const shape all[] = {
        {2, 7, 0, 256, 16, 1}, {3, 3, 0, 64, 4, 1}, {2, 11, 0, 128, 20, 1}, {2, 32, 0, 64, 32, 1}};
    for (int portable = 0; portable < 2; portable++) {
        without = portable ? IST_CAP_VEC16 : 0;
        for (int k = 0; k < (optest_small() ? 2 : 4); k++)
            for (unsigned i = 0; i < (portable ? 32 : 128); i += optest_small() ? 13 : 3) fold_case(&all[k], i);
    }
}

/* Folds of a layer's result in the launch of the layer, one without the addend, against folds of what it stored. */
static void layer_folds_case(int prompts, int tokens, int c, int k, bool attends) {
    enum { HIDDEN = 128, D = 16, ROWS = HEADS * D };
    optest t;
    optest_begin(&t, "layer and folds", (unsigned)(tokens + k));
    cr_assert(two_way_halves(t.plan, tokens, k));
    int columns = columns_of(tokens), count = prompts > 1 ? prompts - 1 : 1, outs = 3 * HIDDEN;
    ref_map x = optest_random(&t, prompts, 1, tokens, c), add = optest_random(&t, prompts, 1, tokens, c);
    ist_tensor at = optest_in(&t, add, IST_ELEM_T, false), projections, y;
    ist_fold_job jobs[IST_FOLDS];
    for (int j = 0; j < IST_FOLDS; j++)
        jobs[j] = (ist_fold_job){.add = j == 1 ? (ist_tensor){0} : at,
                                 .fold = {.d = D,
                                          .k = k,
                                          .w = optest_values(&t, (size_t)(ROWS * c), -0.2f, 0.2f),
                                          .b = optest_values(&t, ROWS, -1, 1),
                                          .m = optest_values(&t, (size_t)(ROWS * k), -0.3f, 0.3f),
                                          .mb = j ? optest_values(&t, ROWS, -1, 1) : NULL,
                                          .scale = 0.5f + 0.25f * (float)j,
                                          .columns = j < 2}};
    ist_token_folds folds = {.jobs = jobs, .count = attends ? 1 : IST_FOLDS, .groups = two_way_groups(t.plan, k)};
    ist_token_job l = {.in = attends ? 0 : c,
                         .hidden = HIDDEN,
                         .out = c,
                         .w1 = optest_values(&t, (size_t)(HIDDEN * c), -0.2f, 0.2f),
                         .b1 = optest_values(&t, HIDDEN, -1, 1),
                         .w = optest_values(&t, (size_t)(HIDDEN * c), -0.2f, 0.2f),
                         .b = optest_values(&t, (size_t)c, -1, 1),
                         .gamma = optest_values(&t, (size_t)c, -1, 1),
                         .beta = optest_values(&t, (size_t)c, -1, 1),
                         .eps = 1e-5f,
                         .folds = &folds};
    ist_token_projection q = {.in = c, .outs = outs, .b = optest_values(&t, (size_t)outs, -1, 1)};
    q.w = optest_values(&t, (size_t)(outs * c), -0.2f, 0.2f);
    ist_tensor xt = optest_in(&t, x, IST_ELEM_T, false);
    if (count < prompts) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    if (attends)
        y = ist_token_attention(t.plan, xt, &q, &l, &projections, "layer");
    else
        y = ist_token_layer(t.plan, xt, &l, "layer");
    optest_run(&t);
    ref_map result = optest_read(&t, y);
    result.n = add.n = count;
    for (int j = 0; j < folds.count; j++) {
        const ist_head_fold *f = &jobs[j].fold;
        ref_map want =
            j < 2 ? optest_zeros(&t, count, 1, k + 1, columns) : optest_zeros(&t, count, k / 64, tokens * HEADS, 64);
        ref_fold_heads(result, j == 1 ? (ref_map){0} : add, D, f->w, f->b, f->m, f->mb, (double)f->scale, j < 2, want);
        ref_map got = optest_read(&t, folds.y[j]);
        got.n = count;
        got = from_halves(&t, got, j < 2, tokens);
        optest_close(&t, "fold", got, want, 4e-3, 4e-4 * D);
    }
    optest_end(&t);
}

static void layer_folds(void) {
    without = IST_CAP_VEC16;
    if (optest_small()) return; /* interpreters do not see that a counter orders groups */
    for (int attends = 0; attends < 2; attends++) {
        layer_folds_case(3, 7, 64, 64, attends);
        layer_folds_case(1, 8, 128, 128, attends);
    }
}

Test(two_way, layer_folds_matrix) {
    if (claim_matrix_warps()) layer_folds();
}

Test(two_way, layer_folds_matrix_groups) {
    if (claim_matrix_groups()) layer_folds();
}

/* ---- the image ---- */

/* Random columns of real tokens, as ist_fold_heads leaves them. */
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

/* Columns or panels as the device's row takes them; rounded to half, in the reference as well, where it takes halves.
 */
static ist_tensor folded_in(optest *t, ref_map m, bool columns, int tokens, bool halves) {
    if (!halves) return optest_in(t, m, IST_ELEM_F32, false);
    for (size_t i = 0; i < ref_size(m); i++)
        if (m.v[i] > -60000) m.v[i] = rintf(m.v[i] * 1024) / 1024;
    return optest_in(t, as_halves(t, m, columns, tokens), IST_ELEM_T, false);
}

/* bits of i: 1 slices, 2 map, 4 shift, 8 update, 16 limit; where the device's row has them: 32 an update relative to
 * its last token, 64 queries of fewer tokens than the update's. */
static void step_case(const shape *s, unsigned i) {
    optest t;
    optest_begin(&t, "image step", i + 10u * (unsigned)(s->tokens + s->length + s->k));
    bool relative = i & 32, few = i & 64;
    if ((relative || few) && !absorbed_kernels(t.plan)->shares) {
        optest_drop(&t);
        return;
    }
    int count = i & 16 ? s->n - 1 : s->n, images = i & 2 ? 2 : s->n, map[16];
    int readers = few && s->tokens <= IST_BLOCK_TOKENS ? (s->tokens + 2) / 3 : s->tokens;
    shape asked = *s;
    asked.tokens = readers;
    for (int k = 0; k < s->n; k++) map[k] = k < count ? optest_int(&t, 0, images - 1) : 1 << 24;
    float *shift = i & 4 ? optest_values(&t, (size_t)s->k, -1, 1) : NULL;
    float *norm = optest_values(&t, 3 * (size_t)s->k, -1, 1);
    float *w = optest_values(&t, (size_t)(HEADS * s->d * s->k), -0.3f, 0.3f);
    float *b = optest_values(&t, (size_t)(HEADS * s->d), -1, 1);
    ref_map x = optest_random(&t, images, 1, s->length, s->k), position = optest_random(&t, 1, 1, s->length, s->k);
    ref_map queries = random_columns(&t, &asked), keys = random_columns(&t, s);
    ref_map values = optest_random(&t, s->n, s->k / 64, s->tokens * HEADS, 64), given[2] = {keys, values};
    for (int k = 0; relative && k < 2; k++) given[k] = relative_to_last(&t, given[k], !k, s->tokens, HEADS);
    ist_image_side side = {.x = optest_in(&t, x, IST_ELEM_T, i & 1),
                           .position = optest_in(&t, position, IST_ELEM_T, i & 1),
                           .shift = shift};
    if (i & 2) side.map = optest_ints(&t, map, s->n);
    bool halves = two_way_halves(t.plan, s->tokens, s->k);
    ist_image_update update = {.keys = folded_in(&t, given[0], true, s->tokens, halves),
                               .values = folded_in(&t, given[1], false, s->tokens, halves),
                               .relative = relative,
                               .bias = norm,
                               .gamma = norm + s->k,
                               .beta = norm + 2 * s->k,
                               .eps = 1e-5f};
    ist_tensor folded = folded_in(&t, queries, true, s->tokens, halves), updated = {0};
    if (count < s->n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    const ist_absorbed_kernels *kernels = absorbed_kernels(t.plan);
    const ist_image_update *before = i & 8 ? &update : NULL;
    ist_token_job layer = passing_layer(&t, HEADS * s->d);
    ist_tensor y;
    if (halves) {
        bool groups = two_way_groups(t.plan, s->k);
        ist_tensor part = ist_image_step_mma(t.plan, groups, &side, before, folded, readers, &updated, "step");
        y = ist_token_merge(t.plan, part, s->tokens, &(ist_token_merging){s->k, s->d, w, b}, &layer, "merge and layer");
    } else {
        ist_tensor part = ist_image_step(t.plan, kernels, &side, before, folded, readers, &updated, "step");
        ist_merge_job merge = {.parts = part, .tokens = readers, .k = s->k, .d = s->d, .w = w, .b = b};
        y = ist_image_merge(t.plan, kernels, &merge, "merge");
    }
    optest_run(&t);
    optest_takes(&t, row);
    ref_map seen = picked_items(&t, x, i & 2 ? map : NULL, shift, count);
    if (i & 8) {
        ref_map want = optest_zeros(&t, count, 1, s->length, s->k), got = optest_read(&t, updated);
        ref_image_update(seen, position, keys, values, norm, norm + s->k, norm + 2 * s->k, 1e-5, want);
        got.n = count;
        optest_close(&t, "update", got, want, 0, (t.half ? 4e-3 : 2e-5) * s->gain);
        seen = want;
    }
    ref_map want = optest_zeros(&t, count, 1, readers, HEADS * s->d), got = optest_read(&t, y);
    ref_image_read(seen, position, queries, s->d, w, b, want);
    got.n = count;
    if (halves) /* with a layer that passes on what was read */
        optest_close(&t, "merge and layer", got, passed_layer(&t, want, &layer), 2e-3, 1e-2 * s->gain);
    else
        optest_close(&t, "read", got, want, t.half ? 5e-4 : 0 /* as it is stored */, (t.half ? 4e-3 : 2e-5) * s->gain);
    optest_end(&t);
}

/* Each shape with every `every`th of the choices of flags, another first one each. */
static void shapes(unsigned every) {
    static const shape all[] = {{1, 7, 130, 256, 16, 1}, {3, 8, 42, 64, 4, 2},  {2, 3, 127, 128, 8, 1},
                                {2, 9, 65, 64, 16, 1},   {2, 32, 50, 64, 4, 1}, {2, 1, 1, 64, 4, 1},
                                {2, 5, 300, 64, 32, 8},   {2, 8, 1100, 256, 16, 1},
                                {2, 13, 133, 256, 16, 1}, {1, 20, 66, 256, 16, 1}};
    int count = optest_small() ? 1 : (int)(sizeof all / sizeof *all);
    static const shape tiny = {2, 7, 9, 64, 4, 1};
    for (int k = 0; k < count; k++)
        for (unsigned i = (unsigned)k % every; i < 128; i += optest_small() ? 15 : i < 32 ? every : 3 * every)
            step_case(optest_small() ? &tiny : &all[k], i);
}

Test(two_way, own_row) {
    without = 0;
    shapes(1);
}

Test(two_way, portable) {
    hide(IST_CAP_VEC16 | IST_CAP_PTX_MMA);
    row = "portable/two_way";
    shapes(3);
}

Test(two_way, portable_small_groups) {
    hide(IST_CAP_VEC16 | IST_CAP_PTX_MMA | IST_CAP_GROUP256);
    row = "portable/two_way";
    shapes(5);
}

/* The row on matrix instructions; without them nvidia/ptx computes the same in plain OpenCL. */
static void matrix_shapes(void) {
    static const shape steps[] = {{3, 8, 64, 64, 4, 2},
                                  {2, 7, 70, 64, 16, 1},
                                  {2, 3, 127, 64, 8, 1},
                                  {2, 1, 1, 64, 32, 1},
                                  {8, 5, 65, 64, 20, 4}};
    static const shape whole = {2, 7, 67, 256, 16, 1};
    static const shape tiny = {3, 2, 9, 64, 4, 1}, many = {11, 2, 9, 64, 4, 1};
    without = IST_CAP_VEC16;
    for (unsigned i = 0; i < 32; i += optest_small() ? 15 : 4)
        step_case(optest_small() ? &tiny : &steps[i % 5], i + i / 4 % 4);
    if (optest_small()) return;
    step_case(&whole, 8);
    step_case(&many, 16);
}

Test(two_way, matrix) {
    row = "nvidia/two_way_mma";
    if (claim_matrix_warps()) matrix_shapes();
}

Test(two_way, matrix_groups) {
    row = "nvidia/two_way_wgmma";
    static const shape steps[] = {{3, 8, 64, 64, 4, 2},
                                  {2, 7, 70, 128, 16, 1},
                                  {2, 3, 127, 64, 8, 1},
                                  {2, 1, 1, 128, 32, 1},
                                  {8, 5, 65, 64, 20, 4}};
    static const shape whole = {2, 7, 67, 256, 16, 1};
    without = IST_CAP_VEC16;
    if (!claim_matrix_groups()) return;
    for (unsigned i = 0; i < 32; i += 4) step_case(&steps[i % 5], i + i / 4 % 4);
    step_case(&whole, 8);
}

Test(two_way, refuses_what_does_not_fit) {
    without = 0;
    optest t;
    optest_begin(&t, "two-way refusal", 1);
    float zeros[8 * 16 * 36] = {0};
    ist_head_fold fold = {.d = 16, .k = 100, .w = zeros, .b = zeros, .m = zeros, .scale = 1, .columns = true};
    ist_tensor x = optest_in(&t, optest_random(&t, 1, 1, 3, 36), IST_ELEM_T, false);
    cr_assert_not(ist_has(ist_fold_heads(t.plan, absorbed_kernels(t.plan), &(ist_fold_job){x, {0}, fold}, "fold")));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    optest_drop(&t);
}
