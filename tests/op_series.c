/* Series (core/series.c): launches that become one compute the same bits as by themselves, frame after frame, and those
 * that must stay apart do. */
#include "core/plan.h"
#include "variants/ops.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3, H = 21, W = 18, C = 32, MOST = N * H * W * C, FRAMES = 3 };

static ist_device *device;
static ist_error err;

static void open_device(void) {
    ist_device_options d = {0};
    cr_assert_eq(ist_device_open(&d, &device, &err), IST_OK, "%s", err.text);
}
static void close_device(void) {
    ist_device_close(&device);
}
TestSuite(op_series, .init = open_device, .fini = close_device);

static bool joins(void) {
    const unsigned need = IST_CAP_CPU | IST_CAP_VEC16 | IST_CAP_ATOMICS;
    return (ist_device_caps(device) & need) == need;
}

static void fill(float *v, size_t count, uint32_t seed) {
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        v[i] = ((float)(seed >> 8) / 8388608.0f - 1.0f) * 0.2f;
    }
}

/* A filter and its weights, which live as long as the process needs them. */
static ist_filter filter(int out, int in, int k, uint32_t seed) {
    static float w[C * C * 9], b[C];
    fill(w, (size_t)(out * in * k * k), seed);
    fill(b, (size_t)out, seed + 1);
    return (ist_filter){.out = out, .in = in, .kh = k, .kw = k, .w = w, .b = b};
}

typedef struct result {
    float v[MOST];
    int launches;
} result;

/* Layers that read each other's results at other pixels, of all kinds that join: 1x1, depthwise, 3x3 (Winograd's where
 * it wins), stride 2, few channels, attention; with `stages` in two stages. */
static ist_tensor record(ist_plan *p, ist_tensor x, ist_tensor count, bool stages) {
    const ist_conv_opts relu = {.epi.act = IST_ACT_RELU};
    const ist_conv_opts wide = {.top = 2, .bottom = 2, .left = 2, .right = 2, .epi.act = IST_ACT_RELU};
    const ist_conv_opts same = {.top = 1, .bottom = 1, .left = 1, .right = 1, .epi.act = IST_ACT_SILU};
    const ist_conv_opts half = {.stride = 2, .top = 1, .bottom = 1, .left = 1, .right = 1};
    ist_plan_stage(p, "one");
    if (ist_has(count)) ist_plan_limit(p, count);
    ist_tensor y = ist_op_linear(p, x, filter(C, C, 1, 1), &relu, "a");
    y = ist_op_dwconv(p, y, filter(C, 1, 5, 2), &wide, "b");
    y = ist_op_conv(p, y, filter(C, C, 3, 3), &same, "c");
    y = ist_op_dwconv(p, y, filter(C, 1, 5, 4), &wide, "d");
    if (stages) ist_plan_stage(p, "two");
    y = ist_op_conv(p, y, filter(21, C, 3, 5), &same, "e");
    y = ist_op_conv(p, y, filter(C, 21, 3, 6), &half, "f"); /* [n,11,9,C] */
    ist_tensor t = {.buffer = y.buffer, .n = y.n, .h = 1, .w = y.h * y.w, .c = C, .ld = C, .elem = y.elem};
    t = ist_op_attention(p, t, t, t, &(ist_attention_opts){.heads = 2, .scale = 0.5f}, "g");
    y = ist_op_linear(p, t, filter(C, C, 1, 7), &relu, "h");
    ist_plan_limit(p, (ist_tensor){0});
    return y;
}

/* Results of some frames in a row must be those of the first. */
static void run(const ist_plan_options *options, int items, bool stages, result *r) {
    static float x[MOST], again[MOST];
    ist_plan *p = NULL;
    cr_assert_eq(ist_plan_begin(device, options, &p, &err), IST_OK, "%s", err.text);
    ist_tensor in = ist_plan_input(p, N, H, W, C, IST_ELEM_T), count = {0};
    if (items < N) count = ist_plan_const(p, &items, 1, 1, 1, 1, IST_ELEM_I32, "items");
    ist_tensor out = record(p, in, count, stages);
    ist_plan_tap(p, "out", out);
    cr_assert_eq(ist_plan_finish(p, &err), IST_OK, "%s", err.text);
    fill(x, MOST, 99);
    cr_assert_eq(ist_plan_write_f32(p, in, x, &err), IST_OK, "%s", err.text);
    size_t bytes = (size_t)(items * out.h * out.w * out.c) * sizeof(float);
    for (int f = 0; f < FRAMES; f++) {
        cr_assert_eq(ist_plan_replay(p, &err), IST_OK, "%s", err.text);
        cr_assert_eq(ist_plan_read_f32(p, out, f ? again : r->v, &err), IST_OK, "%s", err.text);
        cr_expect(!f || !memcmp(again, r->v, bytes), "frame %d differs from the first", f);
    }
    if (options->guard_bytes) cr_expect_eq(ist_plan_check_guards(p, &err), IST_OK, "%s", err.text);
    r->launches = ist_plan_describe(p).launches;
    ist_plan_close(&p);
}

