/* Prompt tokens and joining of tokens against the scalar reference; the same kernels run everywhere. */
#include "variants/variant.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <math.h>

/* Each prompt's tokens behind `own`. */
static ref_map behind(optest *t, ref_map own, ref_map tokens) {
    ref_map y = optest_zeros(t, tokens.n, 1, own.w + tokens.w, tokens.c);
    for (int n = 0; n < y.n; n++)
        for (int w = 0; w < y.w; w++)
            for (int c = 0; c < y.c; c++)
                ref_at(y, n, 0, w)[c] = w < own.w ? ref_at(own, 0, 0, w)[c] : ref_at(tokens, n, 0, w - own.w)[c];
    return y;
}

/* kind 0: boxes, 1: points, 2: points and a padding token, 3: points and corners of boxes. */
static void point_case(int kind, unsigned salt) {
    optest t;
    optest_begin(&t, "point tokens", 10 * salt + (unsigned)kind);
    int prompts = optest_int(&t, 2, 4), k = kind ? optest_int(&t, 1, 5) : 2, count = salt % 2 ? prompts - 1 : prompts;
    int *labels = optest_alloc(&t, sizeof(int) * (size_t)(prompts * k));
    for (int i = 0; i < prompts * k; i++)
        labels[i] = optest_int(&t, -1, 4); /* 2 and 3 mean nothing for points, 4 nothing at all */
    ref_map points = optest_random(&t, prompts, 1, k, 2),
            want = optest_zeros(&t, prompts, 1, k + (kind == 2), IST_POINT_DIM);
    for (size_t i = 0; i < ref_size(points); i++) points.v[i] = 512 + 700 * points.v[i]; /* some outside the image */
    float *gauss = optest_values(&t, IST_POINT_DIM, -4, 4), *table = optest_values(&t, 5 * IST_POINT_DIM, -1, 1);
    ref_map own = optest_random(&t, 1, 1, salt % 3 + 1, IST_POINT_DIM);
    ist_tensor before = {0};
    if (salt % 3) before = optest_in(&t, own, IST_ELEM_T, false);
    ist_tensor given = {0}, at = optest_in(&t, points, IST_ELEM_F32, salt % 2);
    if (kind) given = ist_view(optest_ints(&t, labels, prompts * k), prompts, 1, k);
    if (count < prompts) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_point_tokens node = {.label = "tokens",
                             .points = at,
                             .labels = given,
                             .own = before,
                             .gauss = {gauss, IST_POINT_DIM, NULL},
                             .first_label = 2,
                             .pad = kind == 2,
                             .corners = kind == 3,
                             .side = 1024};
    for (int i = 0; i < IST_POINT_LABELS; i++)
        node.table[i] = (ist_array){table + i * IST_POINT_DIM, IST_POINT_DIM, NULL};
    ist_emit(t.plan, IST_NODE_POINT_TOKENS, &node);
    ist_tensor y = node.y;
    optest_run(&t);
    ref_point_tokens(points, kind ? labels : NULL, kind == 3 ? 3 : 1, gauss, table, 1024, want);
    if (salt % 3) want = behind(&t, own, want);
    /* phases of up to 2 pi * 11 are rounded to a few units of 4e-6 */
    optest_check(&t, "tokens", y, want, 0, (t.half ? 2e-3 : 0) + 2e-5, count);
    optest_end(&t);
}

static void join_case(unsigned i) {
    optest t;
    optest_begin(&t, "join tokens", i);
    int n = optest_int(&t, 1, 4), c = optest_int(&t, 1, 150), count = i & 1 ? n - 1 : n;
    ref_map a = optest_random(&t, i & 2 ? 1 : n, 1, optest_int(&t, 1, 4), c);
    ref_map b = optest_random(&t, n, 1, optest_int(&t, 1, 6), c), want = optest_zeros(&t, n, 1, a.w + b.w, c);
    ist_tensor at = optest_in(&t, a, IST_ELEM_T, i & 4), bt = optest_in(&t, b, IST_ELEM_T, i & 4);
    if (count < n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_join_tokens node = {.label = "join", .a = at, .b = bt};
    ist_emit(t.plan, IST_NODE_JOIN_TOKENS, &node);
    ist_tensor y = node.y;
    optest_run(&t);
    for (int k = 0; k < n; k++)
        for (int w = 0; w < want.w; w++)
            for (int ch = 0; ch < c; ch++)
                ref_at(want, k, 0, w)[ch] =
                    w < a.w ? ref_at(a, a.n == 1 ? 0 : k, 0, w)[ch] : ref_at(b, k, 0, w - a.w)[ch];
    optest_check(&t, "join", y, want, 0, 0, count);
    optest_end(&t);
}

/* Each prompt has its own map, or the same vector everywhere. */
static void dense_case(unsigned i) {
    optest t;
    optest_begin(&t, "dense prompt", i);
    int n = optest_int(&t, 2, 5), h = optest_int(&t, 1, 6), w = optest_int(&t, 1, 6), c = 4 * optest_int(&t, 1, 40);
    int count = i & 1 ? n - 1 : n, given[5];
    ref_map x = optest_random(&t, n, h, w, c), want = optest_zeros(&t, n, h, w, c);
    float *none = optest_values(&t, c, -1, 1);
    for (int k = 0; k < n; k++) given[k] = k == (int)(i % 2) || optest_int(&t, 0, 1);
    ist_dense_prompt node = {.label = "dense",
                             .x = optest_in(&t, x, IST_ELEM_T, i & 2),
                             .given = optest_ints(&t, given, n),
                             .none = {none, (size_t)c, NULL}};
    if (count < n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_emit(t.plan, IST_NODE_DENSE_PROMPT, &node);
    ist_tensor y = node.y;
    optest_run(&t);
    for (size_t k = 0; k < ref_size(want); k++) {
        size_t item = k / (ref_size(want) / (size_t)n);
        want.v[k] = given[item] ? x.v[k] : none[k % (size_t)c];
    }
    optest_check(&t, "dense", y, want, 0, t.half ? 1e-3 : 0, count);
    optest_end(&t);
}

Test(prompt, against_reference) {
    unsigned cases = optest_small() ? 2 : 8;
    for (unsigned i = 0; i < cases; i++) {
        for (int kind = 0; kind < 4; kind++) point_case(kind, i);
        join_case(i);
        dense_case(i);
    }
}
