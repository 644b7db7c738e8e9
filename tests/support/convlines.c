/* See convlines.h. */
#include "support/convlines.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void convlines_claim(const char *caps, bool rounds) {
    const char *before = getenv("ISTHMUS_CAPS");
    char all[200];
    snprintf(all, sizeof all, "%s%s%s", before ? before : "", before && *before ? "," : "", caps);
    setenv("ISTHMUS_CAPS", all, 1);
    setenv("ISTHMUS_BF16", rounds ? "1" : "0", 1);
    unsetenv("ISTHMUS_HALF");
}

const ist_variant *convlines_next(unsigned needs, bool rounds, int *index) {
    const ist_variant *v;
    ist_storage storage = rounds ? IST_STORAGE_BF16 : IST_STORAGE_EXACT;
    while ((v = convtest_next(IST_NODE_CONV, rounds, index)) && ((v->needs & needs) != needs || v->storage != storage))
        ;
    return v;
}

typedef struct shape {
    int n, h, w, cin, cout, kh, kw, stride, top, left, bottom, right;
    convtest_extras x;
} shape;

/* One case; items >= 0 is a limit. */
static void check_case(const ist_variant *v, bool rounds, shape s, int items, unsigned salt) {
    optest t;
    char name[160];
    snprintf(name, sizeof name, "%s %dx%dx%dx%d -> %d, %dx%d stride %d, act %d, case %u", v->name, s.n, s.h, s.w, s.cin,
             s.cout, s.kh, s.kw, s.stride, (int)s.x.act, salt);
    optest_begin(&t, name, salt);
    ist_plan_reduced(t.plan, rounds);
    int oh = (s.h + s.top + s.bottom - s.kh) / s.stride + 1, ow = (s.w + s.left + s.right - s.kw) / s.stride + 1;
    ref_map in = optest_random(&t, s.n, s.h, s.w, s.cin), rounded = optest_zeros(&t, s.n, s.h, s.w, s.cin);
    ref_map want = optest_zeros(&t, s.n, oh, ow, s.cout);
    size_t count = (size_t)s.cout * (size_t)s.cin * (size_t)s.kh * (size_t)s.kw;
    float *w = optest_values(&t, count, -1, 1), *near = optest_values(&t, count, 0, 0);
    float *b = s.x.no_bias ? NULL : optest_values(&t, (size_t)s.cout, -1, 1);
    for (size_t i = 0; i < count; i++) near[i] = rounds ? ref_bf16(w[i]) : w[i];
    for (size_t i = 0; i < ref_size(in); i++) rounded.v[i] = rounds ? ref_bf16(in.v[i]) : in.v[i];
    ist_conv_opts o = {.stride = s.stride, .top = s.top, .left = s.left, .bottom = s.bottom, .right = s.right};
    ref_epilogue r;
    convtest_epilogue(&t, &s.x, want, &o.epi, &r);
    o.into = optest_out(&t, s.n, oh, ow, s.cout, IST_ELEM_T, s.x.slices);
    ist_tensor xin = optest_in(&t, in, IST_ELEM_T, s.x.slices);
    if (items >= 0) ist_plan_limit(t.plan, optest_ints(&t, &items, 1));
    ist_conv q = {.label = "test",
                  .x = xin,
                  .y = o.into,
                  .filter = {.out = s.cout, .in = s.cin, .kh = s.kh, .kw = s.kw, .w = w, .b = b},
                  .o = o};
    convtest_emit(&t, v, 1, &q);
    optest_run(&t);
    ref_conv(rounded, near, b, (ref_window){s.kh, s.kw, s.stride, s.top, s.left}, &r, want);
    double tol = optest_tolerance(&t, s.cin * s.kh * s.kw);
    optest_check(&t, "result", q.y, want, tol, tol * 2, items);
    optest_end(&t);
}

/* Inputs of odd numbers, whole and part vectors and tiles, planes of strides 2 and 3, lines that share their padding
 * and lines that do not, several parts of a map, more inputs than scratch has room for. */
