/* Scalar definitions: selection, boxes, resampling, masks, assignment. See ref.h. */
#include "ref.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void ref_row_max(ref_map x, ref_map y) {
    for (int i = 0; i < x.n * x.h * x.w; i++) {
        y.v[i] = -INFINITY;
        for (int c = 0; c < x.c; c++) y.v[i] = fmaxf(y.v[i], x.v[(size_t)i * x.c + c]);
    }
}

void ref_topk(const float *v, int count, int k, int *index) {
    unsigned char *taken = calloc((size_t)count, 1);
    for (int i = 0; i < k; i++) {
        int best = -1;
        for (int j = 0; j < count; j++) {
            if (taken[j]) continue;
            float a = isnan(v[j]) ? -INFINITY : v[j];
            if (best < 0 || a > (isnan(v[best]) ? -INFINITY : v[best])) best = j;
        }
        taken[best] = 1;
        index[i] = best;
    }
    free(taken);
}

/* torchvision/csrc/ops/cpu/nms_kernel.cpp */
static bool suppresses(const float *a, const float *b, double iou) {
    float area = (a[2] - a[0]) * (a[3] - a[1]), other = (b[2] - b[0]) * (b[3] - b[1]);
    float w = fmaxf(0, fminf(a[2], b[2]) - fmaxf(a[0], b[0])), h = fmaxf(0, fminf(a[3], b[3]) - fmaxf(a[1], b[1]));
    float inter = w * h, all = area + other - inter, ratio = inter / all;
    return ratio > iou;
}

int ref_nms(const float *boxes, const float *scores, const int *group, int count, double iou, int *index) {
    int kept = 0;
    int *order = malloc(((size_t)count + 1) * sizeof *order);
    ref_topk(scores, count, count, order);
    for (int i = 0; i < count; i++) {
        const float *box = boxes + 4 * order[i];
        bool stays = true;
        for (int k = 0; stays && k < kept; k++)
            stays = (group && group[index[k]] != group[order[i]]) || !suppresses(boxes + 4 * index[k], box, iou);
        if (stays) index[kept++] = order[i];
    }
    free(order);
    return kept;
}

static double sigmoid(double v) {
    return 1 / (1 + exp(-v));
}

/* y = f(a, b), b repeated over items and, with one channel, over channels. */
static void pairwise(ref_map a, ref_map b, ref_map y, double (*f)(double, double)) {
    for (int n = 0; n < a.n; n++)
        for (int i = 0; i < a.h * a.w; i++)
            for (int c = 0; c < a.c; c++) {
                size_t at = ((size_t)n * a.h * a.w + i) * a.c + c;
                size_t other = ((size_t)(b.n == 1 ? 0 : n) * a.h * a.w + i) * b.c + (b.c == 1 ? 0 : c);
                y.v[at] = (float)f(a.v[at], b.v[other]);
            }
}

static double init_of(double a, double b) {
    return sigmoid(a + b);
}

static double refine_of(double a, double r) {
    r = r < 0 ? 0 : r > 1 ? 1 : r;
    return sigmoid(a + log(fmax(r, 1e-5) / fmax(1 - r, 1e-5)));
}

static double sum_of(double a, double b) {
    return a + b;
}

void ref_box_init(ref_map a, ref_map b, ref_map y) {
    pairwise(a, b, y, init_of);
}
void ref_box_refine(ref_map a, ref_map b, ref_map y) {
    pairwise(a, b, y, refine_of);
}
void ref_add_quality(ref_map logits, ref_map quality, ref_map y) {
    pairwise(logits, quality, y, sum_of);
}

enum { BINS = 33 };

static void softmax33(const float *c, double *p) {
    double m = -INFINITY, s = 0;
    for (int i = 0; i < BINS; i++) m = fmax(m, c[i]);
    for (int i = 0; i < BINS; i++) s += p[i] = exp(c[i] - m);
    for (int i = 0; i < BINS; i++) p[i] /= s;
}

