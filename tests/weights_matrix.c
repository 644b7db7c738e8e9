/* Filters merged, split and widened compute what the layers they were made of do. */
#include "support/host_memory.h"
#include "weights/matrix.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static ist_error err;

/* A layer whose weights and biases are all different. */
static ist_conv_weights layer(int out, int in, int k, double salt) {
    size_t count = (size_t)out * (size_t)in * (size_t)(k * k);
    ist_conv_weights w = {.out = out, .in = in, .kh = k, .kw = k, .lab_scale = 1};
    w.w = malloc(count * sizeof *w.w);
    w.b = malloc((size_t)out * sizeof *w.b);
    cr_assert(w.w && w.b);
    for (size_t i = 0; i < count; i++) w.w[i] = (float)sin(salt + 3.7 * (double)i);
    for (int i = 0; i < out; i++) w.b[i] = (float)cos(salt + 1.3 * i);
    return w;
}

/* Outputs of a 1x1 layer for one pixel. */
static void apply(const ist_conv_weights *l, const double *x, double *y) {
    for (int o = 0; o < l->out; o++) {
        y[o] = l->b[o];
        for (int i = 0; i < l->in; i++) y[o] += (double)l->w[o * l->in + i] * x[i];
    }
}

static void pixel(double *x, int count) {
    for (int i = 0; i < count; i++) x[i] = sin(1 + 0.7 * i);
}

static bool empty(const ist_conv_weights *w) {
    return !w->w && !w->b && w->out == 0 && w->in == 0;
}

static void is_matrix(const ist_conv_weights *w, int out, int in) {
    cr_assert(w->out == out && w->in == in && w->kh == 1 && w->kw == 1 && !w->has_lab && w->lab_scale == 1 &&
              w->lab_bias == 0);
}

/* ---- stack, compose, part ---- */

Test(weights_matrix, stacked_layers) {
    ist_conv_weights a = layer(3, 5, 1, 1), b = layer(4, 5, 1, 2), sum;
    double x[5], ya[3], yb[4], y[7];
    pixel(x, 5);
    apply(&a, x, ya);
    apply(&b, x, yb);
    cr_assert_eq(ist_stack(a, b, &sum, &err), IST_OK, "%s", err.text);
    is_matrix(&sum, 7, 5);
    apply(&sum, x, y);
    for (int i = 0; i < 7; i++) cr_assert_eq(y[i], i < 3 ? ya[i] : yb[i - 3], "output %d", i);
    ist_conv_weights_free(&sum);
}

Test(weights_matrix, layers_in_a_row) {
    ist_conv_weights outer = layer(3, 6, 1, 1), inner = layer(6, 4, 1, 2), product;
    double x[4], between[6], want[3], y[3];
    pixel(x, 4);
    apply(&inner, x, between);
    apply(&outer, between, want);
    cr_assert_eq(ist_compose(outer, inner, &product, &err), IST_OK, "%s", err.text);
    is_matrix(&product, 3, 4);
    apply(&product, x, y);
    for (int i = 0; i < 3; i++) cr_assert_float_eq(y[i], want[i], 1e-6, "output %d: %g, not %g", i, y[i], want[i]);
    ist_conv_weights_free(&product);
}

Test(weights_matrix, parts) {
    ist_conv_weights w = layer(6, 5, 1, 1), part;
    for (int bias = 0; bias < 2; bias++) {
        cr_assert_eq(ist_part(&w, 2, 3, 1, 4, bias, &part, &err), IST_OK, "%s", err.text);
        is_matrix(&part, 3, 4);
        for (int o = 0; o < 3; o++) {
            cr_assert_eq(part.b[o], bias ? w.b[2 + o] : 0);
            for (int i = 0; i < 4; i++) cr_assert_eq(part.w[o * 4 + i], w.w[(2 + o) * 5 + 1 + i]);
        }
        ist_conv_weights_free(&part);
    }
    cr_assert(w.w && w.b, "a part is a copy");
    ist_conv_weights_free(&w);
}

