/* Problems of the convolutions, written down and recorded alone: see tune.h. */
#include "variants/tune.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A convolution as one word: extents, filter, padding, activation, storage. Problems with one text are one problem to
 * every variant. `odd`: a tensor's pixels or channels do not start at multiples of eight elements, which some variants
 * read in another way. */
typedef struct shape {
    int n, h, w, c, out, kh, kw, stride, top, left, bottom, right, act, x32, y32, odd, half;
} shape;

#define FORMAT "n%dh%dw%dc%do%dk%dx%ds%dp%d,%d,%d,%da%dx%dy%du%df%d"

static bool is_tuned_kind(ist_node_kind kind) {
    return kind == IST_NODE_CONV || kind == IST_NODE_DWCONV;
}

static bool kind_of(const char *family, ist_node_kind *kind) {
    *kind = !strcmp(family, ist_kind_of(IST_NODE_CONV)->name) ? IST_NODE_CONV : IST_NODE_DWCONV;
    return !strcmp(family, ist_kind_of(*kind)->name);
}

static bool odd(ist_tensor t) {
    return ist_has(t) && (t.ld % 8 || t.c0 % 8);
}

static void write_shape(const ist_plan *p, const ist_conv *q, char *text, size_t size) {
    const ist_conv_opts *o = &q->o;
    bool half = ist_plan_half(p);
    snprintf(text, size, FORMAT, q->x.n, q->x.h, q->x.w, q->x.c, q->filter.out, q->filter.kh, q->filter.kw,
             o->stride ? o->stride : 1, o->top, o->left, o->bottom, o->right, (int)o->epi.act,
             half && q->x.elem == IST_ELEM_F32, half && q->y.elem == IST_ELEM_F32, half && (odd(q->x) || odd(q->y)),
             half);
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

bool ist_tune_known(const ist_plan *p, const char *family, const char *text) {
    shape s;
    ist_node_kind kind;
    return kind_of(family, &kind) && parse(p, text, &s);
}

/* ---- what a record says ---- */

ist_variant_choice ist_tuned_choice(ist_plan *p, ist_node_kind kind, const void *node) {
    ist_variant_choice none = {NULL, 0};
    char text[sizeof ((ist_tuned *)0)->shape];
    if (!is_tuned_kind(kind) || ist_plan_bf16(p)) return none; /* what was measured are variants in fp32 */
    write_shape(p, node, text, sizeof text);
    const ist_tuned *t = ist_plan_tuned(p, ist_kind_of(kind)->name, text);
    const ist_variant *v = t ? ist_variant_named(kind, t->variant) : NULL;
    if (!v || !ist_variant_takes(p, v, node) || t->param < 1 || t->param > ist_variant_ways(p, v, node)) return none;
    return (ist_variant_choice){v, t->param};
}

/* ---- a problem as a node ---- */

static ist_conv node_of(ist_node_kind kind, const shape *s) {
    ist_conv q = {.label = "tune",
                  .filter = {.out = s->out, .in = kind == IST_NODE_CONV ? s->c : 1, .kh = s->kh, .kw = s->kw},
                  .o = {.stride = s->stride,
                        .top = s->top,
                        .left = s->left,
                        .bottom = s->bottom,
                        .right = s->right,
                        .epi.act = (ist_act)s->act}};
    return q;
}

static int outputs(int in, int before, int after, int k, int stride) {
    return (in + before + after - k) / stride + 1;
}

static ist_tensor result_of(const shape *s) {
    return (ist_tensor){.n = s->n,
                        .h = outputs(s->h, s->top, s->bottom, s->kh, s->stride),
                        .w = outputs(s->w, s->left, s->right, s->kw, s->stride),
                        .c = s->out,
                        .ld = s->out,
                        .elem = s->y32 ? IST_ELEM_F32 : IST_ELEM_T};
}

/* ---- ways ---- */

static int add(ist_tune_way *ways, int count, int capacity, const char *variant, int way) {
    for (int i = 0; i < count; i++)
        if (ways[i].way == way && !strcmp(ways[i].variant, variant)) return count;
    if (count < capacity) ways[count++] = (ist_tune_way){variant, way};
    return count;
}

int ist_tune_ways(ist_plan *p, const char *family, const char *text, ist_tune_way *ways, int capacity) {
    shape s;
    ist_node_kind kind;
    if (!kind_of(family, &kind) || !parse(p, text, &s)) return 0;
    ist_conv q = node_of(kind, &s);
    q.x = (ist_tensor){.buffer = 1, .n = s.n, .h = s.h, .w = s.w, .c = s.c, .ld = s.c + 4 * s.odd, .c0 = 4 * s.odd};
    q.x.elem = s.x32 ? IST_ELEM_F32 : IST_ELEM_T;
    q.y = result_of(&s);
    q.y.buffer = 2;
    ist_variant_choice first = ist_variant_cheapest(p, kind, &q);
    if (!first.variant) return 0;
    int variants, count = add(ways, 0, capacity, first.variant->name, first.way);
    const ist_variant *all = ist_variants_of(kind, &variants), *portable = first.variant;
    double most = 2 * ist_variant_cost(p, first.variant, &q, first.way); /* what is more is not worth measuring */
    for (int i = 0; i < variants; i++)
        if (ist_variant_takes(p, &all[i], &q)) portable = &all[i];
    for (int i = 0; i < variants; i++) {
        const ist_variant *v = &all[i];
        if (v == portable || !ist_variant_takes(p, v, &q)) continue;
        for (int way = 1; way <= ist_variant_ways(p, v, &q); way *= 2)
            if (ist_variant_cost(p, v, &q, way) <= most) count = add(ways, count, capacity - 1, v->name, way);
    }
    return add(ways, count, capacity, portable->name, 1);
}

/* ---- recording ---- */

/* Uniform in [-1, 1): the high bits of a linear congruence (Numerical Recipes). */
static float next_random(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * (2.0f / 16777216.0f) - 1.0f;
}

static double flops_of(const shape *s, int in) {
    ist_tensor y = result_of(s);
    return 2.0 * ist_pixels(y) * s->kh * s->kw * s->out * in;
}

/* Fewer lines, so that the slowest variant has a chance; at least two lines of results. */
static void shorten(shape *s, int in, double most_flops) {
    while (flops_of(s, in) > most_flops && s->h > s->kh + s->stride + 1) {
        int less = s->h / 2;
        s->h = less > s->kh + s->stride + 1 ? less : s->kh + s->stride + 1;
    }
}

void ist_tune_record(ist_plan *p, const char *family, const char *text, ist_tune_way way, double most_flops,
                     ist_tensor *x, ist_tensor *y) {
    shape s;
    ist_node_kind kind;
    *x = *y = (ist_tensor){0};
    if (!kind_of(family, &kind) || !parse(p, text, &s)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "tune: \"%s\" is no problem", text);
        return;
    }
    const ist_variant *v = ist_variant_named(kind, way.variant);
    if (!v) {
        ist_plan_fail(p, IST_E_ARGUMENT, "tune: there is no variant %s", way.variant);
        return;
    }
    ist_conv q = node_of(kind, &s);
    shorten(&s, q.filter.in, most_flops);
    size_t count = (size_t)s.out * (size_t)q.filter.in * (size_t)(s.kh * s.kw);
    float *weights = malloc((count + (size_t)s.out) * sizeof *weights);
    if (!weights) {
        ist_plan_fail(p, IST_E_MEMORY, "tune: out of host memory for %zu weights", count);
        return;
    }
    unsigned state = 1;
    float scale = 1.0f / sqrtf((float)(q.filter.in * s.kh * s.kw));
    for (size_t i = 0; i < count + (size_t)s.out; i++) weights[i] = scale * next_random(&state);
    q.filter.w = weights;
    q.filter.b = weights + count;
    *x = ist_plan_input(p, s.n, s.h, s.w, s.c + 4 * s.odd, s.x32 ? IST_ELEM_F32 : IST_ELEM_T);
    q.x = ist_slice(*x, 4 * s.odd, s.c);
    q.o.exact = s.y32;
    ist_emit_by(p, v, way.way, &q);
    *y = q.y;
    free(weights);
}
