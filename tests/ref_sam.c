/* Scalar layers of SAM's mask decoder (segment-anything's modeling/transformer.py), as nodes.h defines them. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void linear(const double *x, const ref_linear *l, double *y) {
    for (int o = 0; o < l->out; o++) {
        y[o] = l->b ? (double)l->b[o] : 0;
        for (int k = 0; k < l->in; k++) y[o] += x[k] * (double)l->w[o * l->in + k];
    }
}

static void normalise(const double *v, int count, const float *gamma, const float *beta, double eps, float *y) {
    double mean = 0, variance = 0;
    for (int i = 0; i < count; i++) mean += v[i] / count;
    for (int i = 0; i < count; i++) variance += (v[i] - mean) * (v[i] - mean) / count;
    for (int i = 0; i < count; i++)
        y[i] = (float)((v[i] - mean) / sqrt(variance + eps) * (double)gamma[i] + (double)beta[i]);
}

/* Every token of item n of x + position, projected: [tokens][out], the caller's to free. */
static double *projected(ref_map x, ref_map position, int n, const ref_linear *l) {
    double *y = malloc(sizeof *y * (size_t)x.w * (size_t)l->out), *v = malloc(sizeof *v * (size_t)x.c);
    for (int i = 0; i < x.w; i++) {
        for (int k = 0; k < x.c; k++) {
            v[k] = (double)ref_at(x, n, 0, i)[k];
            if (position.v) v[k] += (double)ref_at(position, position.n == 1 ? 0 : n, 0, i)[k];
        }
        linear(v, l, y + (size_t)i * (size_t)l->out);
    }
    free(v);
    return y;
}

/* One query [inner] of `heads`: the averages of the values [inner]. s: room for a score of each key. */
static void average(const double *q, const double *keys, const double *values, int count, int inner, int heads, double *s,
                    double *y) {
    int d = inner / heads;
    memset(y, 0, sizeof *y * (size_t)inner);
    for (int h = 0; h < inner; h += d) {
        double top = -INFINITY, sum = 0;
        for (int j = 0; j < count; j++) {
            s[j] = 0;
            for (int c = h; c < h + d; c++) s[j] += q[c] * keys[j * inner + c];
            s[j] /= sqrt(d);
            top = fmax(top, s[j]);
        }
        for (int j = 0; j < count; j++) sum += s[j] = exp(s[j] - top);
        for (int j = 0; j < count; j++)
            for (int c = h; c < h + d; c++) y[c] += s[j] / sum * values[j * inner + c];
    }
}

void ref_attention_layer(ref_map q, ref_map q_pos, ref_map k, ref_map k_pos, ref_map add,
                         const ref_attention_weights *w, ref_map y) {
    const ref_map none = {0};
    int inner = w->query.out;
    double *s = malloc(sizeof *s * (size_t)k.w), *o = malloc(sizeof *o * (size_t)inner);
    double *v = malloc(sizeof *v * (size_t)y.c);
    for (int n = 0; n < y.n; n++) {
        double *queries = projected(q, q_pos, n, &w->query), *keys = projected(k, k_pos, n, &w->key);
        double *values = projected(k, none, n, &w->value);
        for (int i = 0; i < q.w; i++) {
            average(queries + (size_t)i * (size_t)inner, keys, values, k.w, inner, w->heads, s, o);
            linear(o, &w->out, v);
            for (int c = 0; c < y.c && add.v; c++) v[c] += (double)ref_at(add, n, 0, i)[c];
            normalise(v, y.c, w->gamma, w->beta, w->eps, ref_at(y, n, 0, i));
        }
        free(queries);
        free(keys);
        free(values);
    }
    free(s);
    free(o);
    free(v);
}

void ref_mlp_layer(ref_map x, const ref_mlp_weights *w, int act, ref_map y) {
    size_t hidden = (size_t)w->lin1.out, c = (size_t)x.c;
    double *v = malloc(sizeof *v * c), *u = malloc(sizeof *u * hidden), *sum = malloc(sizeof *sum * c);
    for (int i = 0; i < x.n * x.h * x.w; i++) {
        const float *from = x.v + (size_t)i * c;
        for (size_t k = 0; k < c; k++) v[k] = (double)from[k];
        linear(v, &w->lin1, u);
        for (size_t k = 0; k < hidden; k++) u[k] = ref_act(u[k], act);
        linear(u, &w->lin2, sum);
        for (size_t k = 0; k < c; k++) sum[k] += v[k];
        normalise(sum, x.c, w->gamma, w->beta, w->eps, y.v + (size_t)i * c);
    }
    free(v);
    free(u);
    free(sum);
}

void ref_grid_code(const float *gauss, int grid, ref_map y) {
    const double turn = 2 * acos(-1.0);
    int f = y.c / 2;
    for (int row = 0; row < grid; row++)
        for (int column = 0; column < grid; column++)
            for (int k = 0; k < f; k++) {
                double across = 2 * (column + 0.5) / grid - 1, down = 2 * (row + 0.5) / grid - 1;
                double z = turn * (across * (double)gauss[k] + down * (double)gauss[f + k]);
                float *to = ref_at(y, 0, 0, row * grid + column);
                to[k] = (float)sin(z);
                to[f + k] = (float)cos(z);
            }
}

void ref_token_mlp(const float *v, const ref_linear mlp[3], float *y) {
    double *x = malloc(sizeof *x * (size_t)mlp[0].in), *u = NULL;
    for (int k = 0; k < mlp[0].in; k++) x[k] = (double)v[k];
    for (int l = 0; l < 3; l++) {
        u = malloc(sizeof *u * (size_t)mlp[l].out);
        linear(x, &mlp[l], u);
        for (int o = 0; o < mlp[l].out && l < 2; o++) u[o] = ref_act(u[o], 1);
        free(x);
        x = u;
    }
    for (int o = 0; o < mlp[2].out; o++) y[o] = (float)x[o];
    free(x);
}

void ref_two_way(ref_map tokens, ref_map code, const ref_two_way_weights *w, ref_map image, ref_map y) {
    const ref_map none = {0};
    memcpy(y.v, tokens.v, ref_size(y) * sizeof *y.v);
    for (int i = 0; i < 2; i++) {
        ref_map position = i ? tokens : none;
        ref_attention_layer(y, position, y, position, i ? y : none, &w->self[i], y);
        ref_attention_layer(y, tokens, image, code, y, &w->read[i], y);
        ref_mlp_layer(y, &w->mlp[i], 1, y);
        ref_attention_layer(image, code, y, tokens, image, &w->update[i], image);
    }
    ref_attention_layer(y, tokens, image, code, y, &w->last, y);
}
