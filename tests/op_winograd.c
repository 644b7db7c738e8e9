/* Winograd convolutions, of CPUs and of GPUs, against the scalar definition of a convolution, also of maps so small
 * that others are meant to do them. */
#include "support/convtest.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    int n, h, w, cin, cout, top, left, bottom, right;
} shape;

/* The next one from *index on that the device runs, on tiles of 2x2 results for CPUs, of 4x4 for GPUs. */
static const ist_variant *next(int *index) {
    for (const ist_variant *v; (v = convtest_next(IST_NODE_CONV, false, index));)
        if (!strncmp(v->name, "winograd", strlen("winograd"))) return v;
    return NULL;
}
#define EACH(v)                                                                                                        \
    for (int next_index = 0, once = 1; once; once = 0)                                                                 \
        for (const ist_variant *v; (v = next(&next_index));)

static bool of_cpus(const ist_variant *v) {
    return v->machine == IST_MACHINE_CPU;
}
/* The device's on tiles of 2x2 results, NULL: it has none. */
static const ist_variant *own(void) {
    EACH(v)
    if (of_cpus(v)) return v;
    return NULL;
}

static void check_case(const ist_variant *v, shape s, convtest_extras x, ist_elem out, int items, unsigned salt) {
    optest t;
    char name[160];
    snprintf(name, sizeof name, "%s %dx%dx%dx%d -> %d, act %d, case %u", v->name, s.n, s.h, s.w, s.cin, s.cout,
             (int)x.act, salt);
    optest_begin(&t, name, salt);
    int oh = s.h + s.top + s.bottom - 2, ow = s.w + s.left + s.right - 2;
    ref_map in = optest_random(&t, s.n, s.h, s.w, s.cin), want = optest_zeros(&t, s.n, oh, ow, s.cout);
    float *w = optest_values(&t, (size_t)s.cout * s.cin * 9, -1, 1);
    float *b = x.no_bias ? NULL : optest_values(&t, (size_t)s.cout, -1, 1);
    ist_conv_opts o = {.top = s.top, .left = s.left, .bottom = s.bottom, .right = s.right};
    ref_epilogue r;
    convtest_epilogue(&t, &x, want, &o.epi, &r);
    o.into = optest_out(&t, s.n, oh, ow, s.cout, out, x.slices);
    ist_tensor xin = optest_in(&t, in, IST_ELEM_T, x.slices);
    if (items >= 0) ist_plan_limit(t.plan, optest_ints(&t, &items, 1));
    ist_conv q = {.label = "test",
                  .x = xin,
                  .y = o.into,
                  .filter = {.out = s.cout, .in = s.cin, .kh = 3, .kw = 3, .w = w, .b = b},
                  .o = o};
    convtest_emit(&t, v, 1, &q);
    optest_run(&t);
    ref_conv(in, w, b, (ref_window){3, 3, 1, s.top, s.left}, &r, want);
    double tol = 2 * optest_tolerance(&t, 9 * s.cin);
    optest_check(&t, "result", q.y, want, tol, tol * 2, items);
    optest_end(&t);
}

Test(winograd, shapes_and_padding) {
    const shape shapes[] = {
        {1, 8, 8, 16, 32, 1, 1, 1, 1},  {2, 9, 13, 32, 64, 1, 1, 1, 1},  {1, 5, 7, 48, 32, 0, 0, 0, 0},
        {1, 3, 3, 16, 16, 0, 0, 0, 0},  {1, 1, 1, 16, 32, 1, 1, 1, 1},   {1, 40, 23, 64, 96, 1, 1, 1, 1},
        {3, 6, 31, 16, 48, 2, 1, 0, 2}, {1, 2, 50, 128, 32, 1, 0, 1, 2}, {1, 12, 12, 384, 64, 1, 1, 1, 1},
    };
    EACH(v)
    for (unsigned i = 0; i < (optest_small() ? 2 : sizeof shapes / sizeof shapes[0]); i++)
        check_case(v, shapes[i], (convtest_extras){.slices = i % 2}, IST_ELEM_T, -1, i);
}

Test(winograd, epilogues) {
    EACH(v)
    for (int bits = 0; bits < 128; bits++)
        if (bits % 29 == 0 || !(optest_small() || strstr(v->name, "64x64") || strstr(v->name, "32x64")))
            check_case(v, (shape){2, 6, 8, 16, 32, 1, 1, 1, 1}, convtest_combination(bits),
                       bits % 3 ? IST_ELEM_T : IST_ELEM_F32, -1, 100 + (unsigned)bits);
}

