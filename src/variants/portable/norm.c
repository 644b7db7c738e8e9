/* Layer normalisation and D-FINE's gate: 8 to 64 work-items of a group of 64 for each pixel (cl/portable/norm). */
#include "variants/norm.h"
#include "variants/defines.h"
#include "variants/span.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>

enum { GROUP = 64, EPS_GATE_DIGITS = 5 };

/* Grid and options of a normalisation over `x`. */
typedef struct grid {
    size_t global, local;
    bool fetched; /* fours of channels: the kernel whose loads come first */
    ist_defines defines;
} grid;

static bool quads(ist_tensor t) {
    return !ist_has(t) || (t.ld | t.c0) % 4 == 0;
}

/* Work-items per pixel: few for many pixels, so that each has several loads under way; `vectors` per pixel in all. */
static int lanes_of(int pixels, int vectors) {
    int lanes = 8;
    while (lanes < GROUP && (ist_div_up(vectors, lanes) > 8 || (pixels * lanes < 65536 && lanes < vectors))) lanes *= 2;
    return lanes;
}

/* `others`: the tensors beside x that are read or written four channels at a time. */
static grid grid_of(const ist_plan *p, ist_tensor x, const ist_tensor others[3]) {
    bool aligned = quads(x) && quads(others[0]) && quads(others[1]) && quads(others[2]);
    int pixels = x.h * x.w, width = x.c % 4 ? 1 : 4, vectors = x.c / width, lanes = lanes_of(pixels * x.n, vectors);
    grid g = {.local = GROUP, .fetched = aligned && width == 4};
    if (g.fetched)
        for (lanes = 8; lanes < GROUP / 2 && ist_div_up(vectors, lanes) > 8;) lanes *= 2;
    g.global = ist_round_up((size_t)pixels * (size_t)lanes, GROUP);
    g.defines = ist_defines_of(p, "-DLANES=%d -DVW=%d -DPARTS=%d%s", lanes, width, ist_div_up(vectors, lanes),
                               aligned && width == 4 ? " -DALIGNED" : "");
    return g;
}

/* Pixels k of every item that are `value` [1,1,1,c] whatever x says: those with filled[k], I32 [1,1,pixels,1], not 0. */
typedef struct given {
    ist_tensor filled, value;
} given;

/* instead: NULL where x says all. */
static void record(ist_plan *p, const ist_layer_norm *q, const given *instead) {
    ist_tensor x = q->x, add = q->add, out = q->y;
    ist_tensor g = ist_plan_const(p, q->norm.gamma, 1, 1, 1, x.c, IST_ELEM_F32, q->label);
    ist_tensor b = ist_plan_const(p, q->norm.beta, 1, 1, 1, x.c, IST_ELEM_F32, q->label);
    const ist_layernorm_args by_value = ist_layernorm_args_of(q, 1);
    grid at = grid_of(p, x, (ist_tensor[]){add, out, {0}});
    if (at.fetched)
        ist_defines_add(&at.defines, " -DFETCHED -DADD=%d -DACT=%d%s%s", by_value.adds, by_value.act,
                        q->clamp > 0 ? " -DCLAMPED" : "", instead ? " -DFILLED" : "");
    ist_launch l = {
        .label = q->label,
        .op = "portable/norm",
        .isa = at.fetched ? "portable/fetch" : NULL,
        .defines = at.defines.text,
        .kernel = at.fetched ? "layernorm_fetched" : "layernorm",
        .dims = 2,
        .global = {at.global, (size_t)x.n},
        .local = {at.local, 1},
        .args = {IST_OUT(out), IST_IN(x), IST_IN(add), IST_IN(g), IST_IN(b), IST_IN(ist_plan_current_limit(p))},
        .arg_count = 6,
        .bytes = (double)ist_pixels(x) * x.c * (by_value.adds ? 3 : 2) * (ist_plan_half(p) ? 2 : 4)};
    if (instead) {
        l.args[l.arg_count++] = (ist_arg)IST_IN(instead->filled);
        l.args[l.arg_count++] = (ist_arg)IST_IN(instead->value);
    }
    l.args[l.arg_count++] = (ist_arg)IST_STRUCT(layernorm_args, &by_value);
    ist_plan_launch(p, &l);
}