static void expect_same(const result *a, const result *b, int items) {
    int differ = 0, size = items * 11 * 9 * C;
    float sum = 0;
    for (int i = 0; i < size; i++) {
        differ += a->v[i] != b->v[i];
        sum += a->v[i];
    }
    cr_expect_eq(differ, 0, "%d of %d values differ", differ, size);
    cr_expect_gt(sum, 0.0f, "nothing was computed");
}

Test(op_series, same_bits_in_one_launch) {
    static result apart, joined, guarded;
    run(&(ist_plan_options){.taps = true, .apart = true}, N, false, &apart);
    run(&(ist_plan_options){.taps = true}, N, false, &joined);
    run(&(ist_plan_options){.taps = true, .guard_bytes = 256}, N, false, &guarded);
    expect_same(&apart, &joined, N);
    expect_same(&apart, &guarded, N);
    cr_expect_eq(apart.launches, 8);
    cr_expect_eq(joined.launches, joins() ? 1 : 8);
}

Test(op_series, items_beyond_the_limit_are_skipped) {
    static result apart, joined;
    run(&(ist_plan_options){.taps = true, .apart = true}, 1, false, &apart);
    run(&(ist_plan_options){.taps = true}, 1, false, &joined);
    expect_same(&apart, &joined, 1);
}

Test(op_series, stages_stay_apart) {
    static result apart, joined;
    run(&(ist_plan_options){.taps = true, .apart = true}, N, true, &apart);
    run(&(ist_plan_options){.taps = true}, N, true, &joined);
    expect_same(&apart, &joined, N);
    cr_expect_eq(joined.launches, joins() ? 2 : 8);
}

/* Layers "a" and "b", and in a stage of its own one more, like "a" or of another kind: programs that the plan asks for.
 */
static int programs_of(bool like, int *launches) {
    const ist_conv_opts relu = {.epi.act = IST_ACT_RELU};
    const ist_conv_opts wide = {.top = 2, .bottom = 2, .left = 2, .right = 2, .epi.act = IST_ACT_RELU};
    ist_plan_options options = {.taps = true};
    ist_plan *p = NULL;
    ist_build_stats before = ist_device_builds(device);
    cr_assert_eq(ist_plan_begin(device, &options, &p, &err), IST_OK, "%s", err.text);
    ist_plan_stage(p, "one");
    ist_tensor y = ist_plan_input(p, N, H, W, C, IST_ELEM_T);
    y = ist_op_linear(p, y, filter(C, C, 1, 1), &relu, "a");
    y = ist_op_dwconv(p, y, filter(C, 1, 5, 2), &wide, "b");
    ist_plan_stage(p, "two");
    if (like)
        ist_op_linear(p, y, filter(C, C, 1, 3), &relu, "c");
    else
        ist_op_attention(p, y, y, y, &(ist_attention_opts){.heads = 2, .scale = 0.5f}, "c");
    cr_assert_eq(ist_plan_finish(p, &err), IST_OK, "%s", err.text);
    *launches = ist_plan_describe(p).launches;
    ist_plan_close(&p);
    ist_build_stats after = ist_device_builds(device);
    return after.built + after.from_cache - before.built - before.from_cache;
}

Test(op_series, one_alone_takes_the_kernel_that_others_have) {
    int launches;
    cr_expect_eq(programs_of(true, &launches), joins() ? 1 : 2);
    cr_expect_eq(launches, joins() ? 2 : 3);
}

Test(op_series, one_alone_of_another_kind_stays_a_launch) {
    int launches;
    cr_expect_eq(programs_of(false, &launches), joins() ? 2 : 3);
    cr_expect_eq(launches, joins() ? 2 : 3);
}
