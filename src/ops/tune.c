/* Problems of the convolution family, written down and recorded alone: see tune.h. */
#include "ops/tune.h"

#include "ops/conv_rows.h"
#include "ops/dwconv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the text holds. `odd`: a tensor's pixels or channels do not start at multiples of eight elements, which some
 * rows read in another way. */
typedef struct shape {
    int n, h, w, c, out, kh, kw, stride, top, left, bottom, right, act, x32, y32, odd, half;
} shape;

#define FORMAT "n%dh%dw%dc%do%dk%dx%ds%dp%d,%d,%d,%da%dx%dy%du%df%d"

static bool odd(ist_tensor t) {
    return ist_has(t) && (t.ld % 8 || t.c0 % 8);
}

ist_tune_shape ist_tune_shape_of(const ist_plan *p, ist_tensor x, ist_tensor y, ist_filter f, const ist_conv_opts *o) {
    ist_tune_shape s;
    bool half = ist_plan_half(p);
    snprintf(s.text, sizeof s.text, FORMAT, x.n, x.h, x.w, x.c, f.out, f.kh, f.kw, o->stride ? o->stride : 1, o->top,
             o->left, o->bottom, o->right, (int)o->epi.act, half && x.elem == IST_ELEM_F32,
             half && y.elem == IST_ELEM_F32, half && (odd(x) || odd(y)), half);
    return s;
}

static bool parse(const ist_plan *p, const char *text, shape *s) {
    enum { MOST = 1 << 14 };
    int used = 0;
    int n = sscanf(text, FORMAT "%n", &s->n, &s->h, &s->w, &s->c, &s->out, &s->kh, &s->kw, &s->stride, &s->top,
                   &s->left, &s->bottom, &s->right, &s->act, &s->x32, &s->y32, &s->odd, &s->half, &used);
    if (n != 17 || (size_t)used != strlen(text) || s->half != ist_plan_half(p)) return false;
    const int least_one[] = {s->n, s->h, s->w, s->c, s->out, s->kh, s->kw, s->stride};
    for (size_t i = 0; i < sizeof least_one / sizeof *least_one; i++)
        if (least_one[i] < 1 || least_one[i] > MOST) return false;
    const int small[] = {s->top, s->left, s->bottom, s->right};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        if (small[i] < 0 || small[i] >= (i % 2 ? s->kw : s->kh)) return false;
    return s->act >= IST_ACT_NONE && s->act <= IST_ACT_SIGMOID && s->h + s->top + s->bottom >= s->kh &&
           s->w + s->left + s->right >= s->kw;
}

static bool is_conv(const char *family) {
    return !strcmp(family, IST_TUNE_CONV);
}

bool ist_tune_known(const ist_plan *p, const char *family, const char *text) {
    shape s;
    return (is_conv(family) || !strcmp(family, IST_TUNE_DWCONV)) && parse(p, text, &s);
}

static int outputs(int in, int before, int after, int k, int stride) {
    return (in + before + after - k) / stride + 1;
}

static ist_conv_opts options_of(const shape *s) {
    return (ist_conv_opts){.stride = s->stride,
                           .top = s->top,
                           .left = s->left,
                           .bottom = s->bottom,
                           .right = s->right,
                           .epi.act = (ist_act)s->act};
}

/* ---- ways ---- */

static int add(ist_tune_way *ways, int count, int capacity, const char *row, int param) {
    for (int i = 0; i < count; i++)
        if (ways[i].param == param && !strcmp(ways[i].row, row)) return count;
    if (count < capacity) ways[count++] = (ist_tune_way){row, param};
    return count;
}

static int conv_ways(ist_plan *p, const shape *s, ist_tune_way *ways, int capacity) {
    ist_conv_opts o = options_of(s);
    ist_tensor x = {.buffer = 1, .n = s->n, .h = s->h, .w = s->w, .c = s->c, .ld = s->c + 4 * s->odd, .c0 = 4 * s->odd};
    x.elem = s->x32 ? IST_ELEM_F32 : IST_ELEM_T;
    ist_conv_problem q = {.x = x,
                          .f = {.out = s->out, .in = s->c, .kh = s->kh, .kw = s->kw},
                          .o = &o,
                          .label = "tune",
                          .taps = s->kh * s->kw,
                          .oh = outputs(s->h, s->top, s->bottom, s->kh, s->stride),
                          .ow = outputs(s->w, s->left, s->right, s->kw, s->stride)};
    ist_conv_choice first = ist_conv_choose(p, &q);
    if (!first.row) return 0;
    const ist_conv_row *portable = first.row;
    for (int i = 0; i < ist_conv_row_count(); i++)
        if (ist_conv_row_takes(p, ist_conv_row_at(i), &q) && ist_conv_row_at(i)->family == IST_CONV_PANELS)
            portable = ist_conv_row_at(i);
    int count = add(ways, 0, capacity, first.row->name, first.splits);
    bool panels = first.row->family == IST_CONV_PANELS;
    double most = 2 * ist_conv_cost(p, first, &q); /* what is held for twice as slow is not worth measuring */
    for (int i = 0; i < ist_conv_row_count(); i++) {
        const ist_conv_row *r = ist_conv_row_at(i);
        if (!ist_conv_row_takes(p, r, &q) || (r->family == IST_CONV_PANELS) != panels || r == portable) continue;
        int splits = ist_conv_most_splits(r, &q);
        for (int n = 1; n <= splits; n *= 2)
            if (ist_conv_cost(p, (ist_conv_choice){r, n}, &q) <= most)
                count = add(ways, count, capacity - 1, r->name, n);
    }
    return add(ways, count, capacity, portable->name, 1);
}