static void emit_norm(ist_plan *p, const ist_variant *v, void *node, int way) {
    (void)v, (void)way;
    record(p, node, NULL);
}

const ist_family ist_portable_norm = {.emit = emit_norm, .rows = IST_REPEATS_POINTS};

/* ---- with pixels filled in front: a span ---- */

static bool takes_filled(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_spanned *s = node;
    const int first = s->region->first;
    (void)p, (void)v;
    if (s->region->end - first != 2) return false;
    const ist_fill_rows *f = ist_span_node(s, first, IST_NODE_FILL_ROWS);
    const ist_layer_norm *l = ist_span_node(s, first + 1, IST_NODE_LAYER_NORM);
    return f && l && l->x.buffer == f->y.buffer && f->x.c % 4 == 0 && quads(f->x) && quads(l->add) &&
           ist_graph_value(s->graph, f->rows)->home == IST_VALUE_CONST &&
           !ist_graph_leaves(s->graph, f->y.buffer, first, s->region->end);
}

static ist_tensor filled_of(ist_plan *p, const int *rows, int count, int pixels, const char *label) {
    int *filled = calloc((size_t)pixels, sizeof *filled);
    ist_tensor made = {0};
    if (!filled) ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for %d pixels", label, pixels);
    for (int i = 0; filled && i < count; i++)
        if (rows[i] >= 0 && rows[i] < pixels) filled[rows[i]] = 1;
    if (filled) made = ist_plan_const(p, filled, 1, 1, pixels, 1, IST_ELEM_I32, label);
    free(filled);
    return made;
}

/* Where tensors do not begin at fours of channels, the two by themselves. */
static void emit_filled(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_spanned *s = node;
    const int first = s->region->first;
    const ist_fill_rows *fill = ist_span_node(s, first, IST_NODE_FILL_ROWS);
    const ist_layer_norm *of = ist_span_node(s, first + 1, IST_NODE_LAYER_NORM);
    ist_loaded loaded[2];
    (void)v, (void)way;
    ist_span_enter(s, first);
    const ist_fill_rows *f = ist_span_load(s, first, &loaded[0]);
    const ist_layer_norm *l = ist_span_load(s, first + 1, &loaded[1]);
    bool apart = false;
    if (f && l && !ist_plan_status(p)) {
        ist_layer_norm own = *l;
        own.x = f->x;
        own.y = ist_span_place(s, of->y);
        apart = !quads(own.x) || !quads(own.add) || !quads(own.y);
        if (!apart) {
            const int *rows = ist_graph_value(s->graph, fill->rows)->data;
            const given instead = {
                filled_of(p, rows, (int)ist_pixels(f->rows), f->x.h * f->x.w, f->label),
                ist_plan_const(p, f->filter.b, 1, 1, 1, f->x.c, IST_ELEM_T, f->label)};
            if (!ist_plan_status(p)) record(p, &own, &instead);
            ist_span_made(s, of->y, own.y);
        }
    }
    for (int i = 0; i < 2; i++) ist_span_release(&loaded[i]);
    if (apart) ist_span_nodes(s, first, s->region->end);
}

const ist_family ist_portable_filled_norm = {.takes = takes_filled, .emit = emit_filled};

static void emit_gate(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_gate *q = node;
    grid at = grid_of(p, q->a, (ist_tensor[]){q->g, q->b, q->y});
    (void)v, (void)way;
    ist_gate_launch(p, q,
                    &(ist_launch){.defines = at.defines.text,
                                  .global = {at.global, (size_t)q->a.n},
                                  .local = {at.local, 1}},
                    1);
}

const ist_family ist_portable_gate = {.emit = emit_gate};