/* A stack taken apart is its layers again. */
Test(weights_matrix, parts_of_a_stack) {
    ist_conv_weights stack, first, second, a = layer(2, 3, 1, 1), b = layer(4, 3, 1, 2);
    cr_assert_eq(ist_stack(layer(2, 3, 1, 1), layer(4, 3, 1, 2), &stack, &err), IST_OK);
    cr_assert_eq(ist_part(&stack, 0, 2, 0, 3, true, &first, &err), IST_OK);
    cr_assert_eq(ist_part(&stack, 2, 4, 0, 3, true, &second, &err), IST_OK);
    cr_assert(!memcmp(first.w, a.w, 6 * sizeof(float)) && !memcmp(first.b, a.b, 2 * sizeof(float)));
    cr_assert(!memcmp(second.w, b.w, 12 * sizeof(float)) && !memcmp(second.b, b.b, 4 * sizeof(float)));
    ist_conv_weights *all[] = {&stack, &first, &second, &a, &b};
    for (int i = 0; i < 5; i++) ist_conv_weights_free(all[i]);
}

/* ---- wider maps ---- */

enum { SIDE = 4, FREE = 3, RUN = 5, WIDE = 8 };

/* Channel of a map that is channel c of the wider one, -1 where it was added. */
static int source(int c, ist_widening w) {
    if (!w.wide || c < w.first) return c;
    int at = (c - w.first) % w.wide;
    return at < w.run ? w.first + (c - w.first) / w.wide * w.run + at : -1;
}

static double value(int c, int y, int x) {
    return y < 0 || x < 0 || y >= SIDE || x >= SIDE ? 0 : sin(1 + c * 31 + y * 7 + x);
}

/* Output o at (y, x) of a map whose channels stand as `in` says; channels that were added are `noise`. */
static double conv_at(const ist_conv_weights *l, ist_widening in, double noise, int o, int y, int x) {
    double sum = l->b[o];
    for (int i = 0; i < l->in; i++)
        for (int k = 0; k < l->kh * l->kw; k++) {
            int from = source(i, in), dy = k / l->kw - l->kh / 2, dx = k % l->kw - l->kw / 2;
            double v = from < 0 ? noise : value(from, y + dy, x + dx);
            sum += (double)l->w[(o * l->in + i) * l->kh * l->kw + k] * v;
        }
    return sum;
}

static void widened(int k, ist_widening outputs, ist_widening inputs) {
    const int out = outputs.wide ? outputs.first + 2 * RUN : 7, in = inputs.wide ? inputs.first + 2 * RUN : 6;
    ist_conv_weights plain = layer(out, in, k, 1), wide;
    cr_assert_eq(ist_widen(layer(out, in, k, 1), outputs, inputs, &wide, &err), IST_OK, "%s", err.text);
    cr_assert(wide.out == (outputs.wide ? outputs.first + 2 * WIDE : 7) && wide.out == ist_widened(outputs, out));
    cr_assert(wide.in == (inputs.wide ? inputs.first + 2 * WIDE : 6) && wide.in == ist_widened(inputs, in));
    cr_assert(wide.kh == k && wide.kw == k);
    for (int p = 0; p < SIDE * SIDE; p++)
        for (int o = 0; o < wide.out; o++) {
            int from = source(o, outputs);
            double got = conv_at(&wide, inputs, 1e9, o, p / SIDE, p % SIDE);
            double want = from < 0 ? 0 : conv_at(&plain, (ist_widening){0}, 0, from, p / SIDE, p % SIDE);
            cr_assert_eq(got, want, "kernel %d, output %d, pixel %d: %g, not %g", k, o, p, got, want);
        }
    ist_conv_weights_free(&plain);
    ist_conv_weights_free(&wide);
}

Test(weights_matrix, layers_of_wider_maps) {
    const ist_widening none = {0}, runs = {0, RUN, WIDE}, behind = {FREE, RUN, WIDE};
    widened(3, runs, runs);
    widened(1, runs, behind);
    widened(1, none, behind);
    widened(3, none, behind);
    widened(3, behind, none);
    widened(1, none, none);
}

/* What needs no widening is handed on as it is. */
Test(weights_matrix, runs_that_are_wide_enough) {
    ist_conv_weights w = layer(4, 4, 1, 1), same;
    float *weights = w.w;
    cr_assert_eq(ist_widen(w, (ist_widening){0, 2, 2}, (ist_widening){0}, &same, &err), IST_OK);
    cr_assert(same.w == weights && same.out == 4 && same.in == 4);
    ist_conv_weights_free(&same);
}

