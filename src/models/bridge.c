/* Loading and folding by name, and the choice of the operator that a filter's shape asks for. */
#include "models/bridge.h"
#include "ops/separable.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ist_name vname(const char *fmt, va_list ap) {
    ist_name name;
    vsnprintf(name.text, sizeof name.text, fmt, ap);
    return name;
}

/* Formats the variable arguments behind `fmt` into an ist_name called `name`. */
#define FORMAT_NAME(name, fmt)                                                                                         \
    ist_name name;                                                                                                     \
    do {                                                                                                               \
        va_list ap_;                                                                                                   \
        va_start(ap_, fmt);                                                                                            \
        name = vname(fmt, ap_);                                                                                        \
        va_end(ap_);                                                                                                   \
    } while (0)

ist_name ist_name_of(const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    return name;
}

static bool failed(const ist_net *net) {
    return ist_plan_status(net->plan) != IST_OK;
}

/* Makes the failure that a loader left in `err` the plan's. */
static void check(const ist_net *net, ist_status status, const ist_error *err) {
    if (status != IST_OK) ist_plan_fail(net->plan, status, "%s", err->text);
}

/* ---- loading ---- */

ist_conv_weights ist_take_conv(const ist_net *net, const char *conv, const char *bn, const char *lab) {
    ist_conv_weights w = {0};
    ist_error err = {0};
    if (!failed(net)) check(net, ist_fold_conv(net->weights, conv, bn, lab, &w, &err), &err);
    return w;
}

static ist_conv_weights take_bn(const ist_net *net, const char *name, const char *norm, bool lab) {
    ist_name conv = ist_name_of("%s.conv.weight", name), bn = ist_name_of("%s.%s", name, norm);
    ist_name scale = ist_name_of("%s.lab.scale", name), affine = ist_name_of("%s.lab", name);
    bool has_lab = lab && ist_weights_find(net->weights, scale.text);
    return ist_take_conv(net, conv.text, bn.text, has_lab ? affine.text : NULL);
}

ist_conv_weights ist_take_conv_bn(const ist_net *net, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    return take_bn(net, name.text, "bn", true);
}

ist_conv_weights ist_take_conv_norm(const ist_net *net, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    return take_bn(net, name.text, "norm", false);
}

ist_conv_weights ist_take_repvgg(const ist_net *net, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    ist_conv_weights w = {0};
    ist_error err = {0};
    if (!failed(net)) check(net, ist_fold_repvgg(net->weights, name.text, &w, &err), &err);
    return w;
}

ist_conv_weights ist_take_linear(const ist_net *net, const char *weight, const char *bias) {
    ist_conv_weights w = {0};
    ist_error err = {0};
    if (!failed(net)) check(net, ist_load_linear(net->weights, weight, bias, &w, &err), &err);
    return w;
}

ist_conv_weights ist_take_dense(const ist_net *net, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    ist_name weight = ist_name_of("%s.weight", name.text), bias = ist_name_of("%s.bias", name.text);
    const ist_weight *found = ist_weights_find(net->weights, weight.text);
    if (found && found->rank == 4) return ist_take_conv(net, weight.text, NULL, NULL);
    return ist_take_linear(net, weight.text, ist_weights_find(net->weights, bias.text) ? bias.text : NULL);
}

ist_norm_weights ist_take_norm(const ist_net *net, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    ist_norm_weights w = {0};
    ist_error err = {0};
    if (!failed(net)) check(net, ist_load_norm(net->weights, name.text, &w, &err), &err);
    return w;
}

float ist_take_scalar(const ist_net *net, const char *name) {
    float value = 0;
    ist_error err = {0};
    if (!failed(net)) check(net, ist_weights_scalar(net->weights, name, &value, &err), &err);
    return value;
}

/* ---- merging and splitting 1x1 layers ---- */

/* A 1x1 layer of zeros; empty when the plan has failed or memory is out. */
static ist_conv_weights blank(const ist_net *net, int out, int in) {
    ist_conv_weights w = {.out = out, .in = in, .kh = 1, .kw = 1, .lab_scale = 1};
    if (failed(net)) return (ist_conv_weights){0};
    w.w = calloc((size_t)out * (size_t)in, sizeof(float));
    w.b = calloc((size_t)out, sizeof(float));
    if (w.w && w.b) return w;
    ist_conv_weights_free(&w);
    ist_plan_fail(net->plan, IST_E_MEMORY, "out of host memory for a matrix of %d x %d weights", out, in);
    return w;
}

static bool is_matrix(const ist_net *net, const ist_conv_weights *w) {
    if (failed(net)) return false;
    if (w->kh == 1 && w->kw == 1 && !w->has_lab) return true;
    ist_plan_fail(net->plan, IST_E_WEIGHTS, "a %dx%d filter stands where a 1x1 filter belongs", w->kh, w->kw);
    return false;
}