void convlines_shapes(const ist_variant *v, bool rounds) {
    const shape shapes[] = {
        {2, 9, 13, 5, 21, 3, 3, 1, 1, 1, 1, 1, {.act = IST_ACT_NONE}},
        {1, 11, 8, 33, 64, 3, 3, 2, 1, 1, 1, 1, {.act = IST_ACT_RELU, .lab = true}},
        {1, 6, 7, 16, 8, 2, 2, 1, 0, 0, 1, 1, {.act = IST_ACT_SILU, .slices = true}},
        {1, 5, 19, 20, 33, 1, 1, 1, 0, 0, 0, 0, {.act = IST_ACT_GELU, .after = true}},
        {3, 4, 4, 7, 4, 5, 5, 1, 2, 2, 2, 2, {.act = IST_ACT_NONE, .no_bias = true}},
        {1, 7, 5, 6, 17, 1, 3, 1, 0, 1, 0, 1, {.act = IST_ACT_SIGMOID}},
        {2, 1, 1, 9, 66, 1, 1, 1, 0, 0, 0, 0, {.act = IST_ACT_RELU}},
        {1, 10, 3, 4, 132, 2, 2, 2, 0, 0, 0, 0, {.act = IST_ACT_NONE}},
        {1, 40, 1, 8, 5, 3, 1, 1, 1, 0, 1, 0, {.act = IST_ACT_NONE}},
        {1, 3, 3, 2, 1, 3, 3, 3, 0, 0, 0, 0, {.act = IST_ACT_NONE}},
        {1, 9, 8, 18, 5, 1, 1, 2, 0, 0, 0, 0, {.act = IST_ACT_NONE}},
        {1, 8, 10, 32, 48, 3, 3, 1, 2, 1, 0, 2, {.act = IST_ACT_RELU}},
        {2, 8, 6, 32, 96, 3, 3, 1, 1, 1, 1, 1, {.act = IST_ACT_SILU, .before = true, .up2 = true}},
        {2, 6, 70, 48, 40, 1, 1, 1, 0, 0, 0, 0, {.act = IST_ACT_NONE, .before = true, .before_one = true}},
        {1, 20, 20, 64, 80, 3, 3, 1, 1, 1, 1, 1, {.act = IST_ACT_RELU, .after = true, .after_one = true}},
        {1, 10, 12, 3001, 70, 1, 1, 1, 0, 0, 0, 0, {.act = IST_ACT_SILU, .before = true, .up2 = true}},
    };
    for (unsigned i = 0; i < (optest_small() ? 1 : sizeof shapes / sizeof shapes[0]); i++)
        check_case(v, rounds, shapes[i], -1, i);
}

void convlines_random(const ist_variant *v, bool rounds) {
    int count = optest_small() ? 1 : 25;
    optest seed;
    optest_begin(&seed, "shapes", 7);
    for (int i = 0; i < count; i++) {
        int k = optest_int(&seed, 1, 4), most = optest_small() ? 6 : 24;
        shape s = {optest_int(&seed, 1, 3),
                   optest_int(&seed, k, most),
                   optest_int(&seed, k, most),
                   optest_int(&seed, 1, 70),
                   optest_int(&seed, 1, 140),
                   k,
                   k,
                   optest_int(&seed, 1, 3),
                   optest_int(&seed, 0, 2),
                   optest_int(&seed, 0, 2),
                   optest_int(&seed, 0, 2),
                   optest_int(&seed, 0, 2),
                   {.act = (ist_act)optest_int(&seed, 0, 4),
                    .lab = optest_int(&seed, 0, 1),
                    .after = optest_int(&seed, 0, 1),
                    .slices = optest_int(&seed, 0, 1)}};
        check_case(v, rounds, s, -1, 1000 + (unsigned)i);
    }
    optest_run(&seed);
    optest_end(&seed);
}

void convlines_limits(const ist_variant *v, bool rounds) {
    const shape s = {4, 5, 7, 6, 21, 3, 3, 1, 1, 1, 1, 1, {.act = IST_ACT_RELU}};
    const shape linear = {4, 5, 7, 6, 21, 1, 1, 1, 0, 0, 0, 0, {.act = IST_ACT_RELU, .slices = true}};
    for (int items = 0; items <= 4; items += 2) {
        check_case(v, rounds, s, items, 300);
        check_case(v, rounds, linear, items, 301);
    }
}

const ist_variant *convlines_chosen(bool narrow, int in, int size) {
    optest t;
    optest_begin(&t, "choice", 0);
    ist_plan_reduced(t.plan, narrow);
    ist_conv q = {.label = "choice",
                  .x = {.buffer = 1, .n = 1, .h = size, .w = size, .c = in, .ld = in},
                  .y = {.buffer = 2, .n = 1, .h = size - 2, .w = size - 2, .c = 32, .ld = 32},
                  .filter = {.out = 32, .in = in, .kh = 3, .kw = 3},
                  .o = {.stride = 1}};
    const ist_variant *v = ist_variant_choose(t.plan, IST_NODE_CONV, &q).variant;
    optest_drop(&t);
    cr_assert_not_null(v);
    return v;
}

bool convlines_is(const ist_variant *v, const char *prefix) {
    return !strncmp(v->name, prefix, strlen(prefix));
}
