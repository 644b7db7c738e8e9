/* Where values lie: parts of a concatenation are made in place, and maps between convolutions get channels of zeros where
 * the device's kernels read whole groups of channels. Zeros stay zeros: all activations of such maps are zero of zero. */
#include "variants/lowering.h"

static const ist_value *value_of(const ist_lowering *l, ist_tensor t) {
    return ist_graph_value(l->graph, t);
}

bool ist_layout_spanned(const ist_lowering *l, int node) {
    for (size_t i = 0; i < l->graph->region_count; i++) {
        const ist_graph_region *r = &l->graph->regions[i];
        if (r->first <= node && node < r->end && l->chosen[i] && !l->chosen[i]->family->by_nodes) return true;
    }
    return false;
}

static bool is_concat(const ist_node *n) {
    return n->kind == IST_NODE_CONCAT || n->kind == IST_NODE_CONCAT_ROWS;
}

/* A view of all of its value. */
static bool is_whole(const ist_lowering *l, ist_tensor t) {
    ist_tensor w = value_of(l, t)->whole;
    return t.c0 == 0 && t.ld == w.ld && t.c == w.c && ist_pixels(t) == ist_pixels(w);
}

/* ---- parts of concatenations ---- */

/* Kinds whose kernels write pixels that do not follow each other; those of others make dense tensors. */
static bool writes_slices(ist_node_kind kind) {
    switch (kind) {
    case IST_NODE_CONV:
    case IST_NODE_DWCONV:
    case IST_NODE_MAXPOOL:
    case IST_NODE_LAYER_NORM:
    case IST_NODE_ADD:
    case IST_NODE_COPY:
    case IST_NODE_CLAMP:
    case IST_NODE_CONCAT:
    case IST_NODE_DEFORM:
    case IST_NODE_STEM:
    case IST_NODE_SEPARABLE:
    case IST_NODE_CSP:
    case IST_NODE_FUSE:
        return true;
    default:
        return false;
    }
}

static bool may_be_in_place(const ist_lowering *l, const ist_concat *q, int part) {
    ist_tensor t = q->x[part];
    const ist_value *v = value_of(l, t);
    return v->home == IST_VALUE_MADE && is_whole(l, t) && ist_value_plan_of(l, t)->concat < 0 &&
           v->whole.elem == q->y.elem && writes_slices(l->graph->nodes[v->maker].kind);
}

static void claim_parts(ist_lowering *l, int node) {
    const ist_node *n = &l->graph->nodes[node];
    const ist_concat *q = n->of;
    /* Rows of several items do not lie side by side. */
    if (ist_layout_spanned(l, node) || (n->kind == IST_NODE_CONCAT_ROWS && q->y.n > 1)) return;
    for (int i = 0; i < IST_CONCAT_MAX && ist_has(q->x[i]); i++) {
        if (!may_be_in_place(l, q, i)) continue;
        ist_value_plan *v = ist_value_plan_of(l, q->x[i]);
        v->concat = node;
        v->part = i;
    }
}

/* ---- channels ---- */

static bool is_tapped(const ist_lowering *l, int value) {
    for (size_t i = 0; i < l->graph->tap_count; i++)
        if (l->graph->taps[i].t.buffer == value) return true;
    return value_of(l, (ist_tensor){.buffer = value})->output;
}

/* Whether all who read the value are filters, which can be widened, perhaps behind a concatenation. */
static bool read_by_filters(const ist_lowering *l, int value) {
    const ist_graph *g = l->graph;
    if (is_tapped(l, value)) return false;
    for (size_t i = 0; i < g->node_count; i++) {
        const ist_node *n = &g->nodes[i];
        for (const ist_field *f = ist_kind_of(n->kind)->fields; f->kind != IST_FIELD_END; f++)
            for (int k = 0; k < f->count && f->kind == IST_FIELD_IN; k++) {
                const ist_tensor *t = ist_field_of(n->of, f, k);
                bool is_x = f == &ist_kind_of(n->kind)->fields[1] || n->kind == IST_NODE_CONCAT;
                if (t->buffer != value) continue;
                if (!is_x || !is_whole(l, *t) || ist_layout_spanned(l, (int)i)) return false;
                if (n->kind == IST_NODE_CONCAT && !read_by_filters(l, ((const ist_concat *)n->of)->y.buffer)) return false;
                if (n->kind != IST_NODE_CONCAT && n->kind != IST_NODE_CONV && n->kind != IST_NODE_CSP) return false;
            }
    }
    return true;
}

/* What a concatenation's channels become by those of its parts: one run after the other, behind all that are as they
 * were. False where that is not so. */
static bool join_widenings(const ist_lowering *l, const ist_concat *q, ist_widening *w) {
    int c = 0;
    *w = (ist_widening){0};
    for (int i = 0; i < IST_CONCAT_MAX && ist_has(q->x[i]); i++) {
        ist_widening own = ist_value_plan_of(l, q->x[i])->wide;
        if (!w->wide && own.wide && !own.first)
            *w = (ist_widening){c, own.run, own.wide};
        else if (w->wide && (own.wide != w->wide || own.run != w->run || own.first))
            return false;
        c += q->x[i].c;
    }
    return true;
}

