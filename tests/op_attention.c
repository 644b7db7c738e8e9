/* Attention between token sequences against the scalar reference, on the device's own row and on the portable ones. */
#include "variants/ops.h"
#include "support/claimed_matrix.h"
#include "support/hidden_caps.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

typedef struct shape {
    int n, nq, nk, heads, d;
    float gain; /* on q, a power of two: how peaked the softmax is */
} shape;

/* Error of an average of values up to 1 with fp32 weights: a score of size s is wrong by a few s 2^-24. */
static double tolerance(const optest *t, const shape *s) {
    double score = (double)s->gain * s->d;
    return (t->half ? 2e-3 : 0) + optest_tolerance(t, s->nk) + 4 * score * 6e-8 * sqrt(s->d);
}

static const char *row;    /* the source that a case without slices must launch, NULL: any */
static const char *kernel; /* the kernel that every case must launch, NULL: any */

/* Each item by itself, of as many keys as it has. */
static void counted_reference(ref_map q, ref_map k, ref_map v, const shape *s, const int *q_map, const int *kv_map,
                              const int *counts, ref_map want) {
    for (int n = 0; n < want.n; n++) {
        int from = kv_map ? kv_map[n] : n;
        ref_map own_k = {1, 1, counts[n], k.c, ref_at(k, from, 0, 0)}, own_v = own_k, own_q = q, own = want;
        own_v.v = ref_at(v, from, 0, 0);
        own_q.v = ref_at(q, q_map ? q_map[n] : n, 0, 0);
        own.v = ref_at(want, n, 0, 0);
        own_q.n = own.n = 1;
        ref_attention(own_q, own_k, own_v, s->heads, 0.75f, NULL, NULL, own);
    }
}