ist_conv_weights ist_stack(const ist_net *net, ist_conv_weights first, ist_conv_weights second) {
    ist_conv_weights sum = {0};
    if (is_matrix(net, &first) && is_matrix(net, &second)) {
        if (first.in != second.in)
            ist_plan_fail(net->plan, IST_E_WEIGHTS, "layers with %d and %d inputs share one input", first.in,
                          second.in);
        sum = blank(net, first.out + second.out, first.in);
    }
    if (sum.w) {
        size_t in = (size_t)first.in, a = (size_t)first.out, b = (size_t)second.out;
        memcpy(sum.w, first.w, a * in * sizeof(float));
        memcpy(sum.w + a * in, second.w, b * in * sizeof(float));
        memcpy(sum.b, first.b, a * sizeof(float));
        memcpy(sum.b + a, second.b, b * sizeof(float));
    }
    ist_conv_weights_free(&first);
    ist_conv_weights_free(&second);
    return sum;
}

/* One row of the product: sum over m of outer[m] * inner row m, and the bias in element `in`. */
static void compose_row(const float *outer, const ist_conv_weights *inner, double *row) {
    for (int i = 0; i <= inner->in; i++) row[i] = 0;
    for (int m = 0; m < inner->out; m++) {
        const float *w = inner->w + (size_t)m * inner->in;
        double factor = outer[m];
        for (int i = 0; i < inner->in; i++) row[i] += factor * w[i];
        row[inner->in] += factor * inner->b[m];
    }
}

ist_conv_weights ist_compose(const ist_net *net, ist_conv_weights outer, ist_conv_weights inner) {
    ist_conv_weights product = {0};
    double *row = NULL;
    if (is_matrix(net, &outer) && is_matrix(net, &inner)) {
        if (outer.in != inner.out)
            ist_plan_fail(net->plan, IST_E_WEIGHTS, "a layer with %d inputs follows one with %d outputs", outer.in,
                          inner.out);
        product = blank(net, outer.out, inner.in);
        row = malloc(((size_t)inner.in + 1) * sizeof *row);
        if (!row) ist_plan_fail(net->plan, IST_E_MEMORY, "out of host memory for a row of %d weights", inner.in);
    }
    for (int o = 0; o < product.out && row; o++) {
        compose_row(outer.w + (size_t)o * outer.in, &inner, row);
        for (int i = 0; i < inner.in; i++) product.w[(size_t)o * inner.in + i] = (float)row[i];
        product.b[o] = (float)(outer.b[o] + row[inner.in]);
    }
    free(row);
    ist_conv_weights_free(&outer);
    ist_conv_weights_free(&inner);
    return product;
}

ist_conv_weights ist_part(const ist_net *net, const ist_conv_weights *w, int out0, int outs, int in0, int ins,
                          bool bias) {
    if (!is_matrix(net, w)) return (ist_conv_weights){0};
    if (out0 + outs > w->out || in0 + ins > w->in) {
        ist_plan_fail(net->plan, IST_E_WEIGHTS, "a %d x %d matrix has no part [%d,%d) x [%d,%d)", w->out, w->in, out0,
                      out0 + outs, in0, in0 + ins);
        return (ist_conv_weights){0};
    }
    ist_conv_weights part = blank(net, outs, ins);
    if (!part.w) return part;
    for (int o = 0; o < outs; o++)
        memcpy(part.w + (size_t)o * ins, w->w + (size_t)(out0 + o) * w->in + in0, (size_t)ins * sizeof(float));
    if (bias) memcpy(part.b, w->b + out0, (size_t)outs * sizeof(float));
    return part;
}

/* Where channel i of a widened axis came from; -1: it was added. */
static int narrow(int i, int first, int run, int wide) {
    if (i < first) return i;
    int at = (i - first) % wide;
    return at < run ? first + (i - first) / wide * run + at : -1;
}

ist_conv_weights ist_widen(const ist_net *net, ist_conv_weights taken, int out0, int in0, int run, int wide) {
    if (failed(net) || run == wide) return taken;
    if ((taken.out - out0) % run || (taken.in - in0) % run) {
        ist_plan_fail(net->plan, IST_E_WEIGHTS, "a layer with %d inputs and %d outputs has no runs of %d", taken.in,
                      taken.out, run);
        return taken;
    }
    ist_conv_weights w = taken;
    w.out = out0 + (taken.out - out0) / run * wide;
    w.in = in0 + (taken.in - in0) / run * wide;
    size_t taps = (size_t)taken.kh * (size_t)taken.kw;
    w.w = calloc((size_t)w.out * (size_t)w.in * taps, sizeof(float));
    w.b = calloc((size_t)w.out, sizeof(float));
    if (!w.w || !w.b) {
        ist_plan_fail(net->plan, IST_E_MEMORY, "out of host memory for %d x %d wider filters", w.out, w.in);
        ist_conv_weights_free(&w);
    }
    for (int o = 0; o < w.out && w.w; o++) {
        int from = narrow(o, out0, run, wide);
        if (from < 0) continue;
        w.b[o] = taken.b[from];
        for (int i = 0; i < w.in; i++) {
            int input = narrow(i, in0, run, wide);
            if (input < 0) continue;
            memcpy(w.w + ((size_t)o * (size_t)w.in + (size_t)i) * taps,
                   taken.w + ((size_t)from * (size_t)taken.in + (size_t)input) * taps, taps * sizeof(float));
        }
    }
    ist_conv_weights_free(&taken);
    return w;
}

