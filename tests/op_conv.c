/* Dense convolutions and linear layers: every variant of the table that the device can run, against the scalar
 * definition. */
#include "support/convtest.h"
#include "support/tiles.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct shape {
    int n, h, w, cin, cout, kh, kw, stride, top, left, bottom, right;
} shape;

typedef convtest_extras extras;

/* The node of a shape, with places for what it reads and writes. */
static ist_conv node_of(optest *t, shape s, const extras *x, ist_elem out, ref_map in, ref_map want, ref_epilogue *r) {
    ist_conv q = {.label = "test",
                  .filter = {.out = s.cout, .in = s.cin, .kh = s.kh, .kw = s.kw},
                  .o = {.stride = s.stride, .top = s.top, .left = s.left, .bottom = s.bottom, .right = s.right}};
    convtest_epilogue(t, x, want, &q.o.epi, r);
    q.y = q.o.into = optest_out(t, want.n, want.h, want.w, want.c, out, x->slices);
    q.x = optest_in(t, in, IST_ELEM_T, x->slices);
    return q;
}

static ref_map result_of(optest *t, shape s) {
    return optest_zeros(t, s.n, (s.h + s.top + s.bottom - s.kh) / s.stride + 1,
                        (s.w + s.left + s.right - s.kw) / s.stride + 1, s.cout);
}

/* Whether the variant is for the shape, with a dense result of the storage type and without addends. */
static bool takes(const ist_variant *v, shape s) {
    const extras none = {0};
    optest t;
    ref_epilogue r;
    optest_begin(&t, v->name, 0);
    ref_map want = result_of(&t, s);
    ist_conv q = node_of(&t, s, &none, IST_ELEM_T, optest_zeros(&t, s.n, s.h, s.w, s.cin), want, &r);
    bool yes = ist_variant_takes(t.plan, v, &q);
    optest_drop(&t);
    return yes;
}

/* A quick run's activation: each is a program of its own, so that one tile has all of them. */
static ist_act act_of(const ist_variant *v, ist_act act) {
    return optest_quick() && is_another_tile(v, "tile_32x32") ? IST_ACT_GELU : act;
}

/* One case, where the variant takes it; items >= 0 is a limit. Returns how many ways the variant has, 0: it does not
 * take it. */
static int check_case(const ist_variant *v, int way, shape s, extras x, ist_elem out, int items, unsigned salt) {
    optest t;
    char name[160];
    x.act = act_of(v, x.act);
    snprintf(name, sizeof name, "%s %dx%dx%dx%d -> %d, %dx%d stride %d, act %d, way %d, case %u", v->name, s.n, s.h,
             s.w, s.cin, s.cout, s.kh, s.kw, s.stride, (int)x.act, way, salt);
    optest_begin(&t, name, salt);
    ref_map in = optest_random(&t, s.n, s.h, s.w, s.cin), want = result_of(&t, s);
    int terms = s.cin * s.kh * s.kw;
    float *w = optest_values(&t, (size_t)s.cout * s.cin * s.kh * s.kw, -1, 1);
    for (int i = 0; i < s.cout * s.cin * s.kh * s.kw; i++) w[i] = rintf(w[i] * 1024) / 1024; /* exact in half */
    float *b = x.no_bias ? NULL : optest_values(&t, (size_t)s.cout, -1, 1);
    ref_epilogue r;
    ist_conv q = node_of(&t, s, &x, out, in, want, &r);
    q.filter.w = w, q.filter.b = b;
    if (!ist_variant_takes(t.plan, v, &q)) {
        optest_drop(&t);
        return 0;
    }
    int ways = ist_variant_ways(t.plan, v, &q);
    if (items >= 0) ist_plan_limit(t.plan, optest_ints(&t, &items, 1));
    ist_emit_by(t.plan, v, way, &q);
    optest_run(&t);
    if (way > 1) cr_assert_eq(ist_plan_replay(t.plan, &t.err), IST_OK, "%s", t.err.text); /* counters are back */
    ref_conv(in, w, b, (ref_window){s.kh, s.kw, s.stride, s.top, s.left}, &r, want);
    double tol = optest_tolerance(&t, terms);
    optest_check(&t, "result", q.y, want, tol, tol * 2, items);
    optest_end(&t);
    return ways;
}