/* ---- refusals: nothing is left, nothing is freed twice ---- */

#define REFUSED(call, code, sentence)                                                                                  \
    do {                                                                                                               \
        long held_ = blocks;                                                                                           \
        ist_conv_weights out = {.w = &(float){1}, .b = &(float){1}, .out = 1, .in = 1};                                \
        err.text[0] = 0;                                                                                               \
        cr_assert_eq((call), code, "%s", err.text);                                                                    \
        cr_assert_str_eq(err.text, sentence);                                                                          \
        cr_assert(empty(&out));                                                                                        \
        cr_assert_eq(blocks, held_, "%ld blocks are left", blocks - held_);                                            \
    } while (0)

Test(weights_matrix, refusals) {
    const ist_conv_weights none = {0};
    const ist_widening runs = {0, RUN, WIDE};
    ist_conv_weights w = layer(4, 3, 1, 1);
    REFUSED(ist_stack(layer(2, 3, 1, 1), layer(2, 4, 1, 1), &out, &err), IST_E_WEIGHTS,
            "layers with 3 and 4 inputs share one input");
    REFUSED(ist_stack(layer(2, 3, 1, 1), layer(2, 3, 3, 1), &out, &err), IST_E_WEIGHTS,
            "a 3x3 filter stands where a 1x1 filter belongs");
    REFUSED(ist_compose(layer(2, 3, 1, 1), layer(4, 3, 1, 1), &out, &err), IST_E_WEIGHTS,
            "a layer with 3 inputs follows one with 4 outputs");
    REFUSED(ist_part(&w, 2, 3, 0, 3, true, &out, &err), IST_E_WEIGHTS, "a 4 x 3 matrix has no part [2,5) x [0,3)");
    REFUSED(ist_part(&w, 0, 4, 1, 3, true, &out, &err), IST_E_WEIGHTS, "a 4 x 3 matrix has no part [0,4) x [1,4)");
    REFUSED(ist_widen(layer(RUN, RUN + 1, 1, 1), runs, runs, &out, &err), IST_E_WEIGHTS,
            "a layer with 6 inputs and 5 outputs has no runs of 5 and 5");
    /* what failed before, without a new sentence */
    REFUSED(ist_stack(layer(2, 3, 1, 1), none, &out, &err), IST_E_STATE, "");
    REFUSED(ist_compose(none, layer(2, 3, 1, 1), &out, &err), IST_E_STATE, "");
    REFUSED(ist_part(&none, 0, 1, 0, 1, true, &out, &err), IST_E_STATE, "");
    REFUSED(ist_widen(none, runs, runs, &out, &err), IST_E_STATE, "");
    ist_conv_weights_free(&w);
}

/* Allocation `at` of each call fails; what was taken is freed. */
static ist_status run_out(int which, long at, ist_conv_weights *out) {
    ist_conv_weights a = layer(10, 10, 1, 1), b = layer(10, 10, 1, 2);
    ist_status status;
    calls = 0;
    fail_at = at;
    if (which == 0)
        status = ist_stack(a, b, out, &err);
    else if (which == 1)
        status = ist_compose(a, b, out, &err);
    else
        status = ist_widen(a, (ist_widening){0, RUN, WIDE}, (ist_widening){0}, out, &err);
    fail_at = 0;
    if (which == 2) ist_conv_weights_free(&b);
    return status;
}

Test(weights_matrix, memory_runs_out) {
    static const long allocations[] = {2, 3, 2};
    for (int which = 0; which < 3; which++)
        for (long at = 1; at <= allocations[which] + 1; at++) {
            long held = blocks;
            ist_conv_weights out;
            ist_status status = run_out(which, at, &out);
            cr_assert_eq(status, at <= allocations[which] ? IST_E_MEMORY : IST_OK, "call %d, allocation %ld: status %d",
                         which, at, status);
            cr_assert_eq(empty(&out), status != IST_OK);
            if (status) cr_assert_not_null(strstr(err.text, "out of host memory"), "%s", err.text);
            ist_conv_weights_free(&out);
            cr_assert_eq(blocks, held, "call %d, allocation %ld: %ld blocks are left", which, at, blocks - held);
        }
}
