/* Folded weights compute what the unfolded layers do: each against the layers in double precision on a random map. */
#include "synth.h"
#include "weights/fold.h"
#include "base/half.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 5, OUT = 3, IN = 2 };

static ist_weights *w;
static ist_error err;

static void open_store(void) {
    cr_assert_eq(ist_weights_create(&w, &err), IST_OK);
}
static void close_store(void) {
    ist_weights_close(&w);
}
TestSuite(weights_fold, .init = open_store, .fini = close_store);

static void add(const char *name, int rank, const int64_t *dims) {
    float values[512];
    synth_weight(name, rank, dims, 9, values);
    cr_assert_eq(ist_weights_add(w, name, IST_WEIGHT_F32, rank, dims, values, &err), IST_OK, "%s", err.text);
}

static void add_conv(const char *name, int k) {
    add(name, 4, (int64_t[]){OUT, IN, k, k});
}

static void add_bn(const char *prefix) {
    static const char *const parts[] = {"weight", "bias", "running_mean", "running_var"};
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s", prefix, parts[i]);
        add(name, 1, (int64_t[]){OUT});
    }
}

static double at(const char *prefix, const char *part, int i) {
    char name[64];
    float v[512];
    snprintf(name, sizeof name, "%s%s", prefix, part);
    const ist_weight *t = ist_weights_find(w, name);
    cr_assert_not_null(t, "%s", name);
    cr_assert_eq(ist_weight_read_f32(t, v, &err), IST_OK);
    return v[i];
}

static double pixel(int c, int y, int x) {
    return y < 0 || x < 0 || y >= SIDE || x >= SIDE ? 0 : sin(1 + c * 31 + y * 7 + x);
}

/* One output of the convolution `name` (k x k, zero padding) at (y, x). */
static double conv_at(const char *name, int k, int o, int y, int x) {
    double sum = 0;
    for (int c = 0; c < IN; c++)
        for (int i = 0; i < k * k; i++)
            sum += at(name, "", (o * IN + c) * k * k + i) * pixel(c, y + i / k - k / 2, x + i % k - k / 2);
    return sum;
}

static double bn_at(const char *bn, int o, double v) {
    double scale = at(bn, ".weight", o) / sqrt(at(bn, ".running_var", o) + 1e-5);
    return (v - at(bn, ".running_mean", o)) * scale + at(bn, ".bias", o);
}

static double folded_at(const ist_conv_weights *c, int o, int y, int x) {
    double sum = c->b[o];
    for (int i = 0; i < c->in * c->kh * c->kw; i++) {
        int k = i % (c->kh * c->kw);
        sum += c->w[o * c->in * c->kh * c->kw + i] *
               pixel(i / (c->kh * c->kw), y + k / c->kw - c->kh / 2, x + k % c->kw - c->kw / 2);
    }
    return sum;
}

Test(weights_fold, convolution_and_batch_norm) {
    add_conv("u.conv.weight", 3);
    add_bn("u.bn");
    add("u.lab.scale", 1, (int64_t[]){1});
    add("u.lab.bias", 1, (int64_t[]){1});
    ist_conv_weights c;
    cr_assert_eq(ist_fold_conv(w, "u.conv.weight", "u.bn", "u.lab", &c, &err), IST_OK, "%s", err.text);
    cr_expect(c.out == OUT && c.in == IN && c.kh == 3 && c.kw == 3 && c.has_lab);
    cr_expect_eq(c.lab_scale, (float)at("u.lab", ".scale", 0));
    cr_expect_eq(c.lab_bias, (float)at("u.lab", ".bias", 0));
    for (int o = 0; o < OUT; o++)
        for (int p = 0; p < SIDE * SIDE; p++) {
            double want = bn_at("u.bn", o, conv_at("u.conv.weight", 3, o, p / SIDE, p % SIDE));
            cr_expect_float_eq(folded_at(&c, o, p / SIDE, p % SIDE), want, 1e-6);
        }
    ist_conv_weights_free(&c);
    cr_expect_null(c.w);
}

Test(weights_fold, own_bias_goes_through_the_batch_norm) {
    add_conv("u.conv.weight", 1);
    add("u.conv.bias", 1, (int64_t[]){OUT});
    add_bn("u.bn");
    ist_conv_weights c;
    cr_assert_eq(ist_fold_conv(w, "u.conv.weight", "u.bn", NULL, &c, &err), IST_OK, "%s", err.text);
    cr_expect(!c.has_lab && c.lab_scale == 1 && c.lab_bias == 0);
    for (int o = 0; o < OUT; o++)
        cr_expect_float_eq(folded_at(&c, o, 2, 2),
                           bn_at("u.bn", o, conv_at("u.conv.weight", 1, o, 2, 2) + at("u.conv", ".bias", o)), 1e-6);
    ist_conv_weights_free(&c);
    cr_assert_eq(ist_fold_conv(w, "u.conv.weight", NULL, NULL, &c, &err), IST_OK, "%s", err.text);
    cr_expect_eq(c.b[1], (float)at("u.conv", ".bias", 1));
    cr_expect_eq(c.w[3], (float)at("u.conv", ".weight", 3));
    ist_conv_weights_free(&c);
}

