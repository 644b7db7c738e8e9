/* A stage of HGNetv2's small sizes and the downsampling behind it as one launch on matrix instructions, which replaces
 * five or six and their maps: the first (cl/nvidia/stage) or the second (cl/nvidia/stage_wide). */
#include "variants/nvidia/stage.h"

#include "base/mem.h"
#include "variants/fragments.h"
#include "variants/defines.h"
#include "variants/span.h"

#include <stdlib.h>
#include <string.h>

enum { DEEP = 3, LAYERS = DEEP + 2 };
enum { ITEMS = 256, INPUTS = 32, OUTPUTS = 8, SCALES = 12, TAPS = 9 };

/* 191 KiB of local memory in the second, as the probe of warpgroups asks for. */
const ist_stage_kernel ist_stage_first = {{16, 16, 32, 64}, "nvidia/stage", 5, 1, 4, false};
const ist_stage_kernel ist_stage_second = {{64, 32, 128, 256}, "nvidia/stage_wide", 4, 2, 1, true};

/* ---- which stages ---- */

/* One block: three 3x3 layers, each reading the one before, 1x1 layers on them and the input side by side, and the
 * depthwise convolution behind. */
enum { CONCAT = DEEP, MIX, OUT, DOWN, NODES };

static bool filter_is(const ist_filter *f, int out, int in, int k) {
    return f->out == out && f->in == in && f->kh == k && f->kw == k;
}

/* relu and perhaps LAB. */
static bool is_layer(const ist_conv *q, int out, int in, int k, ist_tensor x) {
    const ist_conv_opts *o = &q->o;
    int pad = k / 2;
    bool own = !ist_has(o->epi.add_before) && !ist_has(o->epi.add_after) && o->epi.act == IST_ACT_RELU;
    return filter_is(&q->filter, out, in, k) && own && q->x.buffer == x.buffer && o->stride <= 1 && o->top == pad &&
           o->left == pad && o->bottom == pad && o->right == pad;
}

static bool is_down(const ist_conv *q, int c, ist_tensor x) {
    const ist_conv_opts *o = &q->o;
    return filter_is(&q->filter, c, 1, 3) && q->x.buffer == x.buffer && o->stride == 2 && o->top == 1 && o->left == 1 &&
           o->bottom == 1 && o->right == 1 && o->epi.act == IST_ACT_NONE && !o->epi.has_lab;
}

static int tiles_of(const ist_stage_kernel *k, int side) {
    return ist_div_up(ist_div_up(side, 2), k->tile);
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_stage_kernel *k = v->config;
    const ist_spanned *s = node;
    int first = s->region->first;
    const ist_conv *layer[NODES] = {0};
    const ist_concat *cat = ist_span_node(s, first + CONCAT, IST_NODE_CONCAT);
    if (s->region->end - first != NODES || !cat) return false;
    for (int i = 0; i < NODES; i++)
        if (i != CONCAT && !(layer[i] = ist_span_node(s, first + i, i == DOWN ? IST_NODE_DWCONV : IST_NODE_CONV)))
            return false;
    ist_stage_shape c = k->shape;
    ist_tensor x = layer[0]->x;
    bool fits = x.c == c.in && cat->x[0].buffer == x.buffer && !ist_has(cat->x[LAYERS - 1]);
    for (int i = 0; i < DEEP && fits; i++)
        fits = is_layer(layer[i], c.deep, i ? c.deep : c.in, 3, i ? layer[i - 1]->y : x) &&
               cat->x[1 + i].buffer == layer[i]->y.buffer;
    fits = fits && is_layer(layer[MIX], c.mix, c.in + DEEP * c.deep, 1, cat->y) &&
           is_layer(layer[OUT], c.out, c.mix, 1, layer[MIX]->y) && is_down(layer[DOWN], c.out, layer[OUT]->y);
    for (int i = 0; i < DOWN && fits; i++) {
        int value = i == CONCAT ? cat->y.buffer : layer[i]->y.buffer;
        fits = (i == OUT && k->whole) || !ist_graph_leaves(s->graph, value, first, s->region->end);
    }
    return fits && (double)x.n * tiles_of(k, x.h) * tiles_of(k, x.w) <= (double)k->groups_of_unit * ist_plan_units(p);
}

