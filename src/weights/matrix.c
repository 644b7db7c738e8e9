/* See matrix.h. Sums are in double. */
#include "weights/matrix.h"

#include <stdlib.h>
#include <string.h>

ist_status ist_zero_filter(int out, int in, int kh, int kw, ist_conv_weights *w, ist_error *err) {
    *w = (ist_conv_weights){.out = out, .in = in, .kh = kh, .kw = kw, .lab_scale = 1};
    w->w = calloc((size_t)out * (size_t)in, (size_t)kh * (size_t)kw * sizeof(float));
    w->b = calloc((size_t)out, sizeof(float));
    if (w->w && w->b) return IST_OK;
    ist_conv_weights_free(w);
    return ist_fail(err, IST_E_MEMORY, "out of host memory for %d x %d x %d x %d weights", out, in, kh, kw);
}

static ist_status blank(int out, int in, ist_conv_weights *w, ist_error *err) {
    return ist_zero_filter(out, in, 1, 1, w, err);
}

static ist_status check_matrix(const ist_conv_weights *w, ist_error *err) {
    if (!w->w) return IST_E_STATE;
    if (w->kh == 1 && w->kw == 1 && !w->has_lab) return IST_OK;
    return ist_fail(err, IST_E_WEIGHTS, "a %dx%d filter stands where a 1x1 filter belongs", w->kh, w->kw);
}

static ist_status stack(const ist_conv_weights *first, const ist_conv_weights *second, ist_conv_weights *sum,
                        ist_error *err) {
    IST_TRY(check_matrix(first, err));
    IST_TRY(check_matrix(second, err));
    if (first->in != second->in)
        return ist_fail(err, IST_E_WEIGHTS, "layers with %d and %d inputs share one input", first->in, second->in);
    IST_TRY(blank(first->out + second->out, first->in, sum, err));
    size_t in = (size_t)first->in, a = (size_t)first->out, b = (size_t)second->out;
    memcpy(sum->w, first->w, a * in * sizeof(float));
    memcpy(sum->w + a * in, second->w, b * in * sizeof(float));
    memcpy(sum->b, first->b, a * sizeof(float));
    memcpy(sum->b + a, second->b, b * sizeof(float));
    return IST_OK;
}

ist_status ist_stack(ist_conv_weights first, ist_conv_weights second, ist_conv_weights *out, ist_error *err) {
    *out = (ist_conv_weights){0};
    ist_status status = stack(&first, &second, out, err);
    ist_conv_weights_free(&first);
    ist_conv_weights_free(&second);
    return status;
}

/* One row of the product: sum over m of outer[m] * inner row m, and the bias in element `in`. Four rows at a time, in
 * the order of one after the other, so that sums are loaded and stored a fourth as often. */
static void compose_row(const float *restrict outer, const ist_conv_weights *inner, double *restrict row) {
    const int in = inner->in, fours = inner->out / 4 * 4;
    for (int i = 0; i <= in; i++) row[i] = 0;
    for (int m = 0; m < inner->out; m++) row[in] += (double)outer[m] * inner->b[m];
    for (int m = 0; m < fours; m += 4) {
        const float *restrict w = inner->w + (size_t)m * in, *restrict x = w + in, *restrict y = x + in,
                                                             *restrict z = y + in;
        const double a = outer[m], b = outer[m + 1], c = outer[m + 2], d = outer[m + 3];
        for (int i = 0; i < in; i++) row[i] = row[i] + a * w[i] + b * x[i] + c * y[i] + d * z[i];
    }
    for (int m = fours; m < inner->out; m++)
        for (int i = 0; i < in; i++) row[i] += (double)outer[m] * inner->w[(size_t)m * in + i];
}

