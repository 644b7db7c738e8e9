/* What models/bridge does with weights before a layer is recorded. */
#include "models/bridge.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { HEIGHT = 5, WIDTH = 6, FREE = 3, RUN = 5, WIDE = 8 };

/* Own copies, as the callee frees them. */
static ist_conv_weights weights_of(const float *w, const float *b, int out, int in, int k) {
    size_t count = (size_t)out * (size_t)in * (size_t)(k * k);
    ist_conv_weights own = {.out = out, .in = in, .kh = k, .kw = k, .lab_scale = 1};
    own.w = malloc(count * sizeof *w);
    own.b = malloc((size_t)out * sizeof *b);
    memcpy(own.w, w, count * sizeof *w);
    memcpy(own.b, b, (size_t)out * sizeof *b);
    return own;
}

/* Channel c of the wider map, -1 where it is added. */
static int source(int c, int first) {
    int at = c < first ? 0 : (c - first) % WIDE;
    return c < first ? c : at < RUN ? first + (c - first) / WIDE * RUN + at : -1;
}

/* y of `channels` as the map with wider runs from `first` on, zeros in what is added. */
static ref_map widened(optest *t, ref_map y, int first, int channels) {
    ref_map wide = optest_zeros(t, y.n, y.h, y.w, channels);
    for (int p = 0; p < y.n * y.h * y.w; p++)
        for (int c = 0; c < channels; c++)
            if (source(c, first) >= 0) wide.v[p * channels + c] = y.v[p * y.c + source(c, first)];
    return wide;
}

/* A layer of kernel k whose outputs (unless `last`) and inputs from `first` on lie in runs. */
static void wider_case(int k, int first, bool last, unsigned salt) {
    optest t;
    optest_begin(&t, "wider maps", salt);
    ist_net net = {.plan = t.plan};
    int in = first + 2 * RUN, wide_in = first + 2 * WIDE, out = last ? 7 : 2 * RUN, wide_out = last ? out : 2 * WIDE;
    ref_map x = optest_random(&t, 1, HEIGHT, WIDTH, in), y = optest_zeros(&t, 1, HEIGHT, WIDTH, out);
    float *w = optest_values(&t, (size_t)(out * in * k * k), -1, 1), *b = optest_values(&t, (size_t)out, -1, 1);
    ref_epilogue silu = {.act = (int)IST_ACT_SILU};
    ref_conv(x, w, b, (ref_window){k, k, 1, k / 2, k / 2}, &silu, y);
    ist_tensor xt = optest_in(&t, widened(&t, x, first, wide_in), IST_ELEM_T, false);
    ist_conv_weights wide = ist_widen(&net, weights_of(w, b, out, in, k), last ? out : 0, first, RUN, WIDE);
    cr_assert_eq(wide.out, wide_out);
    cr_assert_eq(wide.in, wide_in);
    ist_conv_opts opts = {IST_PAD(k / 2), .epi.act = IST_ACT_SILU};
    ist_tensor got = ist_apply(&net, xt, wide, &opts, "wider");
    optest_run(&t);
    ref_map want = last ? y : widened(&t, y, 0, wide_out), values = optest_read(&t, got);
    optest_close(&t, "result", values, want, optest_tolerance(&t, in * k * k), 2 * optest_tolerance(&t, in * k * k));
    for (int i = 0; !last && i < HEIGHT * WIDTH * wide_out; i++)
        if (source(i % wide_out, 0) < 0) cr_assert_eq(values.v[i], 0.0f, "added channel %d", i % wide_out);
    optest_end(&t);
}

Test(bridge, layers_of_wider_maps) {
    wider_case(3, 0, false, 1);
    wider_case(1, FREE, false, 2);
    wider_case(1, FREE, true, 3);
    wider_case(3, FREE, true, 4);
}

/* Numbers of channels that are no runs end the plan and leave nothing to free twice. */
Test(bridge, layers_without_runs) {
    optest t;
    optest_begin(&t, "no runs", 5);
    ist_net net = {.plan = t.plan};
    float w[(RUN + 1) * RUN] = {0}, b[RUN + 1] = {0};
    ist_conv_weights same = ist_widen(&net, weights_of(w, b, RUN, RUN + 1, 1), 0, 0, RUN, WIDE);
    cr_assert_eq(ist_plan_status(t.plan), IST_E_WEIGHTS);
    ist_conv_weights_free(&same);
    optest_drop(&t);
}