/* What a variant that does not take every shape may take. */
static const shape odd = {2, 4, 6, 5, 19, 3, 3, 1, 1, 1, 1, 1}, whole = {2, 4, 6, 64, 24, 3, 3, 1, 1, 1, 1, 1};
static const shape points = {2, 4, 6, 136, 24, 1, 1, 1, 0, 0, 0, 0}, few = {2, 9, 8, 16, 16, 3, 3, 1, 1, 1, 1, 1};
static const shape tokens = {2, 4, 6, 3, 24, 1, 1, 1, 0, 0, 0, 0}, tiles = {1, 28, 30, 16, 32, 3, 3, 1, 1, 1, 1, 1};
static const shape deep = {1, 24, 24, 64, 64, 3, 3, 1, 1, 1, 1, 1}, thin = {2, 4, 6, 40, 24, 1, 1, 1, 0, 0, 0, 0};
static const shape image = {2, 11, 15, 3, 20, 3, 3, 2, 1, 1, 1, 1};

/* The first of those, with n 0 where the device has no room for the variant; fails when there is none: a new variant
 * needs a shape of its own here. */
static shape shape_for(const ist_variant *v) {
    const shape all[] = {odd, whole, points, thin, few, tokens, tiles, deep, image};
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++)
        if (takes(v, all[i])) return all[i];
    cr_assert(optest_little_local(), "%s takes none of the shapes", v->name);
    return (shape){0};
}
/* Tiles that a quick run in half leaves out: their kernels are those of the four that stay, at other sizes, and all of
 * them run in float. */
static bool waits_for_full(const ist_variant *v) {
    return optest_quick() && optest_half() && is_another_tile(v, "tile_32x32") && is_another_tile(v, "tile_128x128") &&
           is_another_tile(v, "slices_32x32") && is_another_tile(v, "winograd4_32x64");
}
#define EACH(v)                                                                                                        \
    CONVTEST_EACH(v, IST_NODE_CONV)                                                                                    \
    if (!waits_for_full(v))
/* Whether a quick run gives it few cases: its kernel is that of slices_32x32 at another size. */
static bool has_few_cases(const ist_variant *v) {
    return optest_quick() && !strcmp(v->name, "slices_16x32");
}
/* Steps from case to case. */
static int step_of(const ist_variant *v) {
    return has_few_cases(v) ? 4 : optest_quick() && is_another_tile(v, "tile_32x32") ? 2 : 1;
}
/* Whether it leaves some shapes to others. */
static bool is_special(const ist_variant *v) {
    return !takes(v, odd);
}

Test(conv, kernel_sizes_strides_and_padding) {
    const shape shapes[] = {
        {2, 9, 13, 5, 21, 3, 3, 1, 1, 1, 1, 1}, {1, 11, 8, 3, 16, 3, 3, 2, 1, 1, 1, 1},
        {1, 6, 7, 16, 8, 2, 2, 1, 0, 0, 1, 1},  {1, 5, 19, 20, 33, 1, 1, 1, 0, 0, 0, 0},
        {3, 4, 4, 7, 4, 5, 5, 1, 2, 2, 2, 2},   {1, 7, 5, 6, 17, 1, 3, 1, 0, 1, 0, 1},
        {2, 1, 1, 9, 66, 1, 1, 1, 0, 0, 0, 0},  {1, 10, 3, 4, 132, 2, 2, 2, 0, 0, 0, 0},
        {2, 5, 7, 4, 270, 1, 1, 1, 0, 0, 0, 0}, {1, 3, 5, 3, 34, 1, 1, 1, 0, 0, 0, 0},
        {1, 40, 1, 8, 5, 3, 1, 1, 1, 0, 1, 0},  {1, 3, 3, 2, 1, 3, 3, 3, 0, 0, 0, 0},
    };
    EACH(v)
    for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0]; i += has_few_cases(v) ? 3 : 1)
        check_case(v, 1, shapes[i], (extras){.act = IST_ACT_NONE, .slices = i % 2}, IST_ELEM_T, -1, i);
}

