/* Scalar two-way attention with folded tokens, and mask upscaling. Definitions stand in variants/absorbed.h and
 * graph/nodes.h. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 8 };

void ref_fold_heads(ref_map x, ref_map add, int d, const float *w, const float *b, const float *m, const float *mb,
                    double scale, bool columns, ref_map y) {
    int k_out = columns ? y.w - 1 : y.h * y.c;
    for (int n = 0; n < y.n; n++)
        for (int c = 0; c < (columns ? y.c : y.w); c++) {
            int t = c / HEADS, h = c % HEADS;
            double q[64] = {0}, bias = t < x.w ? 0 : -3.0e38;
            for (int i = 0; i < d && t < x.w; i++) {
                q[i] = b[h * d + i];
                for (int k = 0; k < x.c; k++) {
                    double v = ref_at(x, n, 0, t)[k] + (add.v ? (double)ref_at(add, add.n == 1 ? 0 : n, 0, t)[k] : 0);
                    q[i] += v * w[(h * d + i) * x.c + k];
                }
                q[i] *= scale;
                if (mb) bias += q[i] * mb[h * d + i];
            }
            for (int k = 0; k < k_out; k++) {
                double sum = 0;
                for (int i = 0; i < d; i++) sum += q[i] * m[(h * d + i) * k_out + k];
                *(columns ? ref_at(y, n, 0, k) + c : ref_at(y, n, k / y.c, c) + k % y.c) = (float)sum;
            }
            if (columns) ref_at(y, n, 0, k_out)[c] = (float)bias;
        }
}

/* Score of an image row under column c, to base 2. */
static double score(const double *x, const float *position, ref_map columns, int n, int c) {
    int k_in = columns.w - 1;
    double sum = ref_at(columns, n, 0, k_in)[c];
    for (int k = 0; k < k_in; k++) sum += (x[k] + (position ? position[k] : 0)) * ref_at(columns, n, 0, k)[c];
    return sum;
}

static void normalise(double *v, int count, const float *gamma, const float *beta, double eps) {
    double mean = 0, variance = 0;
    for (int i = 0; i < count; i++) mean += v[i] / count;
    for (int i = 0; i < count; i++) variance += (v[i] - mean) * (v[i] - mean) / count;
    for (int i = 0; i < count; i++) v[i] = (v[i] - mean) / sqrt(variance + eps) * gamma[i] + beta[i];
}

void ref_image_update(ref_map x, ref_map position, ref_map keys, ref_map values, const float *bias, const float *gamma,
                      const float *beta, double eps, ref_map y) {
    int tokens = values.w / HEADS;
    double *v = malloc((size_t)x.c * sizeof *v);
    for (int n = 0; n < y.n; n++)
        for (int row = 0; row < x.w; row++) {
            const float *from = ref_at(x, n, 0, row);
            double s[256];
            for (int k = 0; k < x.c; k++) v[k] = from[k];
            for (int c = 0; c < tokens * HEADS; c++) s[c] = score(v, ref_at(position, 0, 0, row), keys, n, c);
            for (int h = 0; h < HEADS; h++) {
                double top = s[h], sum = 0;
                for (int t = 1; t < tokens; t++) top = fmax(top, s[t * HEADS + h]);
                for (int t = 0; t < tokens; t++) sum += s[t * HEADS + h] = exp2(s[t * HEADS + h] - top);
                for (int t = 0; t < tokens; t++) s[t * HEADS + h] /= sum;
            }
            for (int k = 0; k < x.c; k++) {
                v[k] += bias[k];
                for (int c = 0; c < tokens * HEADS; c++)
                    v[k] += s[c] * ref_at(values, n, k / values.c, c)[k % values.c];
            }
            normalise(v, x.c, gamma, beta, eps);
            for (int k = 0; k < x.c; k++) ref_at(y, n, 0, row)[k] = (float)v[k];
        }
    free(v);
}

void ref_image_read(ref_map x, ref_map position, ref_map queries, int d, const float *w, const float *b, ref_map y) {
    double *s = malloc((size_t)x.w * sizeof *s), *v = malloc((size_t)x.c * sizeof *v);
    for (int n = 0; n < y.n; n++)
        for (int c = 0; c < y.w * HEADS; c++) {
            double top = -INFINITY, sum = 0;
            for (int row = 0; row < x.w; row++) {
                for (int k = 0; k < x.c; k++) v[k] = ref_at(x, n, 0, row)[k];
                s[row] = score(v, ref_at(position, 0, 0, row), queries, n, c);
                top = fmax(top, s[row]);
            }
            memset(v, 0, (size_t)x.c * sizeof *v);
            for (int row = 0; row < x.w; row++) sum += s[row] = exp2(s[row] - top);
            for (int row = 0; row < x.w; row++)
                for (int k = 0; k < x.c; k++) v[k] += s[row] / sum * ref_at(x, n, 0, row)[k];
            for (int i = 0, h = c % HEADS; i < d; i++) {
                double o = b[h * d + i];
                for (int k = 0; k < x.c; k++) o += v[k] * w[(h * d + i) * x.c + k];
                ref_at(y, n, 0, c / HEADS)[h * d + i] = (float)o;
            }
        }
    free(s);
    free(v);
}

void ref_upscale(ref_map x, const float *w1, const float *b1, const float *gamma, const float *beta, double eps,
                 const float *w2, const float *b2, ref_map vectors, ref_map y) {
    enum { C1 = 64, C2 = 32 };
    int masks = y.n / x.n;
    for (int n = 0; n < x.n; n++)
        for (int row = 0; row < y.h; row++)
            for (int column = 0; column < y.w; column++) {
                const float *from = ref_at(x, n, row / 4, column / 4);
                int first = row / 2 % 2 * 2 + column / 2 % 2, second = row % 2 * 2 + column % 2;
                double u[C1], v[C2];
                for (int o = 0; o < C1; o++) {
                    u[o] = b1[o];
                    for (int k = 0; k < x.c; k++) u[o] += (double)from[k] * w1[(k * C1 + o) * 4 + first];
                }
                normalise(u, C1, gamma, beta, eps);
                for (int o = 0; o < C1; o++) u[o] = ref_act(u[o], 3);
                for (int o = 0; o < C2; o++) {
                    v[o] = b2[o];
                    for (int k = 0; k < C1; k++) v[o] += u[k] * w2[(k * C2 + o) * 4 + second];
                    v[o] = ref_act(v[o], 3);
                }
                for (int m = 0; m < masks; m++) {
                    double sum = 0;
                    for (int o = 0; o < C2; o++) sum += v[o] * ref_at(vectors, n, 0, m)[o];
                    *ref_at(y, n * masks + m, row, column) = (float)sum;
                }
            }
}