static void widen(ist_lowering *l, int node) {
    const ist_csp *q = l->graph->nodes[node].of;
    int wide = ist_variant_channels(l->plan, IST_NODE_CONV, q->y.c);
    if (wide != q->y.c && !ist_layout_spanned(l, node) && read_by_filters(l, q->y.buffer))
        ist_value_plan_of(l, q->y)->wide = (ist_widening){0, q->y.c, wide};
}

/* Maps whose concatenation cannot have them are not widened. */
static void settle_widening(ist_lowering *l, int node) {
    const ist_concat *q = l->graph->nodes[node].of;
    ist_widening w;
    bool joined = join_widenings(l, q, &w);
    for (int i = 0; i < IST_CONCAT_MAX && ist_has(q->x[i]) && !joined; i++)
        ist_value_plan_of(l, q->x[i])->wide = (ist_widening){0};
    if (joined) ist_value_plan_of(l, q->y)->wide = w;
}

void ist_layout(ist_lowering *l) {
    const ist_graph *g = l->graph;
    for (size_t i = 0; i < g->value_count; i++) l->values[i].concat = -1;
    for (size_t i = 0; i < g->node_count; i++)
        if (is_concat(&g->nodes[i])) claim_parts(l, (int)i);
    for (size_t i = 0; i < g->node_count; i++)
        if (g->nodes[i].kind == IST_NODE_CSP) widen(l, (int)i);
    for (size_t i = 0; i < g->node_count; i++)
        if (g->nodes[i].kind == IST_NODE_CONCAT) settle_widening(l, (int)i);
}

/* ---- places ---- */

static int channels_at(ist_widening w, int c) {
    return c <= w.first ? c : ist_widened(w, c);
}

ist_widening ist_layout_widening(const ist_lowering *l, ist_tensor t) {
    ist_widening w = ist_value_plan_of(l, t)->wide;
    int first = t.c0 % t.ld;
    if (!w.wide || first + t.c <= w.first) return (ist_widening){0};
    w.first = w.first > first ? w.first - first : 0;
    return w;
}

/* Part i of the concatenation in its place. */
static ist_tensor part_of(ist_lowering *l, const ist_node *n, int part) {
    const ist_concat *q = n->of;
    ist_tensor all = ist_layout_place(l, q->y), x = q->x[part];
    int before = 0;
    bool rows = n->kind == IST_NODE_CONCAT_ROWS;
    for (int i = 0; i < part; i++) {
        ist_tensor t = q->x[i];
        before += rows ? t.h * t.w : channels_at(ist_value_plan_of(l, t)->wide, t.c);
    }
    if (rows) return ist_view(ist_rows(all, before, x.h * x.w), 1, x.h, x.w);
    return ist_slice(all, before, channels_at(ist_value_plan_of(l, x)->wide, x.c));
}

ist_tensor ist_layout_place(ist_lowering *l, ist_tensor value) {
    ist_value_plan *v = ist_value_plan_of(l, value);
    ist_tensor w = value_of(l, value)->whole;
    if (ist_plan_status(l->plan)) return (ist_tensor){0};
    if (ist_has(v->place)) return v->place;
    if (v->concat >= 0)
        v->place = part_of(l, &l->graph->nodes[v->concat], v->part);
    else
        v->place = ist_plan_tensor(l->plan, w.n, w.h, w.w, channels_at(v->wide, w.c), w.elem);
    return v->place;
}

/* Values that no node makes. */
static void place_given(ist_lowering *l, ist_tensor t) {
    const ist_value *v = value_of(l, t);
    ist_tensor w = v->whole, *at = &ist_value_plan_of(l, t)->place;
    if (v->home == IST_VALUE_INPUT)
        *at = l->inputs[v->number];
    else if (v->home == IST_VALUE_EXTERNAL)
        *at = ist_plan_external(l->plan, v->number, w.elem);
    else if (v->home == IST_VALUE_CONST)
        *at = ist_plan_const(l->plan, v->data, w.n, w.h, w.w, w.c, w.elem, v->what);
}

ist_tensor ist_layout_tensor(ist_lowering *l, ist_tensor t) {
    ist_tensor none = {0};
    if (!ist_has(t) || ist_plan_status(l->plan)) return none;
    const ist_value_plan *v = ist_value_plan_of(l, t);
    ist_tensor w = value_of(l, t)->whole;
    if (!ist_has(v->place)) place_given(l, t);
    ist_tensor at = v->place;
    if (!ist_has(at) || ist_plan_status(l->plan)) return none;
    if (is_whole(l, t)) return t.n == w.n && t.h == w.h && t.w == w.w ? at : ist_view(at, t.n, t.h, t.w);
    if (t.ld != w.ld) { /* another form of the same numbers */
        if (at.ld != at.c || at.c != w.c)
            ist_plan_fail(l->plan, IST_E_STATE, "a view of rows of %d in rows of %d of %d", t.ld, at.c, at.ld);
        t.buffer = at.buffer;
        t.c0 += at.c0;
        return t;
    }
    int row = t.c0 / w.ld, first = t.c0 % w.ld;
    at = ist_view(at, t.n, t.h, t.w);
    at.c0 += row * at.ld + channels_at(v->wide, first);
    at.c = channels_at(v->wide, first + t.c) - channels_at(v->wide, first);
    return at;
}
