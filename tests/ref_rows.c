/* Scalar normalisation, element-wise work and attention. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>

/* The pixel of an addend that serves (n, y, x). */
static const float *addend_at(ref_map m, int n, int y, int x) {
    bool one = m.h * m.w == 1;
    return ref_at(m, m.n == 1 ? 0 : n, one ? 0 : y, one ? 0 : x);
}

void ref_add(ref_map a, ref_map b, ref_map y) {
    for (int n = 0; n < y.n; n++)
        for (int i = 0; i < y.h; i++)
            for (int j = 0; j < y.w; j++)
                for (int c = 0; c < y.c; c++) ref_at(y, n, i, j)[c] = ref_at(a, n, i, j)[c] + addend_at(b, n, i, j)[c];
}

void ref_expand(ref_map x, const int *map, ref_map y) {
    size_t item = ref_size(x) / (size_t)x.n;
    for (int n = 0; n < y.n; n++)
        for (size_t i = 0; i < item; i++) y.v[(size_t)n * item + i] = x.v[(size_t)map[n] * item + i];
}

void ref_clamp(ref_map x, float lo, float hi, ref_map y) {
    for (size_t i = 0; i < ref_size(x); i++) y.v[i] = x.v[i] < lo ? lo : x.v[i] > hi ? hi : x.v[i];
}

static void normalise(const double *v, int c, const float *gamma, const float *beta, double eps, int act, float *out) {
    double mean = 0, var = 0;
    for (int i = 0; i < c; i++) mean += v[i] / c;
    for (int i = 0; i < c; i++) var += (v[i] - mean) * (v[i] - mean) / c;
    for (int i = 0; i < c; i++) out[i] = (float)ref_act((v[i] - mean) / sqrt(var + eps) * gamma[i] + beta[i], act);
}

void ref_layernorm(ref_map x, ref_map add, float clamp, const float *gamma, const float *beta, float eps, int act,
                   ref_map y) {
    double *v = malloc((size_t)x.c * sizeof *v);
    for (int n = 0; n < x.n; n++)
        for (int i = 0; i < x.h; i++)
            for (int j = 0; j < x.w; j++) {
                for (int c = 0; c < x.c; c++) {
                    v[c] = ref_at(x, n, i, j)[c] + (add.v ? (double)addend_at(add, n, i, j)[c] : 0);
                    if (clamp > 0) v[c] = fmin(fmax(v[c], -clamp), clamp);
                }
                normalise(v, x.c, gamma, beta, eps, act, ref_at(y, n, i, j));
            }
    free(v);
}

void ref_gate(ref_map g, ref_map x, ref_map y, const float *gamma, const float *beta, ref_map out) {
    double *v = malloc((size_t)x.c * sizeof *v);
    for (int n = 0; n < x.n; n++)
        for (int i = 0; i < x.h; i++)
            for (int j = 0; j < x.w; j++) {
                const float *gate = ref_at(g, n, i, j);
                for (int c = 0; c < x.c; c++)
                    v[c] =
                        ref_act(gate[c], 4) * ref_at(x, n, i, j)[c] + ref_act(gate[x.c + c], 4) * ref_at(y, n, i, j)[c];
                normalise(v, x.c, gamma, beta, 1e-5, 0, ref_at(out, n, i, j));
            }
    free(v);
}

/* s becomes softmax(s). */
static void softmax(double *s, int count) {
    double top = s[0], sum = 0;
    for (int i = 1; i < count; i++) top = fmax(top, s[i]);
    for (int i = 0; i < count; i++) sum += s[i] = exp(s[i] - top);
    for (int i = 0; i < count; i++) s[i] /= sum;
}

static double dot(const float *a, const float *b, int d) {
    double sum = 0;
    for (int c = 0; c < d; c++) sum += (double)a[c] * b[c];
    return sum;
}

void ref_attention(ref_map q, ref_map k, ref_map v, int heads, float scale, const int *q_map, const int *kv_map,
                   ref_map out) {
    int d = q.c / heads, nk = k.w;
    double *s = malloc((size_t)nk * sizeof *s);
    for (int n = 0; n < out.n; n++)
        for (int h = 0; h < heads; h++)
            for (int i = 0; i < q.w; i++) {
                int from = kv_map ? kv_map[n] : n;
                const float *query = ref_at(q, q_map ? q_map[n] : n, 0, i) + h * d;
                for (int j = 0; j < nk; j++) s[j] = dot(query, ref_at(k, from, 0, j) + h * d, d) * scale;
                softmax(s, nk);
                for (int c = 0; c < d; c++) {
                    double sum = 0;
                    for (int j = 0; j < nk; j++) sum += s[j] * ref_at(v, from, 0, j)[h * d + c];
                    ref_at(out, n, 0, i)[h * d + c] = (float)sum;
                }
            }
    free(s);
}

void ref_window_attention(ref_map qkv, const float *pad, const float *bias, int heads, int ws, ref_map out) {
    enum { D = 32 };
    double s[256];
    const float *token[256];
    for (int n = 0; n < out.n; n++)
        for (int y = 0; y < out.h; y++)
            for (int x = 0; x < out.w; x++)
                for (int h = 0; h < heads; h++) {
                    for (int j = 0; j < ws * ws; j++) {
                        int ky = y / ws * ws + j / ws, kx = x / ws * ws + j % ws;
                        token[j] = (ky < qkv.h && kx < qkv.w ? ref_at(qkv, n, ky, kx) : pad) + h * 3 * D;
                        s[j] = dot(ref_at(qkv, n, y, x) + h * 3 * D, token[j] + D, D) / sqrt(D) +
                               bias[h * ws * ws + abs(y - ky) * ws + abs(x - kx)];
                    }
                    softmax(s, ws * ws);
                    for (int c = 0; c < D; c++) {
                        double sum = 0;
                        for (int j = 0; j < ws * ws; j++) sum += s[j] * token[j][2 * D + c];
                        ref_at(out, n, y, x)[h * D + c] = (float)sum;
                    }
                }
}