void ref_fdr(ref_map a, ref_map previous, ref_map ref_init, const float *project, double scale, ref_map corners,
             ref_map box) {
    for (int i = 0; i < a.n * a.h * a.w; i++) {
        double d[4] = {0};
        for (int s = 0; s < 4; s++) {
            float *c = corners.v + ((size_t)i * 4 + s) * BINS;
            double p[BINS];
            for (int k = 0; k < BINS; k++) {
                size_t at = ((size_t)i * 4 + s) * BINS + k;
                c[k] = a.v[at] + (previous.v ? previous.v[at] : 0.0f);
            }
            softmax33(c, p);
            for (int k = 0; k < BINS; k++) d[s] += p[k] * project[k];
        }
        const float *r = ref_init.v + (size_t)i * 4;
        double x0 = r[0] - (scale / 2 + d[0]) * r[2] / scale, y0 = r[1] - (scale / 2 + d[1]) * r[3] / scale;
        double x1 = r[0] + (scale / 2 + d[2]) * r[2] / scale, y1 = r[1] + (scale / 2 + d[3]) * r[3] / scale;
        float *o = box.v + (size_t)i * 4;
        o[0] = (float)((x0 + x1) / 2), o[1] = (float)((y0 + y1) / 2);
        o[2] = (float)(x1 - x0), o[3] = (float)(y1 - y0);
    }
}

void ref_lqe(ref_map corners, ref_map y) {
    for (int i = 0; i < corners.n * corners.h * corners.w * 4; i++) {
        double p[BINS], mean = 0;
        softmax33(corners.v + (size_t)i * BINS, p);
        for (int k = 0; k < 4; k++) {
            int best = 0;
            for (int j = 1; j < BINS; j++)
                if (p[j] > p[best]) best = j;
            mean += p[best] / 4;
            y.v[(size_t)i * 5 + k] = (float)p[best];
            p[best] = -1;
        }
        y.v[(size_t)i * 5 + 4] = (float)mean;
    }
}

/* ---- resampling ---- */

/* One output sample of Pillow's triangle filter over a line of n_in samples `step` bytes apart. */
static unsigned char resampled(const unsigned char *in, size_t step, int n_in, int n_out, int o) {
    double scale = (double)n_in / n_out, f = scale > 1 ? scale : 1, centre = (o + 0.5) * scale, sum = 0;
    int lo = (int)(centre - f + 0.5), hi = (int)(centre + f + 0.5), total = 1 << 21;
    if (lo < 0) lo = 0;
    if (hi > n_in) hi = n_in;
    for (int pass = 0; pass < 2; pass++)
        for (int i = lo; i < hi; i++) {
            double t = fabs((i - centre + 0.5) * (1 / f)), w = t < 1 ? 1 - t : 0;
            if (pass)
                total += (int)(w / sum * (1 << 22) + 0.5) * in[(size_t)i * step];
            else
                sum += w;
        }
    total >>= 22;
    return (unsigned char)(total > 255 ? 255 : total);
}

/* Each row of [h,w,3] to ow pixels. */
static void resize_rows(const unsigned char *in, int h, int w, unsigned char *out, int ow) {
    for (size_t y = 0; y < (size_t)h; y++)
        for (size_t x = 0; x < (size_t)ow; x++)
            for (size_t c = 0; c < 3; c++)
                out[(y * (size_t)ow + x) * 3 + c] =
                    w == ow ? in[(y * (size_t)w + x) * 3 + c] : resampled(in + y * (size_t)w * 3 + c, 3, w, ow, (int)x);
}

/* Each column of [h,w,3] to oh pixels. */
static void resize_columns(const unsigned char *in, int h, int w, unsigned char *out, int oh) {
    size_t row = (size_t)w * 3;
    for (size_t y = 0; y < (size_t)oh; y++)
        for (size_t x = 0; x < row; x++)
            out[y * row + x] = h == oh ? in[y * row + x] : resampled(in + x, row, h, oh, (int)y);
}

void ref_resize(const unsigned char *in, int h, int w, unsigned char *out, int oh, int ow) {
    unsigned char *mid = malloc((size_t)h * (size_t)ow * 3);
    resize_rows(in, h, w, mid, ow);
    resize_columns(mid, h, ow, out, oh);
    free(mid);
}

void ref_resize_vertical_first(const unsigned char *in, int h, int w, unsigned char *out, int oh, int ow) {
    unsigned char *mid = malloc((size_t)oh * (size_t)w * 3);
    resize_columns(in, h, w, mid, oh);
    resize_rows(mid, oh, w, out, ow);
    free(mid);
}

/* ---- masks ---- */

/* Separate statements in float: no contraction beyond the fmaf that PyTorch's CPU build performs. */
static float source(int d, int n_in, int n_out) {
    volatile float scale = (float)n_in / (float)n_out, p = scale * ((float)d + 0.5f);
    float s = p - 0.5f;
    return s < 0 ? 0 : s;
}