void ist_settle(const ist_net *net, ist_conv_weights *w) {
    if (w->w && !w->settled && !failed(net) && ist_plan_half(net->plan)) ist_conv_weights_halve(w);
    w->settled = true;
}

void ist_settle_about(const ist_net *net, ist_conv_weights *w, const float *mean, bool relu, float *out) {
    if (!w->w || failed(net) || !ist_plan_half(net->plan)) return;
    ist_conv_weights_halve_about(w, mean, out);
    w->settled = true;
    for (int o = 0; o < w->out; o++) {
        if (relu && !(out[o] > 0)) out[o] = 0;
        if (w->has_lab) out[o] = w->lab_scale * out[o] + w->lab_bias;
    }
}

/* ---- recording ---- */

void ist_tap(const ist_net *net, ist_tensor t, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    ist_plan_tap(net->plan, name.text, t);
}

static ist_tensor record(const ist_net *net, ist_tensor x, const ist_conv_weights *w, const ist_conv_opts *o,
                         const char *label) {
    ist_filter f = ist_filter_of(w);
    if (w->in == 1 && w->out == x.c && x.c > 1) return ist_op_dwconv(net->plan, x, f, o, label);
    if (w->kh == 1 && w->kw == 1 && o->stride <= 1) return ist_op_linear(net->plan, x, f, o, label);
    return ist_op_conv(net->plan, x, f, o, label);
}

/* `opts` with the layer's LAB. */
static ist_conv_opts with_lab(const ist_conv_opts *opts, const ist_conv_weights *w) {
    ist_conv_opts o = opts ? *opts : (ist_conv_opts){0};
    if (w->has_lab) {
        o.epi.has_lab = true;
        o.epi.lab_scale = w->lab_scale;
        o.epi.lab_bias = w->lab_bias;
    }
    return o;
}

ist_tensor ist_apply(const ist_net *net, ist_tensor x, ist_conv_weights w, const ist_conv_opts *opts,
                     const char *label) {
    ist_conv_opts o = with_lab(opts, &w);
    ist_tensor y = {0};
    ist_settle(net, &w);
    if (!failed(net)) y = record(net, x, &w, &o, label);
    ist_conv_weights_free(&w);
    return y;
}

ist_tensor ist_apply_separable(const ist_net *net, ist_tensor x, ist_conv_weights point, ist_conv_weights depth,
                               const ist_conv_opts *opts, const char *label) {
    ist_conv_opts o = with_lab(opts, &depth);
    ist_tensor y = {0};
    ist_settle(net, &point);
    ist_settle(net, &depth);
    if (!failed(net)) y = ist_op_separable(net->plan, x, ist_filter_of(&point), ist_filter_of(&depth), &o, label);
    ist_conv_weights_free(&point);
    ist_conv_weights_free(&depth);
    return y;
}

ist_tensor ist_conv_norm(const ist_net *net, ist_tensor x, const ist_conv_opts *opts, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    return ist_apply(net, x, take_bn(net, name.text, "norm", false), opts, name.text);
}

ist_tensor ist_dense(const ist_net *net, ist_tensor x, const ist_conv_opts *opts, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    return ist_apply(net, x, ist_take_dense(net, "%s", name.text), opts, name.text);
}

ist_tensor ist_layer_norm(const ist_net *net, ist_tensor x, float eps, const ist_norm_opts *opts, const char *fmt,
                          ...) {
    FORMAT_NAME(name, fmt);
    ist_norm_opts o = opts ? *opts : (ist_norm_opts){0};
    ist_norm_weights w = ist_take_norm(net, "%s", name.text);
    ist_tensor y = {0};
    if (!failed(net) && w.n != x.c)
        ist_plan_fail(net->plan, IST_E_WEIGHTS, "%s: norm of %d channels, the tensor has %d", name.text, w.n, x.c);
    if (!failed(net)) y = ist_op_layernorm(net->plan, x, w.w, w.b, eps, &o, name.text);
    ist_norm_weights_free(&w);
    return y;
}