Test(weights_fold, bottleneck) {
    add_conv("b.0.conv1.conv.weight", 3);
    add_conv("b.0.conv2.conv.weight", 1);
    add_bn("b.0.conv1.norm");
    add_bn("b.0.conv2.norm");
    ist_conv_weights c;
    cr_assert_eq(ist_fold_repvgg(w, "b.0", &c, &err), IST_OK, "%s", err.text);
    cr_expect(c.kh == 3 && c.kw == 3);
    for (int o = 0; o < OUT; o++)
        for (int p = 0; p < SIDE * SIDE; p++) {
            int y = p / SIDE, x = p % SIDE;
            double want = bn_at("b.0.conv1.norm", o, conv_at("b.0.conv1.conv.weight", 3, o, y, x)) +
                          bn_at("b.0.conv2.norm", o, conv_at("b.0.conv2.conv.weight", 1, o, y, x));
            cr_expect_float_eq(folded_at(&c, o, y, x), want, 1e-6);
        }
    ist_conv_weights_free(&c);
}

/* The names of the training form find what deploy() left. */
Test(weights_fold, deployed) {
    add_conv("l.conv_bn_fused.weight", 3);
    add("l.conv_bn_fused.bias", 1, (int64_t[]){OUT});
    add_conv("b.0.conv.weight", 3);
    add("b.0.conv.bias", 1, (int64_t[]){OUT});
    ist_conv_weights c;
    cr_assert_eq(ist_fold_conv(w, "l.conv.weight", "l.norm", NULL, &c, &err), IST_OK, "%s", err.text);
    cr_expect_eq(c.w[5], (float)at("l.conv_bn_fused", ".weight", 5));
    cr_expect_eq(c.b[2], (float)at("l.conv_bn_fused", ".bias", 2));
    ist_conv_weights_free(&c);
    cr_assert_eq(ist_fold_repvgg(w, "b.0", &c, &err), IST_OK, "%s", err.text);
    cr_expect_eq(c.w[5], (float)at("b.0.conv", ".weight", 5));
    cr_expect_eq(c.b[2], (float)at("b.0.conv", ".bias", 2));
    ist_conv_weights_free(&c);
}

Test(weights_fold, linear_and_norm) {
    add("f.in_proj_weight", 2, (int64_t[]){6, 2});
    add("f.in_proj_bias", 1, (int64_t[]){6});
    add("n.weight", 1, (int64_t[]){4});
    add("n.bias", 1, (int64_t[]){4});
    ist_conv_weights c;
    cr_assert_eq(ist_load_linear(w, "f.in_proj_weight", "f.in_proj_bias", &c, &err), IST_OK, "%s", err.text);
    cr_expect(c.out == 6 && c.in == 2 && c.kh == 1 && c.kw == 1 && !c.has_lab);
    cr_expect_eq(c.w[7], (float)at("f.in_proj_weight", "", 7));
    cr_expect_eq(c.b[5], (float)at("f.in_proj_bias", "", 5));
    ist_conv_weights_free(&c);
    cr_assert_eq(ist_load_linear(w, "f.in_proj_weight", NULL, &c, &err), IST_OK);
    cr_expect_eq(c.b[5], 0);
    ist_conv_weights_free(&c);
    ist_norm_weights n;
    cr_assert_eq(ist_load_norm(w, "n", &n, &err), IST_OK, "%s", err.text);
    cr_expect(n.n == 4 && n.w[3] == (float)at("n", ".weight", 3) && n.b[0] == (float)at("n", ".bias", 0));
    ist_norm_weights_free(&n);
    ist_norm_weights_free(NULL);
    ist_conv_weights_free(NULL);
}

static void expect_refused(ist_status status, const ist_conv_weights *c, const char *sentence) {
    cr_expect_eq(status, IST_E_WEIGHTS);
    cr_expect_str_eq(err.text, sentence);
    cr_expect(!c->w && !c->b);
}

/* Sum of the errors of `count` weights, in units of the last place of a half of the largest. */
static double lost(const float *got, const float *want, int count) {
    double sum = 0, most = 0;
    for (int i = 0; i < count; i++) {
        sum += (double)got[i] - want[i];
        most = fmax(most, fabs(want[i]));
    }
    return most > 0 ? fabs(sum) / ldexp(1, ilogb(fmax(most, 0x1p-14)) - 10) : 0;
}