static ist_status compose(const ist_conv_weights *outer, const ist_conv_weights *inner, ist_conv_weights *product,
                          ist_error *err) {
    IST_TRY(check_matrix(outer, err));
    IST_TRY(check_matrix(inner, err));
    if (outer->in != inner->out)
        return ist_fail(err, IST_E_WEIGHTS, "a layer with %d inputs follows one with %d outputs", outer->in,
                        inner->out);
    double *row = malloc(((size_t)inner->in + 1) * sizeof *row);
    if (!row) return ist_fail(err, IST_E_MEMORY, "out of host memory for a row of %d weights", inner->in);
    ist_status status = blank(outer->out, inner->in, product, err);
    for (int o = 0; o < outer->out && !status; o++) {
        compose_row(outer->w + (size_t)o * outer->in, inner, row);
        for (int i = 0; i < inner->in; i++) product->w[(size_t)o * inner->in + i] = (float)row[i];
        product->b[o] = (float)(outer->b[o] + row[inner->in]);
    }
    free(row);
    return status;
}

ist_status ist_compose(ist_conv_weights outer, ist_conv_weights inner, ist_conv_weights *out, ist_error *err) {
    *out = (ist_conv_weights){0};
    ist_status status = compose(&outer, &inner, out, err);
    ist_conv_weights_free(&outer);
    ist_conv_weights_free(&inner);
    return status;
}

ist_status ist_part(const ist_conv_weights *w, int out0, int outs, int in0, int ins, bool bias, ist_conv_weights *out,
                    ist_error *err) {
    *out = (ist_conv_weights){0};
    IST_TRY(check_matrix(w, err));
    if (out0 + outs > w->out || in0 + ins > w->in)
        return ist_fail(err, IST_E_WEIGHTS, "a %d x %d matrix has no part [%d,%d) x [%d,%d)", w->out, w->in, out0,
                        out0 + outs, in0, in0 + ins);
    IST_TRY(blank(outs, ins, out, err));
    for (int o = 0; o < outs; o++)
        memcpy(out->w + (size_t)o * ins, w->w + (size_t)(out0 + o) * w->in + in0, (size_t)ins * sizeof(float));
    if (bias) memcpy(out->b, w->b + out0, (size_t)outs * sizeof(float));
    return IST_OK;
}

/* Where channel i of a widened axis came from; -1: it was added. */
static int source_of(int i, ist_widening w) {
    if (!w.wide || i < w.first) return i;
    int at = (i - w.first) % w.wide;
    return at < w.run ? w.first + (i - w.first) / w.wide * w.run + at : -1;
}

static bool has_runs(ist_widening w, int c) {
    return !w.wide || (c >= w.first && (c - w.first) % w.run == 0);
}

ist_status ist_widen(ist_conv_weights taken, ist_widening outputs, ist_widening inputs, ist_conv_weights *out,
                     ist_error *err) {
    *out = taken;
    if (!taken.w) return IST_E_STATE;
    if (outputs.wide == outputs.run && inputs.wide == inputs.run) return IST_OK;
    *out = (ist_conv_weights){0};
    if (!has_runs(outputs, taken.out) || !has_runs(inputs, taken.in)) {
        ist_status status = ist_fail(err, IST_E_WEIGHTS, "a layer with %d inputs and %d outputs has no runs of %d and %d",
                                     taken.in, taken.out, inputs.run, outputs.run);
        ist_conv_weights_free(&taken);
        return status;
    }
    ist_conv_weights w = taken;
    w.out = ist_widened(outputs, taken.out);
    w.in = ist_widened(inputs, taken.in);
    size_t taps = (size_t)taken.kh * (size_t)taken.kw;
    w.w = calloc((size_t)w.out * (size_t)w.in * taps, sizeof(float));
    w.b = calloc((size_t)w.out, sizeof(float));
    for (int o = 0; o < w.out && w.w && w.b; o++) {
        int from = source_of(o, outputs);
        if (from < 0) continue;
        w.b[o] = taken.b[from];
        for (int i = 0; i < w.in; i++) {
            int input = source_of(i, inputs);
            if (input < 0) continue;
            memcpy(w.w + ((size_t)o * (size_t)w.in + (size_t)i) * taps,
                   taken.w + ((size_t)from * (size_t)taken.in + (size_t)input) * taps, taps * sizeof(float));
        }
    }
    ist_conv_weights_free(&taken);
    *out = w;
    if (w.w && w.b) return IST_OK;
    ist_conv_weights_free(out);
    return ist_fail(err, IST_E_MEMORY, "out of host memory for %d x %d wider filters", w.out, w.in);
}