/* A new line of the table is tested, not skipped. */
Test(conv, every_variant_takes_a_shape) {
    int count = 0;
    CONVTEST_EACH(v, IST_NODE_CONV) count += shape_for(v).n > 0;
    cr_expect_gt(count, 0);
}

/* Every combination of bias, activation, LAB and addends; of most tiles every eleventh, which have all of any two. */
Test(conv, epilogues) {
    unsigned salt = 100;
    EACH(v) {
        shape s = shape_for(v);
        for (int bits = s.n ? 0 : 128; bits < 128;
             bits += (optest_small() || is_another_tile(v, "tile_32x32") ? 11 : 1) * step_of(v))
            check_case(v, 1, s, convtest_combination(bits), IST_ELEM_T, -1, salt++);
    }
}

/* Register tiles read the addends of whole vectors of channels together, also beyond the last pixel and channel. */
Test(conv, addends_of_whole_vectors) {
    enum { LAB = 1, BEFORE = 2, UP2 = 4, BEFORE_ONE = 8, AFTER = 16, AFTER_ONE = 32, SLICES = 64 };
    const int cases[] = {BEFORE | AFTER, LAB | BEFORE | UP2, BEFORE | BEFORE_ONE | AFTER | AFTER_ONE, AFTER | SLICES};
    const shape shapes[] = {whole, {1, 18, 10, 48, 200, 1, 1, 1, 0, 0, 0, 0}};
    unsigned salt = 300;
    EACH(v) {
        if (!is_another_tile(v, "") || (optest_quick() && is_another_tile(v, "tile_32x32"))) continue;
        for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            for (unsigned k = 0; k < sizeof cases / sizeof cases[0]; k++)
                check_case(v, 1, shapes[i], convtest_combination(cases[k]), IST_ELEM_T, -1, salt++);
    }
}

Test(conv, random_shapes) {
    int rounds = optest_small() ? 3 : 40;
    optest seed;
    optest_begin(&seed, "shapes", 7);
    EACH(v)
    for (int i = 0; i < (has_few_cases(v) ? 1 : is_another_tile(v, "tile_128x64") ? (rounds + 3) / 4 : rounds); i++) {
        int k = optest_int(&seed, 1, 4), big = optest_small() ? 6 : 24;
        shape s = {optest_int(&seed, 1, 3),
                   optest_int(&seed, k, big),
                   optest_int(&seed, k, big),
                   optest_int(&seed, 1, optest_small() ? 9 : 70),
                   optest_int(&seed, 1, optest_small() ? 20 : 140),
                   k,
                   k,
                   optest_int(&seed, 1, 2),
                   optest_int(&seed, 0, 2),
                   optest_int(&seed, 0, 2),
                   optest_int(&seed, 0, 2),
                   optest_int(&seed, 0, 2)};
        extras x = {.act = (ist_act)optest_int(&seed, 0, 4),
                    .lab = optest_int(&seed, 0, 1),
                    .after = optest_int(&seed, 0, 1),
                    .slices = optest_int(&seed, 0, 1)};
        check_case(v, 1, s, x, optest_int(&seed, 0, 1) ? IST_ELEM_F32 : IST_ELEM_T, -1, 1000 + (unsigned)i);
    }
    optest_run(&seed);
    optest_end(&seed);
}

/* Sums of more steps than a variant keeps in local memory, whole and shared among groups; channels in whole vectors and
 * not. */