static void bilinear(const float *in, int ld, int h, int w, float *out, int oh, int ow) {
    for (int y = 0; y < oh; y++)
        for (int x = 0; x < ow; x++) {
            float sy = source(y, h, oh), sx = source(x, w, ow);
            int y0 = (int)sy < h - 1 ? (int)sy : h - 1, x0 = (int)sx < w - 1 ? (int)sx : w - 1;
            int y1 = y0 + 1 < h ? y0 + 1 : y0, x1 = x0 + 1 < w ? x0 + 1 : x0;
            float ty = fminf(sy - (float)y0, 1), tx = fminf(sx - (float)x0, 1);
            const float *a = in + (size_t)y0 * ld, *b = in + (size_t)y1 * ld;
            volatile float ha = a[x1] * tx, hb = b[x1] * tx;
            float top = fmaf(a[x0], 1 - tx, ha), low = fmaf(b[x0], 1 - tx, hb);
            volatile float v = low * ty;
            out[(size_t)y * ow + x] = fmaf(top, 1 - ty, v);
        }
}

void ref_upsample(const float *low, int size, int w, int h, float *out, int width, int height) {
    int side = 4 * size;
    float *map = malloc(sizeof *map * (size_t)side * (size_t)side);
    bilinear(low, size, size, size, map, side, side);
    bilinear(map, side, h, w, out, height, width);
    free(map);
}

/* ---- assignment ---- */

/* Shortest augmenting paths in double, rows <= cols, cost (r, c) at r * sr + c * sc (Crouse 2016). */
static bool solve(const float *cost, int rows, int cols, int sr, int sc, int *col_of) {
    double *u = calloc((size_t)rows, sizeof *u), *v = calloc((size_t)cols, sizeof *v);
    double *dist = malloc((size_t)cols * sizeof *dist);
    int *row_of = malloc((size_t)cols * sizeof *row_of), *from = malloc((size_t)cols * sizeof *from);
    unsigned char *done = malloc((size_t)cols);
    bool ok = true;
    for (int c = 0; c < cols; c++) row_of[c] = -1;
    for (int s = 0; s < rows && ok; s++) {
        int r = s, sink = -1;
        double least = 0;
        for (int c = 0; c < cols; c++) dist[c] = INFINITY, done[c] = 0, from[c] = -1;
        while (sink < 0) {
            int best = -1;
            for (int c = 0; c < cols; c++) {
                if (done[c]) continue;
                double d = least + cost[(size_t)r * sr + (size_t)c * sc] - u[r] - v[c];
                if (d < dist[c]) dist[c] = d, from[c] = r;
                if (dist[c] < INFINITY &&
                    (best < 0 || dist[c] < dist[best] || (dist[c] == dist[best] && row_of[c] < 0 && row_of[best] >= 0)))
                    best = c;
            }
            if (best < 0) break;
            least = dist[best];
            done[best] = 1;
            if (row_of[best] < 0)
                sink = best;
            else
                r = row_of[best];
        }
        if (!(ok = sink >= 0)) break;
        u[s] += least;
        for (int c = 0; c < cols; c++)
            if (done[c] && c != sink) u[row_of[c]] += least - dist[c], v[c] -= least - dist[c];
        for (int c = sink;;) {
            int owner = from[c], next = col_of[owner];
            row_of[c] = owner;
            col_of[owner] = c;
            if (owner == s) break;
            c = next;
        }
    }
    free(u), free(v), free(dist), free(row_of), free(from), free(done);
    return ok;
}

bool ref_assign(const float *cost, int rows, int cols, int ld, int *row_to_col, double *total) {
    bool tall = rows > cols;
    int n = tall ? cols : rows, *col_of = malloc((size_t)(n ? n : 1) * sizeof *col_of);
    for (int i = 0; i < n; i++) col_of[i] = -1;
    bool ok = !n || solve(cost, n, tall ? rows : cols, tall ? 1 : ld, tall ? ld : 1, col_of);
    *total = 0;
    for (int r = 0; r < rows; r++) row_to_col[r] = -1;
    for (int i = 0; i < n && ok; i++) {
        int r = tall ? col_of[i] : i, c = tall ? i : col_of[i];
        row_to_col[r] = c;
        *total += cost[(size_t)r * ld + c];
    }
    free(col_of);
    return ok;
}

double ref_iou(const float a[4], const float b[4]) {
    double w = fmin(a[2], b[2]) - fmax(a[0], b[0]), h = fmin(a[3], b[3]) - fmax(a[1], b[1]);
    double inside = w > 0 && h > 0 ? w * h : 0;
    double all = fmax(a[2] - a[0], 0) * fmax(a[3] - a[1], 0) + fmax(b[2] - b[0], 0) * fmax(b[3] - b[1], 0) - inside;
    return inside > 0 ? inside / all : 0;
}