static int dwconv_ways(ist_plan *p, ist_tune_way *ways, int capacity) {
    int count = 0;
    for (int i = 0; i < IST_DWCONV_ROWS; i++)
        if (ist_dwconv_row_runs(p, (ist_dwconv_row)i))
            count = add(ways, count, capacity, ist_dwconv_row_name((ist_dwconv_row)i), 1);
    return count;
}

int ist_tune_ways(ist_plan *p, const char *family, const char *text, ist_tune_way *ways, int capacity) {
    shape s;
    if (!parse(p, text, &s)) return 0;
    return is_conv(family) ? conv_ways(p, &s, ways, capacity) : dwconv_ways(p, ways, capacity);
}

/* ---- recording ---- */

/* Uniform in [-1, 1): the high bits of a linear congruence (Numerical Recipes). */
static float next_random(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * (2.0f / 16777216.0f) - 1.0f;
}

static double flops_of(const shape *s, bool conv) {
    double oh = outputs(s->h, s->top, s->bottom, s->kh, s->stride);
    double ow = outputs(s->w, s->left, s->right, s->kw, s->stride);
    return 2.0 * s->n * oh * ow * s->kh * s->kw * s->out * (conv ? s->c : 1);
}

/* Fewer lines, so that the slowest row has a chance; at least two lines of results. */
static void shorten(shape *s, bool conv, double most_flops) {
    while (flops_of(s, conv) > most_flops && s->h > s->kh + s->stride + 1) {
        int less = s->h / 2;
        s->h = less > s->kh + s->stride + 1 ? less : s->kh + s->stride + 1;
    }
}

static ist_tensor record(ist_plan *p, bool conv, const shape *s, ist_tune_way way, ist_tensor x, ist_filter f) {
    ist_conv_opts o = options_of(s);
    ist_tensor none = {0};
    int oh = outputs(s->h, s->top, s->bottom, s->kh, s->stride),
        ow = outputs(s->w, s->left, s->right, s->kw, s->stride);
    if (s->y32) o.into = ist_plan_tensor(p, s->n, oh, ow, s->out, IST_ELEM_F32);
    for (int i = 0; conv && i < ist_conv_row_count(); i++)
        if (!strcmp(ist_conv_row_at(i)->name, way.row))
            return ist_op_conv_row(p, x, f, &o, (ist_conv_choice){ist_conv_row_at(i), way.param}, "tune");
    for (int i = 0; !conv && i < IST_DWCONV_ROWS; i++)
        if (!strcmp(ist_dwconv_row_name((ist_dwconv_row)i), way.row))
            return ist_op_dwconv_row(p, x, f, &o, (ist_dwconv_row)i, "tune");
    ist_plan_fail(p, IST_E_ARGUMENT, "tune: there is no row %s", way.row);
    return none;
}

void ist_tune_record(ist_plan *p, const char *family, const char *text, ist_tune_way way, double most_flops,
                     ist_tensor *x, ist_tensor *y) {
    shape s;
    bool conv = is_conv(family);
    *x = *y = (ist_tensor){0};
    if (!parse(p, text, &s)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "tune: \"%s\" is no problem", text);
        return;
    }
    shorten(&s, conv, most_flops);
    int in = conv ? s.c : 1;
    size_t count = (size_t)s.out * (size_t)in * (size_t)(s.kh * s.kw);
    float *weights = malloc((count + (size_t)s.out) * sizeof *weights);
    if (!weights) {
        ist_plan_fail(p, IST_E_MEMORY, "tune: out of host memory for %zu weights", count);
        return;
    }
    unsigned state = 1;
    float scale = 1.0f / sqrtf((float)(in * s.kh * s.kw));
    for (size_t i = 0; i < count + (size_t)s.out; i++) weights[i] = scale * next_random(&state);
    ist_filter f = {.out = s.out, .in = in, .kh = s.kh, .kw = s.kw, .w = weights, .b = weights + count};
    *x = ist_plan_input(p, s.n, s.h, s.w, s.c + 4 * s.odd, s.x32 ? IST_ELEM_F32 : IST_ELEM_T);
    *y = record(p, conv, &s, way, ist_slice(*x, 4 * s.odd, s.c), f);
    free(weights);
}