Test(conv, long_sums) {
    const shape shapes[] = {
        {1, 5, 7, 320, 40, 1, 1, 1, 0, 0, 0, 0},   {2, 9, 11, 64, 72, 3, 3, 1, 1, 1, 1, 1},
        {1, 13, 10, 24, 136, 3, 3, 2, 1, 1, 1, 1}, {1, 6, 5, 200, 130, 1, 1, 1, 0, 0, 0, 0},
        {1, 12, 12, 36, 16, 3, 3, 1, 1, 1, 1, 1},  {1, 3, 100, 8, 260, 3, 3, 1, 1, 1, 1, 1},
        {1, 8, 9, 43, 21, 3, 3, 1, 1, 1, 1, 1},    {3, 7, 6, 40, 24, 2, 2, 1, 0, 0, 1, 1},
        {2, 17, 9, 128, 72, 3, 3, 2, 1, 1, 1, 1},  {1, 33, 21, 200, 264, 1, 1, 1, 0, 0, 0, 0},
    };
    EACH(v)
    for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0]; i += (unsigned)step_of(v))
        for (int way = 1, ways = 1; way <= (ways < 5 ? ways : 5); way += 1 + (way > 1)) {
            extras x = {.act = (ist_act)(i % 5), .lab = i == 1, .after = i == 2, .before = i == 3, .slices = i == 4};
            if (optest_small() && i > 1) break;
            ways = check_case(v, way, shapes[i], x, i == 5 ? IST_ELEM_F32 : IST_ELEM_T, -1, 400 + i);
        }
}

/* For variants that leave some shapes to others. 3x3 filters on maps that squares of eight pixels cover, which are
 * copied with their borders once for all taps: several blocks of channels and one, squares beyond the last and pixels
 * beyond the map, addends. 1x1 filters that may stay in local memory, of more tiles than there are warpgroups. */
Test(conv, squares_of_pixels) {
    const shape shapes[] = {
        {3, 16, 8, 192, 200, 3, 3, 1, 1, 1, 1, 1}, {1, 24, 31, 64, 264, 3, 3, 1, 1, 1, 1, 1},
        {2, 40, 40, 128, 64, 3, 3, 1, 1, 1, 1, 1}, {2, 33, 21, 200, 264, 1, 1, 1, 0, 0, 0, 0},
        {9, 17, 31, 40, 72, 1, 1, 1, 0, 0, 0, 0},
    };
    EACH(v)
    for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (!is_special(v)) break;
        extras x = {.act = IST_ACT_RELU, .before = i == 1, .after = i == 1};
        check_case(v, 1, shapes[i], x, IST_ELEM_T, i % 2 ? -1 : 1, 500 + i);
    }
}

/* More tiles than find room beside each other, which may be of another form then: one step and several, rests of rows
 * and columns, addends. */
Test(conv, more_tiles_than_room) {
    const shape shapes[] = {{1, 230, 231, 16, 40, 1, 1, 1, 0, 0, 0, 0}, {3, 131, 137, 48, 72, 1, 1, 1, 0, 0, 0, 0}};
    EACH(v)
    for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0] && !optest_small(); i++) {
        if (strcmp(v->name, "tile_128x64") != 0) break;
        extras x = {.act = i ? IST_ACT_GELU : IST_ACT_NONE, .before = i == 1, .after = i == 0, .slices = i == 1};
        check_case(v, 1, shapes[i], x, IST_ELEM_T, i ? 2 : -1, 700 + i);
    }
}

/* Few channels, with more pixels than the warps of a large device take at once. */
Test(conv, few_channels) {
    const shape shapes[] = {
        {2, 63, 90, 3, 32, 3, 3, 2, 1, 1, 1, 1},    {2, 200, 202, 16, 16, 3, 3, 1, 1, 1, 1, 1},
        {1, 80, 61, 32, 16, 2, 2, 1, 0, 0, 1, 1},   {1, 60, 61, 16, 32, 2, 2, 1, 0, 0, 1, 1},
        {1, 60, 61, 8, 16, 2, 2, 1, 0, 0, 1, 1},    {1, 64, 70, 32, 16, 3, 3, 2, 1, 1, 1, 1},
        {1, 300, 300, 32, 24, 1, 1, 1, 0, 0, 0, 0}, {1, 33, 140, 4, 64, 3, 2, 1, 1, 1, 1, 0},
        {2, 20, 150, 1, 7, 2, 3, 2, 0, 1, 1, 1},    {1, 9, 300, 2, 17, 3, 3, 1, 2, 0, 0, 2},
    };
    EACH(v)
    for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0] && is_special(v); i++)
        check_case(v, 1, shapes[i], (extras){.act = IST_ACT_RELU, .lab = i % 2}, IST_ELEM_T, -1, 500 + i);
}