/* ---- weights ---- */

/* Appends fragments of a layer, [out][part][tap][in / parts], each part rounded up to whole steps. `room` has place for
 * all rows of one part. */
static float *pack_layer(const ist_filter *f, int parts, float *room, float *to) {
    int taps = f->kh * f->kw, own = f->in / parts, inputs = ist_div_up(own * taps, INPUTS) * INPUTS;
    for (int part = 0; part < parts; part++) {
        memset(room, 0, (size_t)inputs * (size_t)f->out * sizeof *room);
        for (int o = 0; o < f->out; o++)
            for (int i = 0; i < own; i++)
                for (int t = 0; t < taps; t++)
                    room[o * inputs + t * own + i] = f->w[(o * f->in + part * own + i) * taps + t];
        for (int k = 0; k < inputs; k += INPUTS)
            to = ist_fragments(room + k, f->out / OUTPUTS, 1, (size_t)inputs, false, to);
    }
    return to;
}

/* No layer has more weights than this, filled up. */
static size_t most_weights(const ist_filter *f) {
    return ((size_t)f->in * (size_t)f->kh * (size_t)f->kw + 2 * INPUTS) * (size_t)f->out;
}

static void pack_constants(const ist_stem_layer layers[LAYERS], const ist_filter *down, float *to) {
    float *bias = to + SCALES;
    for (int i = 0; i < LAYERS; i++) {
        const ist_stem_layer *l = &layers[i];
        to[2 * i] = l->lab_scale;
        to[2 * i + 1] = l->lab_bias;
        if (l->f.b) memcpy(bias, l->f.b, (size_t)l->f.out * sizeof *bias);
        bias += l->f.out;
    }
    for (int o = 0; o < down->out; o++) {
        for (int t = 0; t < TAPS; t++) bias[t * down->out + o] = down->w[o * TAPS + t];
        if (down->b) bias[TAPS * down->out + o] = down->b[o];
    }
}

typedef struct packed {
    ist_tensor weights, constants;
} packed;

static bool pack(ist_plan *p, const ist_stage_kernel *k, const ist_stem_layer layers[LAYERS], const ist_filter *down,
                 const char *label, packed *c) {
    ist_stage_shape s = k->shape;
    int count = SCALES + DEEP * s.deep + s.mix + s.out + (TAPS + 1) * s.out;
    size_t most = 0, all = 0;
    for (int i = 0; i < LAYERS; i++) {
        size_t own = most_weights(&layers[i].f);
        all += own;
        most = own > most ? own : most;
    }
    float *w = malloc(all * sizeof *w), *to = w, *room = malloc(most * sizeof *room);
    float *constants = calloc((size_t)count, sizeof *constants);
    if (w && room && constants) {
        for (int i = 0; i < LAYERS; i++) to = pack_layer(&layers[i].f, i < DEEP ? k->parts : 1, room, to);
        pack_constants(layers, down, constants);
        c->weights = ist_plan_const(p, w, 1, 1, 1, (int)(to - w), IST_ELEM_T, label);
        c->constants = ist_plan_const(p, constants, 1, 1, 1, count, IST_ELEM_F32, label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, all);
    }
    free(w);
    free(room);
    free(constants);
    return !ist_plan_status(p);
}

/* ---- launch ---- */

static double flops_of(ist_stage_shape s, ist_tensor x, ist_tensor y) {
    double deep = (double)TAPS * s.deep * (s.in + (DEEP - 1) * s.deep);
    return 2.0 * ist_pixels(x) * (deep + (double)(s.in + DEEP * s.deep) * s.mix + (double)s.mix * s.out) +
           2.0 * ist_pixels(y) * TAPS * s.out;
}