/* bits of i: 1 slices, 2 maps, 4 limit, 8 counts of keys. */
static void attention_case(const shape *s, unsigned i) {
    optest t;
    optest_begin(&t, "attention", i + 10u * (unsigned)(s->nq + s->nk + s->d));
    int c = s->heads * s->d, q_items = i & 2 ? 2 : s->n, k_items = i & 2 ? 3 : s->n, count = i & 4 ? s->n / 2 : s->n;
    int q_map[8], kv_map[8], counts[8];
    for (int k = 0; k < s->n; k++) {
        q_map[k] = k < count ? optest_int(&t, 0, q_items - 1) : 1 << 24; /* not to be followed beyond the count */
        kv_map[k] = k < count ? optest_int(&t, 0, k_items - 1) : -(1 << 24);
        counts[k] = k < count ? optest_int(&t, 1, s->nk) : 1 << 24;
    }
    ref_map q = optest_random(&t, q_items, 1, s->nq, c), k = optest_random(&t, k_items, 1, s->nk, c);
    ref_map v = optest_random(&t, k_items, 1, s->nk, c), want = optest_zeros(&t, s->n, 1, s->nq, c);
    for (size_t e = 0; e < ref_size(q); e++) q.v[e] *= s->gain;
    ist_attention_opts opts = {.heads = s->heads, .scale = 0.75f, .count = s->n};
    ist_tensor qt = optest_in(&t, q, IST_ELEM_T, i & 1), kt = optest_in(&t, k, IST_ELEM_T, i & 1);
    ist_tensor vt = optest_in(&t, v, IST_ELEM_T, i & 1);
    if (i & 2) {
        opts.q_map = optest_ints(&t, q_map, s->n);
        opts.kv_map = optest_ints(&t, kv_map, s->n);
    }
    if (i & 8) opts.k_count = optest_ints(&t, counts, s->n);
    if (count < s->n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_tensor y = ist_op_attention(t.plan, qt, kt, vt, &opts, "attention");
    optest_run(&t);
    optest_takes(&t, i & 1 ? NULL : row);
    if (kernel) cr_expect_str_eq(ist_plan_launch_at(t.plan, 0)->kernel, kernel);
    want.n = count;
    if (i & 8)
        counted_reference(q, k, v, s, i & 2 ? q_map : NULL, i & 2 ? kv_map : NULL, counts, want);
    else if (count)
        ref_attention(q, k, v, s->heads, 0.75f, i & 2 ? q_map : NULL, i & 2 ? kv_map : NULL, want);
    want.n = s->n;
    optest_check(&t, "attention", y, want, 0, tolerance(&t, s), count);
    optest_end(&t);
}

static void shapes(void) {
    static const shape all[] = {
        {1, 5, 9, 2, 8, 1},    {2, 7, 3, 2, 4, 2},      {3, 17, 70, 2, 12, 2}, {1, 40, 33, 1, 64, 1},
        {4, 1, 1, 2, 32, 1},   {2, 33, 65, 3, 20, 2},   {2, 7, 130, 8, 16, 4}, {3, 130, 7, 8, 16, 2},
        {4, 9, 9, 8, 32, 1},   {1, 100, 129, 3, 48, 1}, {1, 65, 64, 2, 36, 1}, {2, 32, 128, 1, 60, 2},
        {5, 16, 64, 2, 28, 1},
    };
    int count = optest_small() ? 3 : (int)(sizeof all / sizeof *all);
    for (int k = 0; k < count; k++)
        for (unsigned i = 0; i < 16; i += optest_small() ? 5 : 1) attention_case(&all[k], i);
}

Test(attention, own_row) {
    without = 0;
    shapes();
}

Test(attention, portable) {
    hide(IST_CAP_VEC16);
    shapes();
}

/* Several work-items per query: shapes of so few groups that a device of one unit takes them so. */
Test(attention, slices_of_the_keys) {
    static const shape all[] = {{1, 17, 70, 1, 12, 2},  {1, 33, 65, 1, 20, 1}, {1, 64, 300, 1, 32, 1},
                                {1, 16, 64, 1, 28, 16}, {1, 50, 129, 1, 8, 1}, {1, 31, 400, 1, 4, 4}};
    hide(IST_CAP_VEC16 | IST_CAP_CPU | IST_CAP_PTX_MMA);
    kernel = "attention_slices";
    for (size_t k = 0; k < (optest_small() ? 2 : sizeof all / sizeof *all); k++)
        for (unsigned i = 0; i < 16; i += optest_small() ? 5 : 1)
            if (!(i & 4)) attention_case(&all[k], i); /* half of one item are none */
}

/* The row on matrix instructions: the capability is claimed, nvidia/ptx then is plain OpenCL. */
Test(attention, matrix_instructions) {
    static const shape all[] = {
        {1, 17, 9, 2, 16, 4}, {2, 33, 70, 1, 48, 1}, {3, 16, 40, 2, 32, 2}, {1, 19, 131, 1, 64, 1}};
    static const shape large[] = {{1, 20, 400, 1, 48, 2}, {1, 16, 889, 1, 32, 1}};
    if (!claim_matrix_instructions()) return;
    without = IST_CAP_CPU;
    row = "nvidia/attention";
    for (int k = 0; k < (optest_small() ? 3 : 4); k++)
        for (unsigned i = 0; i < 8; i += optest_small() ? 5 : 1) attention_case(&all[k], i);
    for (int k = 0; k < 2 && !optest_small(); k++) attention_case(&large[k], 0);
}

Test(attention, model_shapes) {
    static const shape all[] = {
        {1, 400, 400, 8, 32, 1}, {1, 300, 300, 8, 16, 1}, {2, 7, 4096, 8, 16, 2}, {2, 4096, 7, 2, 16, 2}};
    for (int portable = 0; portable < 2 && !optest_small(); portable++) {
        without = portable ? IST_CAP_VEC16 : 0;
        for (int k = 0; k < 4; k++) attention_case(&all[k], 0);
    }
}

/* Logits of several thousand, both signs: one key takes all, nothing overflows, and all logits may be far below zero.
 */
static void large_logits(void) {
    enum { NQ = 20, NK = 150, D = 16 };
    optest t;
    optest_begin(&t, "attention, large logits", 1);
    ref_map q = optest_random(&t, 1, 1, NQ, D), k = optest_random(&t, 1, 1, NK, D), v = optest_random(&t, 1, 1, NK, D);
    ref_map want = optest_zeros(&t, 1, 1, NQ, D);
    for (int c = 0; c < D; c++)
        for (int j = 0; j < NK; j++)
            if (c)
                ref_at(k, 0, 0, j)[c] = 0;
            else
                ref_at(k, 0, 0, j)[0] = 64 + (float)((j * 37) % NK); /* distinct integers */
    for (int i = 0; i < NQ; i++) ref_at(q, 0, 0, i)[0] = i % 2 ? 512 : -512;
    ist_attention_opts opts = {.heads = 1, .scale = 1};
    ist_tensor y = ist_op_attention(t.plan, optest_in(&t, q, IST_ELEM_T, false), optest_in(&t, k, IST_ELEM_T, false),
                                    optest_in(&t, v, IST_ELEM_T, false), &opts, "attention");
    optest_run(&t);
    ref_attention(q, k, v, 1, 1, NULL, NULL, want);
    optest_check(&t, "attention", y, want, 0, 1e-6, -1);
    optest_end(&t);
}

Test(attention, large_logits) {
    without = 0;
    large_logits();
    without = IST_CAP_VEC16;
    large_logits();
}

Test(attention, refuses_odd_head_dimension) {
    without = 0;
    optest t;
    optest_begin(&t, "attention refusal", 1);
    ist_tensor x = optest_in(&t, optest_random(&t, 1, 1, 4, 12), IST_ELEM_T, false);
    ist_attention_opts opts = {.heads = 2, .scale = 1};
    cr_assert_not(ist_has(ist_op_attention(t.plan, x, x, x, &opts, "layers.9.self_attn")));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    cr_assert_not_null(strstr(ist_plan_error(t.plan)->text, "layers.9.self_attn"));
    optest_drop(&t);
    ist_device_close(&t.device);
}