/* Linear layers on few pixels: whole tiles and rests of rows, columns and steps, one pixel, as many as a variant takes.
 */
Test(conv, few_pixels) {
    const shape shapes[] = {
        {1, 1, 7, 256, 512, 1, 1, 1, 0, 0, 0, 0}, {1, 1, 8, 300, 96, 1, 1, 1, 0, 0, 0, 0},
        {8, 1, 7, 128, 33, 1, 1, 1, 0, 0, 0, 0},  {1, 1, 1, 255, 4, 1, 1, 1, 0, 0, 0, 0},
        {64, 1, 1, 129, 64, 1, 1, 1, 0, 0, 0, 0}, {2, 1, 9, 1, 31, 1, 1, 1, 0, 0, 0, 0},
        {4, 2, 3, 385, 47, 1, 1, 1, 0, 0, 0, 0},  {1, 1, 65, 130, 40, 1, 1, 1, 0, 0, 0, 0},
    };
    EACH(v)
    for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0]; i += (unsigned)step_of(v))
        check_case(v, 1, shapes[i],
                   (extras){.act = i % 2 ? IST_ACT_RELU : IST_ACT_NONE, .no_bias = i == 2, .slices = i % 3 == 1},
                   i % 2 ? IST_ELEM_F32 : IST_ELEM_T, i == 4 ? 37 : -1, 600 + i);
}

Test(conv, items_beyond_the_count_are_untouched) {
    shape s = {4, 5, 7, 6, 21, 3, 3, 1, 1, 1, 1, 1};
    EACH(v)
    for (int items = 0; items <= 5; items++) {
        check_case(v, 1, s, (extras){.act = IST_ACT_RELU, .slices = items % 2}, IST_ELEM_T, items, 300);
    }
}

static ist_status refused(void (*record)(ist_plan *p, ist_tensor x, ist_filter f), const char *part) {
    optest t;
    optest_begin(&t, "refusals", 0);
    float w[64] = {0};
    ist_tensor x = optest_in(&t, optest_random(&t, 1, 4, 4, 3), IST_ELEM_T, false);
    record(t.plan, x, (ist_filter){.out = 2, .in = 3, .kh = 3, .kw = 3, .w = w});
    ist_status st = ist_plan_status(t.plan);
    cr_assert(strstr(ist_plan_error(t.plan)->text, part), "'%s' does not say '%s'", ist_plan_error(t.plan)->text, part);
    optest_drop(&t);
    return st;
}
static void wrong_channels(ist_plan *p, ist_tensor x, ist_filter f) {
    f.in = 4;
    ist_op_conv(p, x, f, NULL, "layer.a");
}
static void kernel_beyond_map(ist_plan *p, ist_tensor x, ist_filter f) {
    f.kh = 5;
    ist_op_conv(p, x, f, NULL, "layer.b");
}
static void wrong_addend(ist_plan *p, ist_tensor x, ist_filter f) {
    ist_conv_opts o = {.epi.add_after = x};
    ist_op_conv(p, x, f, &o, "layer.c");
}
static void wrong_place(ist_plan *p, ist_tensor x, ist_filter f) {
    ist_conv_opts o = {.into = x};
    ist_op_conv(p, x, f, &o, "layer.d");
}
static void square_linear(ist_plan *p, ist_tensor x, ist_filter f) {
    ist_op_linear(p, x, f, NULL, "layer.e");
}

Test(conv, refuses_what_does_not_fit) {
    cr_assert_eq(refused(wrong_channels, "layer.a: filter [2,4,3,3]"), IST_E_ARGUMENT);
    cr_assert_eq(refused(kernel_beyond_map, "layer.b: filter [2,3,5,3] with stride 1 on [1,4,4,3]"), IST_E_ARGUMENT);
    cr_assert_eq(refused(wrong_addend, "layer.c: addend [1,4,4,3]"), IST_E_ARGUMENT);
    cr_assert_eq(refused(wrong_place, "layer.d"), IST_E_ARGUMENT);
    cr_assert_eq(refused(square_linear, "layer.e: a linear layer with a 3x3 filter"), IST_E_ARGUMENT);
}