void ref_relative_attention(ref_map qkv, const float *rel_h, int wh, const float *rel_w, int ww, const float *pad,
                            int heads, ref_map out) {
    int d = out.c / heads, keys = wh * ww;
    double *s = malloc((size_t)keys * sizeof *s);
    for (int n = 0; n < out.n; n++)
        for (int y = 0; y < out.h; y++)
            for (int x = 0; x < out.w; x++)
                for (int h = 0; h < heads; h++) {
                    const float *query = ref_at(qkv, n, y, x) + h * d;
                    float *to = ref_at(out, n, y, x) + h * d;
                    double sum[64] = {0};
                    for (int j = 0; j < keys; j++) {
                        int ky = y / wh * wh + j / ww, kx = x / ww * ww + j % ww;
                        const float *key = (ky < qkv.h && kx < qkv.w ? ref_at(qkv, n, ky, kx) : pad) + out.c + h * d;
                        s[j] = dot(query, key, d) / sqrt(d) + dot(query, rel_h + (y - ky + wh - 1) * d, d) +
                               dot(query, rel_w + (x - kx + ww - 1) * d, d);
                    }
                    softmax(s, keys);
                    for (int j = 0; j < keys; j++) {
                        int ky = y / wh * wh + j / ww, kx = x / ww * ww + j % ww;
                        const float *v = (ky < qkv.h && kx < qkv.w ? ref_at(qkv, n, ky, kx) : pad) + 2 * out.c + h * d;
                        for (int c = 0; c < d; c++) sum[c] += s[j] * v[c];
                    }
                    for (int c = 0; c < d; c++) to[c] = (float)sum[c];
                }
    free(s);
}

/* Channel c of level l of item n at (x, y) in pixels; zero outside. */
static double bilinear(ref_map memory, int n, ref_level l, double x, double y, int c) {
    double x0 = floor(x), y0 = floor(y), sum = 0;
    for (int i = 0; i < 4; i++) {
        double px = x0 + i % 2, py = y0 + i / 2;
        if (!(px >= 0 && px < l.w && py >= 0 && py < l.h)) continue;
        sum += (1 - fabs(x - px)) * (1 - fabs(y - py)) * ref_at(memory, n, 0, l.start + (int)py * l.w + (int)px)[c];
    }
    return sum;
}

void ref_deform_attention(ref_map offsets, ref_map weights, ref_map boxes, ref_map memory, const ref_level *levels,
                          int level_count, int heads, ref_map out) {
    int d = memory.c / heads, points = weights.c / heads;
    double *a = malloc((size_t)points * sizeof *a);
    for (int n = 0; n < out.n; n++)
        for (int q = 0; q < out.w; q++)
            for (int h = 0; h < heads; h++) {
                const float *box = ref_at(boxes, n, 0, q), *o = ref_at(offsets, n, 0, q) + h * points * 2;
                for (int p = 0; p < points; p++) a[p] = ref_at(weights, n, 0, q)[h * points + p];
                softmax(a, points);
                for (int c = 0; c < d; c++) {
                    double sum = 0;
                    for (int l = 0, p = 0; l < level_count; l++)
                        for (int i = 0; i < levels[l].points; i++, p++) {
                            double x = box[0] + (double)o[2 * p] / levels[l].points * box[2] * 0.5;
                            double y = box[1] + (double)o[2 * p + 1] / levels[l].points * box[3] * 0.5;
                            sum += a[p] * bilinear(memory, memory.n == 1 ? 0 : n, levels[l], x * levels[l].w - 0.5,
                                                   y * levels[l].h - 0.5, h * d + c);
                        }
                    ref_at(out, n, 0, q)[h * d + c] = (float)sum;
                }
            }
    free(a);
}

/* Embedding of a label, NULL where there is none. */
static const float *label_row(const float *table, int label, int most, int c) {
    return label > most ? NULL : table + (size_t)(label + 1) * (size_t)c;
}

void ref_point_tokens(ref_map points, const int *labels, int most, const float *gauss, const float *table, double side,
                      ref_map y) {
    int half = y.c / 2;
    for (int n = 0; n < y.n; n++)
        for (int t = 0; t < y.w; t++) {
            int label = t >= points.w ? -1 : labels ? labels[n * points.w + t] : 2 + t;
            const float *row = label_row(table, label, labels ? most : 3, y.c);
            for (int c = 0; c < y.c; c++) {
                double v = row ? row[c] : 0;
                if (label != -1) {
                    const float *p = ref_at(points, n, 0, t);
                    double a = 2 * (p[0] + 0.5) / side - 1, b = 2 * (p[1] + 0.5) / side - 1;
                    double z = 6.283185307179586 * (a * gauss[c % half] + b * gauss[half + c % half]);
                    v += c < half ? sin(z) : cos(z);
                }
                ref_at(y, n, 0, t)[c] = (float)v;
            }
        }
}