static void launch(ist_plan *p, const ist_stage_kernel *k, ist_tensor x, const packed *c, ist_tensor y,
                   ist_tensor whole, const char *label) {
    ist_defines d = ist_defines_of(p, "-DTILE=%d", k->tile);
    int across = tiles_of(k, x.w), own = ist_has(whole) ? whole.ld : 0;
    ist_launch l = {.label = label,
                    .op = k->op,
                    .isa = "nvidia/ptx",
                    .defines = d.text,
                    .kernel = "stage",
                    .dims = 2,
                    .global = {(size_t)across * (size_t)tiles_of(k, x.h) * ITEMS, (size_t)x.n},
                    .local = {ITEMS, 1},
                    .args = {IST_OUT(y), IST_IN(x), IST_IN(c->weights), IST_IN(c->constants),
                             IST_IN(ist_plan_current_limit(p)), IST_INT4(x.h, x.w, x.ld, x.c0),
                             IST_INT8(y.n, y.h, y.w, y.ld, y.c0, across, own, whole.c0), IST_OUT(whole)},
                    .arg_count = k->whole ? 8 : 7,
                    .flops = flops_of(k->shape, x, y),
                    .bytes = 2.0 * ((double)ist_pixels(x) * (x.c + (own ? whole.c : 0)) + (double)ist_pixels(y) * y.c)};
    if ((x.ld | x.c0 | y.ld | y.c0 | own | whole.c0) % 8)
        ist_plan_fail(p, IST_E_STATE, "%s: maps whose pixels do not begin at multiples of eight channels", label);
    ist_plan_launch(p, &l);
}

static ist_stem_layer layer_of(const ist_conv *q) {
    const ist_epilogue *e = &q->o.epi;
    return (ist_stem_layer){q->filter, e->has_lab ? e->lab_scale : 1, e->has_lab ? e->lab_bias : 0};
}

/* The numbers of all nodes, in order, since rounding one takes the means of what it reads. */
static void emit_loaded(ist_plan *p, const ist_stage_kernel *k, const ist_spanned *s, const ist_loaded loaded[NODES]) {
    ist_stem_layer layers[LAYERS];
    packed c;
    const ist_conv *first = loaded[0].node, *down = loaded[DOWN].node, *graph_out, *graph_down;
    graph_out = ist_span_node(s, s->region->first + OUT, IST_NODE_CONV);
    graph_down = ist_span_node(s, s->region->first + DOWN, IST_NODE_DWCONV);
    for (int i = 0; i < DEEP; i++) layers[i] = layer_of(loaded[i].node);
    for (int i = 0; i < LAYERS - DEEP; i++) layers[DEEP + i] = layer_of(loaded[MIX + i].node);
    const char *label = s->region->label;
    if (!ist_plan_representable(p, down->filter.w, (size_t)k->shape.out * TAPS, label) ||
        !pack(p, k, layers, &down->filter, label, &c))
        return;
    ist_tensor whole = {0}, y = ist_span_place(s, graph_down->y);
    bool leaves = ist_graph_leaves(s->graph, graph_out->y.buffer, s->region->first, s->region->end);
    if (leaves) whole = ist_span_place(s, graph_out->y);
    launch(p, k, first->x, &c, y, whole, label);
    ist_span_made(s, graph_down->y, y);
    if (leaves) ist_span_made(s, graph_out->y, whole);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_spanned *s = node;
    ist_loaded loaded[NODES];
    (void)way;
    ist_span_enter(s, s->region->first);
    for (int i = 0; i < NODES; i++) ist_span_load(s, s->region->first + i, &loaded[i]);
    if (!ist_plan_status(p)) emit_loaded(p, v->config, s, loaded);
    for (int i = 0; i < NODES; i++) ist_span_release(&loaded[i]);
}

const ist_family ist_nvidia_stage = {.takes = takes, .emit = emit};
