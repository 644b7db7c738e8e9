/* Loading and folding of single layers. What leaves here is finite float32 of the shape it says. */
#include "weights/fold.h"

#include "base/mem.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EPS 1e-5

/* Room for a tensor name and a suffix. */
typedef char name_text[320];

void ist_conv_weights_free(ist_conv_weights *c) {
    if (!c) return;
    free(c->w);
    free(c->b);
    *c = (ist_conv_weights){0};
}

void ist_norm_weights_free(ist_norm_weights *n) {
    if (!n) return;
    free(n->w);
    free(n->b);
    *n = (ist_norm_weights){0};
}

/* Weight (rank 2 or 4) with the bias of that name; with bias NULL or, unless it is required, absent, b is zeros. */
static ist_status load(const ist_weights *weights, const char *weight, const char *bias, bool bias_required, int rank,
                       ist_conv_weights *out, ist_error *err) {
    static const int64_t any[] = {-1, -1, -1, -1};
    *out = (ist_conv_weights){.kh = 1, .kw = 1, .lab_scale = 1};
    IST_TRY(ist_weights_f32(weights, weight, rank, any, &out->w, err));
    const int64_t *d = ist_weights_find(weights, weight)->dims;
    for (int i = 0; i < rank; i++)
        if (d[i] < 1 || d[i] > INT_MAX)
            return ist_fail(err, IST_E_WEIGHTS, "%s: dimension %d is %lld", weight, i, (long long)d[i]);
    out->out = (int)d[0];
    out->in = (int)d[1];
    if (rank == 4) {
        out->kh = (int)d[2];
        out->kw = (int)d[3];
    }
    if (bias && (bias_required || ist_weights_find(weights, bias)))
        return ist_weights_f32(weights, bias, 1, d, &out->b, err);
    out->b = calloc((size_t)out->out, sizeof *out->b);
    return out->b ? IST_OK : ist_fail(err, IST_E_MEMORY, "%s: out of host memory", weight);
}

/* Scale s and shift t of a batch norm at inference: y = s*x + t, in double. Both arrays have n elements. */
static ist_status batch_norm(const ist_weights *weights, const char *prefix, int n, double *s, double *t,
                             ist_error *err) {
    static const char *const parts[] = {"weight", "bias", "running_mean", "running_var"};
    float *v[4] = {NULL};
    ist_status status = IST_OK;
    for (int i = 0; i < 4 && !status; i++) {
        name_text name;
        snprintf(name, sizeof name, "%s.%s", prefix, parts[i]);
        status = ist_weights_f32(weights, name, 1, (int64_t[]){n}, &v[i], err);
    }
    for (int i = 0; i < n && !status; i++) {
        if (v[3][i] < 0) {
            status = ist_fail(err, IST_E_WEIGHTS, "%s.running_var: element %d is negative (%g)", prefix, i, v[3][i]);
            break;
        }
        s[i] = v[0][i] / sqrt((double)v[3][i] + EPS);
        t[i] = v[1][i] - v[2][i] * s[i];
    }
    for (int i = 0; i < 4; i++) free(v[i]);
    return status;
}

/* In place: W' = s*W per output channel, b' = s*b + t. */
static ist_status fold_batch_norm(const ist_weights *weights, const char *prefix, ist_conv_weights *c, ist_error *err) {
    double *s = malloc((size_t)c->out * 2 * sizeof *s);
    if (!s) return ist_fail(err, IST_E_MEMORY, "%s: out of host memory", prefix);
    ist_status status = batch_norm(weights, prefix, c->out, s, s + c->out, err);
    size_t row = (size_t)c->in * (size_t)c->kh * (size_t)c->kw;
    for (int o = 0; o < c->out && !status; o++) {
        for (size_t i = 0; i < row; i++) c->w[(size_t)o * row + i] = (float)(c->w[(size_t)o * row + i] * s[o]);
        c->b[o] = (float)(c->b[o] * s[o] + s[c->out + o]);
    }
    free(s);
    return status;
}

/* `text` with its last `from` (a suffix) replaced; false when it does not end so. */
static bool replace_suffix(const char *text, const char *from, const char *to, name_text out) {
    size_t length = strlen(text), tail = strlen(from);
    if (length < tail || strcmp(text + length - tail, from)) return false;
    snprintf(out, sizeof(name_text), "%.*s%s", (int)(length - tail), text, to);
    return true;
}

/* Whether deploy() has left a fused convolution in the place of `conv`, and its name. */
static bool is_fused(const ist_weights *weights, const char *conv, name_text name) {
    return !ist_weights_find(weights, conv) && replace_suffix(conv, ".conv.weight", ".conv_bn_fused.weight", name) &&
           ist_weights_find(weights, name);
}

void ist_fold_conv_name(const ist_weights *weights, const char *conv, char *name, size_t size) {
    name_text fused;
    snprintf(name, size, "%s", is_fused(weights, conv, fused) ? fused : conv);
}