/* Each weight goes to one of the two halves beside it, and the errors of a filter and of a channel's taps do not add
 * up: to nearest some of these filters lose ten and more units. */
static void check_halves(int in, int k, double scale) {
    enum { FILTERS = 7 };
    int taps = k * k, row = in * taps;
    size_t count = (size_t)FILTERS * (size_t)row;
    float *want = malloc(count * sizeof *want), *got = malloc(count * sizeof *got);
    cr_assert(want && got);
    synth_weight("decoder.decoder.layers.0.linear1.weight", 2, (int64_t[]){FILTERS, row}, (uint64_t)row, want);
    for (size_t i = 0; i < count; i++) want[i] *= (float)scale;
    memcpy(got, want, count * sizeof *got);
    ist_conv_weights c = {.out = FILTERS, .in = in, .kh = k, .kw = k, .w = got};
    ist_conv_weights_halve(&c);
    for (size_t i = 0; i < count; i++) {
        float half = ist_half_to_float(ist_float_to_half(got[i])), unit = fmaxf(fabsf(want[i]) * 0x1p-10f, 0x1p-24f);
        cr_assert_eq(half, got[i], "%d x %d x %d: weight %zu is %a", in, k, k, i, (double)got[i]);
        cr_assert_lt(fabsf(got[i] - want[i]), unit, "%d x %d x %d: weight %zu was %a, is %a", in, k, k, i,
                     (double)want[i], (double)got[i]);
    }
    for (int o = 0; o < FILTERS; o++)
        cr_assert_leq(lost(got + o * row, want + o * row, row), 2.5, "%d x %d x %d: filter %d loses %g units", in, k, k,
                      o, lost(got + o * row, want + o * row, row));
    for (int i = 0; taps > 1 && i < FILTERS * in; i++)
        cr_assert_leq(lost(got + i * taps, want + i * taps, taps), 2.5, "%d x %d x %d: channel %d loses %g units", in,
                      k, k, i, lost(got + i * taps, want + i * taps, taps));
    memcpy(want, got, count * sizeof *want);
    ist_conv_weights_halve(&c);
    cr_assert_arr_eq(got, want, count * sizeof *want, "halves do not stay");
    free(want);
    free(got);
}