Test(winograd, items_beyond_the_count_are_untouched) {
    EACH(v)
    for (int items = 0; items <= (optest_small() ? 1 : 4); items++)
        check_case(v, (shape){3, 5, 9, 16, 32, 1, 1, 1, 1}, (convtest_extras){.act = IST_ACT_RELU}, IST_ELEM_T, items,
                   300);
}

/* Channels in fours, results in any number; maps smaller than a tile, and tiles that hang over. */
Test(winograd, channels_of_tiles_of_four) {
    const shape shapes[] = {
        {2, 9, 13, 20, 37, 1, 1, 1, 1}, {1, 3, 2, 36, 16, 1, 1, 1, 1},    {1, 16, 16, 64, 130, 1, 1, 1, 1},
        {3, 5, 33, 44, 67, 0, 2, 2, 0}, {1, 37, 29, 132, 65, 1, 1, 1, 1}, {1, 4, 4, 300, 64, 1, 1, 1, 1},
    };
    EACH(v)
    for (unsigned i = 0; i < (optest_small() ? 2 : sizeof shapes / sizeof shapes[0]) && !of_cpus(v); i++)
        check_case(v, shapes[i], (convtest_extras){.act = IST_ACT_SILU, .slices = i % 2, .after = i == 3},
                   i % 3 ? IST_ELEM_T : IST_ELEM_F32, i == 3 ? 2 : -1, 400 + i);
}

/* Whether the variant takes a filter [out,in,k,k] with `stride` on a size x size map. */
static bool takes(const ist_variant *v, int out, int in, int k, int stride, int size) {
    optest t;
    optest_begin(&t, "taken", 0);
    ist_conv q = {.label = "taken",
                  .x = {.buffer = 1, .n = 1, .h = size, .w = size, .c = in, .ld = in},
                  .filter = {.out = out, .in = in, .kh = k, .kw = k},
                  .o = {.stride = stride, .top = 1, .left = 1, .bottom = 1, .right = 1}};
    cr_assert_eq(ist_kind_of(IST_NODE_CONV)->infer(&q, &t.err), IST_OK, "%s", t.err.text);
    bool yes = ist_variant_takes(t.plan, v, &q);
    optest_drop(&t);
    return yes;
}

/* Channels in sixteens, the filters that the algorithm is for, enough tiles of 2x2 results. */
Test(winograd, taken_where_it_wins) {
    const ist_variant *v = own();
    if (!v) cr_skip_test("no such variant runs here");
    setenv("ISTHMUS_CAPS", "-X86_AMX", 1);
    cr_expect(takes(v, 32, 16, 3, 1, 28));
    cr_expect_not(takes(v, 32, 16, 3, 1, 26), "169 tiles");
    cr_expect_not(takes(v, 33, 16, 3, 1, 28));
    cr_expect_not(takes(v, 32, 17, 3, 1, 28));
    cr_expect_not(takes(v, 32, 16, 3, 2, 56));
    cr_expect_not(takes(v, 32, 16, 2, 1, 28));
}

/* Matrices that fit, channels in fours, no striding. */
Test(winograd, tiles_of_four_are_taken_where_they_can) {
    EACH(v) {
        if (of_cpus(v)) continue;
        cr_expect(takes(v, 33, 20, 3, 1, 8));
        cr_expect_not(takes(v, 33, 21, 3, 1, 8));
        cr_expect_not(takes(v, 32, 16, 3, 2, 56));
        cr_expect_not(takes(v, 32, 16, 2, 1, 28));
        cr_expect_not(takes(v, 32, 12, 3, 1, 28));
        cr_expect_not(takes(v, 512, 512, 3, 1, 16384), "matrices of 1.2 TB");
    }
}

Test(winograd, refuses_what_does_not_fit) {
    const ist_variant *v = own();
    if (!v) cr_skip_test("no such variant runs here");
    optest t;
    float w[15 * 16 * 9] = {0};
    optest_begin(&t, "refusal", 0);
    ist_conv q = {.label = "layer.a",
                  .x = ist_plan_input(t.plan, 1, 8, 8, 16, IST_ELEM_T),
                  .filter = {.out = 15, .in = 16, .kh = 3, .kw = 3, .w = w}};
    ist_emit_by(t.plan, v, 1, &q);
    cr_assert_not(ist_has(q.y));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    cr_assert(strstr(ist_plan_error(t.plan)->text, "layer.a: variant winograd_"), "%s", ist_plan_error(t.plan)->text);
    cr_assert(strstr(ist_plan_error(t.plan)->text, "cannot do this conv"), "%s", ist_plan_error(t.plan)->text);
    optest_drop(&t);
}