/* The convolution of a training checkpoint, or the fused one (*fused). */
static ist_status load_conv(const ist_weights *weights, const char *conv, bool *fused, ist_conv_weights *out,
                            ist_error *err) {
    name_text weight, bias;
    *fused = is_fused(weights, conv, weight);
    if (!*fused) snprintf(weight, sizeof weight, "%s", conv);
    bool named = replace_suffix(weight, ".weight", ".bias", bias);
    return load(weights, weight, named ? bias : NULL, *fused, 4, out, err);
}

static ist_status fold_conv(const ist_weights *weights, const char *conv, const char *bn, const char *lab,
                            ist_conv_weights *out, ist_error *err) {
    bool fused = false;
    IST_TRY(load_conv(weights, conv, &fused, out, err));
    if (bn && !fused) IST_TRY(fold_batch_norm(weights, bn, out, err));
    if (lab) {
        name_text name;
        out->has_lab = 1;
        snprintf(name, sizeof name, "%s.scale", lab);
        IST_TRY(ist_weights_scalar(weights, name, &out->lab_scale, err));
        snprintf(name, sizeof name, "%s.bias", lab);
        IST_TRY(ist_weights_scalar(weights, name, &out->lab_bias, err));
    }
    return IST_OK;
}

ist_status ist_fold_conv(const ist_weights *weights, const char *conv, const char *bn, const char *lab,
                         ist_conv_weights *out, ist_error *err) {
    ist_status status = fold_conv(weights, conv, bn, lab, out, err);
    if (status) ist_conv_weights_free(out);
    return status;
}

/* Adds the 1x1 kernels of `point` to the centre taps of the 3x3 convolution. */
static ist_status add_point(const char *block, const ist_conv_weights *point, ist_conv_weights *out, ist_error *err) {
    if (out->kh != 3 || out->kw != 3 || point->kh != 1 || point->kw != 1 || out->out != point->out ||
        out->in != point->in)
        return ist_fail(err, IST_E_WEIGHTS,
                        "%s: want 3x3 and 1x1 kernels of one shape, file has [%d,%d,%d,%d] and "
                        "[%d,%d,%d,%d]",
                        block, out->out, out->in, out->kh, out->kw, point->out, point->in, point->kh, point->kw);
    size_t kernels = (size_t)out->out * (size_t)out->in;
    for (size_t i = 0; i < kernels; i++) out->w[9 * i + 4] += point->w[i];
    for (int o = 0; o < out->out; o++) out->b[o] += point->b[o];
    return IST_OK;
}

void ist_fold_repvgg_name(const ist_weights *weights, const char *block, char *name, size_t size) {
    snprintf(name, size, "%s.conv.weight", block);
    if (!ist_weights_find(weights, name)) snprintf(name, size, "%s.conv1.conv.weight", block);
}

ist_status ist_fold_repvgg(const ist_weights *weights, const char *block, ist_conv_weights *out, ist_error *err) {
    name_text conv, bn;
    snprintf(conv, sizeof conv, "%s.conv.weight", block);
    if (ist_weights_find(weights, conv)) return ist_fold_conv(weights, conv, NULL, NULL, out, err);
    snprintf(conv, sizeof conv, "%s.conv1.conv.weight", block);
    snprintf(bn, sizeof bn, "%s.conv1.norm", block);
    IST_TRY(ist_fold_conv(weights, conv, bn, NULL, out, err));
    ist_conv_weights point = {0};
    snprintf(conv, sizeof conv, "%s.conv2.conv.weight", block);
    snprintf(bn, sizeof bn, "%s.conv2.norm", block);
    ist_status status = ist_fold_conv(weights, conv, bn, NULL, &point, err);
    if (!status) status = add_point(block, &point, out, err);
    ist_conv_weights_free(&point);
    if (status) ist_conv_weights_free(out);
    return status;
}

ist_status ist_load_linear(const ist_weights *weights, const char *weight, const char *bias, ist_conv_weights *out,
                           ist_error *err) {
    ist_status status = load(weights, weight, bias, true, 2, out, err);
    if (status) ist_conv_weights_free(out);
    return status;
}

ist_status ist_load_norm(const ist_weights *weights, const char *prefix, ist_norm_weights *out, ist_error *err) {
    name_text name;
    *out = (ist_norm_weights){0};
    snprintf(name, sizeof name, "%s.weight", prefix);
    IST_TRY(ist_weights_f32(weights, name, 1, (int64_t[]){-1}, &out->w, err));
    out->n = (int)ist_weights_find(weights, name)->count;
    snprintf(name, sizeof name, "%s.bias", prefix);
    ist_status status = ist_weights_f32(weights, name, 1, (int64_t[]){out->n}, &out->b, err);
    if (status) ist_norm_weights_free(out);
    return status;
}