Test(weights_fold, halves_keep_the_sums) {
    static const int shapes[][2] = {{3, 3}, {1, 5}, {64, 3}, {1, 1}, {4096, 1}, {24, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int s = 0; s < 3; s++) check_halves(shapes[i][0], shapes[i][1], (double[]){1, 1e-4, 3000}[s]);
}

/* Output o for inputs that are `mean` everywhere; a depthwise filter has a mean of its own. */
static double mean_output(const ist_conv_weights *c, int o, const float *mean) {
    int taps = c->kh * c->kw;
    double sum = c->b[o];
    for (int k = 0; k < c->in * taps; k++) sum += (double)c->w[o * c->in * taps + k] * mean[c->in == 1 ? o : k / taps];
    return sum;
}

/* The weights are those of ist_conv_weights_halve; inputs at their means give what they gave before, which the rounded
 * weights with the biases as they were do not. */
static void check_halves_about(int in, int k) {
    enum { FILTERS = 11 };
    int row = in * k * k;
    size_t count = (size_t)FILTERS * (size_t)row;
    float *exact = malloc(count * sizeof *exact), *plain = malloc(count * sizeof *plain);
    float *about = malloc(count * sizeof *about), mean[64], before[FILTERS], bias[FILTERS], result[FILTERS];
    cr_assert(exact && plain && about);
    synth_weight("decoder.decoder.layers.0.linear1.weight", 2, (int64_t[]){FILTERS, row}, (uint64_t)row, exact);
    for (int i = 0; i < 64; i++) mean[i] = (float)((i * 7 % 13) - 3) / 4;
    for (int o = 0; o < FILTERS; o++) before[o] = bias[o] = (float)o / 8 - 0.6f;
    memcpy(plain, exact, count * sizeof *plain);
    memcpy(about, exact, count * sizeof *about);
    ist_conv_weights was = {.out = FILTERS, .in = in, .kh = k, .kw = k, .w = exact, .b = before}, rounded = was,
                     c = was;
    rounded.w = plain, c.w = about, c.b = bias;
    ist_conv_weights_halve(&rounded);
    ist_conv_weights_halve_about(&c, mean, result);
    cr_assert_arr_eq(about, plain, count * sizeof *about);
    double off = 0, uncorrected = 0;
    for (int o = 0; o < FILTERS; o++) {
        double want = mean_output(&was, o, mean);
        off = fmax(off, fabs(mean_output(&c, o, mean) - want));
        uncorrected = fmax(uncorrected, fabs(mean_output(&rounded, o, mean) - want));
        cr_assert_float_eq(result[o], want, 1e-6 * (1 + fabs(want)), "%d x %d: filter %d gives %g, not %g", in, k, o,
                           (double)result[o], want);
    }
    cr_assert_lt(off, 2e-6, "%d x %d: outputs move by %g", in, k, off);
    cr_assert_gt(uncorrected, 1e-5, "%d x %d: nothing to correct, %g", in, k, uncorrected);
    free(exact);
    free(plain);
    free(about);
}

Test(weights_fold, halves_keep_the_outputs_of_means) {
    check_halves_about(3, 3);
    check_halves_about(61, 1);
    check_halves_about(17, 2);
    check_halves_about(1, 5);
}

Test(weights_fold, halves_about_means_of_what_half_cannot_hold) {
    float values[] = {INFINITY, NAN, 1e6f, 0.1f}, bias[] = {1, 2, 3, 4}, result[4];
    ist_conv_weights c = {.out = 4, .in = 1, .kh = 1, .kw = 1, .w = values, .b = bias};
    const float mean = 0.5f, means[] = {mean, mean, mean, mean};
    ist_conv_weights_halve_about(&c, means, result);
    cr_assert(bias[0] == 1 && bias[1] == 2 && bias[2] == 3, "a bias became %g, %g or %g", (double)bias[0],
              (double)bias[1], (double)bias[2]);
    cr_assert_float_eq(bias[3] + values[3] * mean, 4 + 0.1f * mean, 1e-6f);
}

Test(weights_fold, halves_of_what_half_cannot_hold) {
    float values[] = {65503.0f, -65504.0f, 1e6f, INFINITY, NAN, 0.0f, 0x1p-25f, 0.1f};
    ist_conv_weights c = {.out = 1, .in = 8, .kh = 1, .kw = 1, .w = values};
    ist_conv_weights_halve(&c);
    cr_assert(values[0] == 65472.0f || values[0] == 65504.0f);
    cr_assert(values[1] == -65504.0f && values[2] == 1e6f && isinf(values[3]) && isnan(values[4]) && values[5] == 0);
    cr_assert(values[6] == 0 || values[6] == 0x1p-24f);
}

Test(weights_fold, refusals) {
    ist_conv_weights c;
    expect_refused(ist_fold_conv(w, "x.conv.weight", NULL, NULL, &c, &err), &c,
                   "x.conv.weight: missing from the checkpoint");
    add_conv("u.conv.weight", 3);
    expect_refused(ist_fold_conv(w, "u.conv.weight", "u.bn", NULL, &c, &err), &c,
                   "u.bn.weight: missing from the checkpoint");
    expect_refused(ist_load_linear(w, "u.conv.weight", NULL, &c, &err), &c,
                   "u.conv.weight: want [*,*], file has [3,2,3,3]");
    add("v.bn.weight", 1, (int64_t[]){OUT + 1});
    expect_refused(ist_fold_conv(w, "u.conv.weight", "v.bn", NULL, &c, &err), &c,
                   "v.bn.weight: want [3], file has [4]");
    expect_refused(ist_fold_conv(w, "u.conv.weight", NULL, "u.lab", &c, &err), &c,
                   "u.lab.scale: missing from the checkpoint");
    add("f.weight", 2, (int64_t[]){3, 2});
    expect_refused(ist_load_linear(w, "f.weight", "f.bias", &c, &err), &c, "f.bias: missing from the checkpoint");
}

Test(weights_fold, negative_variance_and_nan) {
    ist_conv_weights c;
    const char *const parts[] = {"n.weight", "n.bias", "n.running_mean", "n.running_var"};
    float values[OUT] = {1, -0.5f, 1};
    add_conv("u.conv.weight", 1);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(ist_weights_add(w, parts[i], IST_WEIGHT_F32, 1, (int64_t[]){OUT}, values, &err), IST_OK);
    expect_refused(ist_fold_conv(w, "u.conv.weight", "n", NULL, &c, &err), &c,
                   "n.running_var: element 1 is negative (-0.5)");
    float bad[OUT * IN] = {1, 2, 3, NAN};
    cr_assert_eq(ist_weights_add(w, "z.conv.weight", IST_WEIGHT_F32, 4, (int64_t[]){OUT, IN, 1, 1}, bad, &err), IST_OK);
    expect_refused(ist_fold_conv(w, "z.conv.weight", NULL, NULL, &c, &err), &c,
                   "z.conv.weight: element 3 of 6 is not a number as float32");
}
