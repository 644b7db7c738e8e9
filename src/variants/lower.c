/* Lowering: see lower.h. */
#include "variants/lowering.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- units of branches that run beside each other ---- */

/* Where launches of one branch fill all units one after the other, each of the other's presumably waits for one to end.
 * Chosen for a part of the units, those of the second made frames faster, but not where the first is so short that it
 * ends long before (measured with detectors of different sizes: perf/notes/gpu_two_networks.md). */
static double side_share(const ist_plan *p, const ist_graph *g) {
    enum { MANY_UNITS = 64 };
    const double part = 0.75, short_branch = 0.2;
    double work[3] = {0};
    if (!ist_plan_overlaps(p) || ist_plan_units(p) < MANY_UNITS) return 1;
    for (size_t i = 0; i < g->node_count; i++)
        work[g->nodes[i].place.branch] += ist_multiply_adds(g->nodes[i].kind, g->nodes[i].of);
    return work[1] > short_branch * work[2] ? part : 1;
}

static void share_units(ist_lowering *l, int branch) {
    ist_plan_share(l->plan, branch == 2 ? l->side_share : 1);
}

/* ---- choosing spans ---- */

/* An outer span that a variant takes as one leaves nothing to choose within it. */
static void choose_spans(ist_lowering *l) {
    const ist_graph *g = l->graph;
    for (size_t i = 0; i < g->region_count; i++) {
        const ist_graph_region *r = &g->regions[i];
        ist_spanned span = {l, g, r};
        bool within = false;
        for (size_t k = 0; k < i && !within; k++)
            within = l->chosen[k] && !l->chosen[k]->family->by_nodes && g->regions[k].first <= r->first &&
                     r->end <= g->regions[k].end;
        if (within || r->first == r->end) continue;
        ist_plan_reduced(l->plan, g->nodes[r->first].place.reduced);
        share_units(l, g->nodes[r->first].place.branch);
        l->chosen[i] = ist_variant_choose(l->plan, r->kind, &span).variant;
    }
}

/* ---- what belongs to a node beside its launches ---- */

static void enter_branch(ist_lowering *l, int branch) {
    if (branch == l->now.branch) return;
    share_units(l, branch);
    if (branch == 1)
        ist_plan_fork(l->plan);
    else if (branch == 2)
        ist_plan_side(l->plan);
    else
        ist_plan_join(l->plan);
}

static void enter(ist_lowering *l, int i) {
    const ist_node_place *at = &l->graph->nodes[i].place;
    ist_plan *p = l->plan;
    for (; l->now.part < at->part; l->now.part++) ist_plan_unit(p);
    enter_branch(l, at->branch);
    if (at->stage[0]) ist_plan_stage(p, at->stage);
    ist_plan_section(p, at->section);
    ist_plan_limit(p, ist_layout_tensor(l, at->limit));
    ist_plan_reduced(p, at->reduced);
    l->now = *at;
}

/* Names that tests ask for a value by. */
static void tap(ist_lowering *l, int value) {
    const ist_graph *g = l->graph;
    for (size_t i = 0; i < g->tap_count; i++)
        if (g->taps[i].t.buffer == value) ist_plan_tap(l->plan, g->taps[i].name, ist_layout_tensor(l, g->taps[i].t));
}

static void made(ist_lowering *l, ist_tensor value, ist_tensor place) {
    if (ist_plan_status(l->plan) || !ist_has(value)) return;
    ist_value_plan_of(l, value)->place = place;
    tap(l, value.buffer);
}

/* The results of node i, which have their places in `node`. */
static void results_made(ist_lowering *l, int i, const void *node) {
    const ist_node *n = &l->graph->nodes[i];
    for (const ist_field *f = ist_kind_of(n->kind)->fields; f->kind != IST_FIELD_END; f++)
        for (int e = 0; e < f->count && (f->kind == IST_FIELD_OUT || f->kind == IST_FIELD_MADE); e++)
            made(l, *(const ist_tensor *)ist_field_of(n->of, f, e), *(const ist_tensor *)ist_field_of(node, f, e));
}

/* Parts of concatenations go where they belong. */
static void place_parts(ist_lowering *l, int i, void *node) {
    const ist_node *n = &l->graph->nodes[i];
    for (const ist_field *f = ist_kind_of(n->kind)->fields; f->kind != IST_FIELD_END; f++)
        for (int e = 0; e < f->count && f->kind == IST_FIELD_OUT; e++) {
            ist_tensor value = *(const ist_tensor *)ist_field_of(n->of, f, e);
            if (ist_has(value) && ist_value_plan_of(l, value)->concat >= 0)
                *(ist_tensor *)ist_field_at(node, f, e) = ist_layout_place(l, value);
        }
}

/* ---- nodes ---- */

/* Copies the parts that could not be made in place. */
static void concatenate(ist_lowering *l, int i, ist_concat *q) {
    const ist_node *n = &l->graph->nodes[i];
    const ist_concat *of = n->of;
    q->y = ist_layout_place(l, of->y);
    for (int k = 0, at = 0; k < IST_CONCAT_MAX && ist_has(of->x[k]) && !ist_plan_status(l->plan); k++) {
        const ist_value_plan *v = ist_value_plan_of(l, of->x[k]);
        bool in_place = v->concat == i && v->part == k;
        ist_tensor x = q->x[k];
        if (n->kind == IST_NODE_CONCAT_ROWS && !in_place)
            ist_emit(l->plan, IST_NODE_COPY_ROWS,
                     &(ist_copy_rows){.label = q->label, .x = x, .into = q->y, .first = at});
        else if (!in_place)
            ist_emit(l->plan, IST_NODE_COPY, &(ist_copy){.label = q->label, .x = x, .y = ist_slice(q->y, at, x.c)});
        at += n->kind == IST_NODE_CONCAT_ROWS ? x.h * x.w : x.c;
    }
}

static void lower_node(ist_lowering *l, int i) {
    const ist_node *n = &l->graph->nodes[i];
    ist_loaded loaded;
    if (ist_plan_status(l->plan)) return;
    enter(l, i);
    l->nodes[i].first = ist_plan_describe(l->plan).launches;
    if (ist_load(l, i, &loaded)) {
        ist_repeats_before(l, i, loaded.node);
        place_parts(l, i, loaded.node);
        if (n->kind == IST_NODE_CONCAT || n->kind == IST_NODE_CONCAT_ROWS)
            concatenate(l, i, loaded.node);
        else
            ist_emit(l->plan, n->kind, loaded.node);
        results_made(l, i, loaded.node);
        ist_repeats_behind(l, i, loaded.node);
    }
    ist_span_release(&loaded);
    l->nodes[i].end = ist_plan_describe(l->plan).launches;
}

/* ---- spans ---- */

static void lower_span(ist_lowering *l, size_t region) {
    const ist_graph_region *r = &l->graph->regions[region];
    const ist_variant *v = l->chosen[region];
    ist_spanned span = {l, l->graph, r};
    if (!v) {
        ist_plan_fail(l->plan, IST_E_UNSUPPORTED, "%s: no variant for a %s", r->label, ist_kind_of(r->kind)->name);
        return;
    }
    if (!v->family->by_nodes) ist_repeats_all(l, r->first, r->end);
    ist_plan_section(l->plan, l->graph->nodes[r->first].place.section);
    ist_origin outer = ist_plan_origin(l->plan, ist_variant_origin(v));
    l->spans[region].first = ist_plan_describe(l->plan).launches;
    v->family->emit(l->plan, v, &span, 1);
    l->spans[region].end = ist_plan_describe(l->plan).launches;
    ist_plan_origin(l->plan, outer);
}

static void lower_range(ist_lowering *l, int first, int end) {
    const ist_graph *g = l->graph;
    for (int i = first; i < end && !ist_plan_status(l->plan);) {
        size_t r = l->region;
        const bool span = r < g->region_count && g->regions[r].first == i;
        if (!ist_plan_sequence(l->plan)) /* of which all weights lie together */
            ist_plan_part(l->plan, span ? (int)(g->node_count + r) : i);
        if (span) {
            l->region++;
            lower_span(l, r);
            i = g->regions[r].end;
            while (l->region < g->region_count && g->regions[l->region].first < i) l->region++;
        } else {
            lower_node(l, i++);
        }
    }
}

void ist_span_nodes(const ist_spanned *s, int first, int end) {
    ist_lowering *l = s->lowering;
    while (l->region < s->graph->region_count && s->graph->regions[l->region].first < first) l->region++;
    lower_range(l, first, end);
}

void ist_span_lower(const ist_spanned *s, int i) {
    lower_node(s->lowering, i);
}

void ist_span_enter(const ist_spanned *s, int i) {
    enter(s->lowering, i);
}

ist_tensor ist_span_tensor(const ist_spanned *s, ist_tensor t) {
    return ist_layout_tensor(s->lowering, t);
}

ist_tensor ist_span_place(const ist_spanned *s, ist_tensor t) {
    return ist_layout_place(s->lowering, t);
}

void ist_span_made(const ist_spanned *s, ist_tensor t, ist_tensor place) {
    made(s->lowering, t, place);
}

const void *ist_span_load(const ist_spanned *s, int i, ist_loaded *loaded) {
    return ist_load(s->lowering, i, loaded);
}

/* ---- all of it ---- */

void ist_lowering_close(ist_lowering **lowering) {
    if (!lowering || !*lowering) return;
    ist_lowering *l = *lowering;
    for (size_t i = 0; l->values && i < l->graph->value_count; i++) free(l->values[i].means);
    free(l->values);
    free(l->nodes);
    free(l->spans);
    free(l->chosen);
    free(l);
    *lowering = NULL;
}

static bool open_lowering(ist_plan *p, const ist_graph *g, const ist_tensor *inputs, ist_lowering **lowering) {
    ist_lowering *l = *lowering = calloc(1, sizeof *l);
    if (l) {
        *l = (ist_lowering){.plan = p, .graph = g, .inputs = inputs};
        l->values = calloc(g->value_count + 1, sizeof *l->values);
        l->nodes = calloc(g->node_count + 1, sizeof *l->nodes);
        l->spans = calloc(g->region_count + 1, sizeof *l->spans);
        l->chosen = calloc(g->region_count + 1, sizeof *l->chosen);
    }
    if (l && l->values && l->nodes && l->spans && l->chosen) return true;
    ist_plan_fail(p, IST_E_MEMORY, "out of host memory for a graph of %zu nodes", g->node_count);
    ist_lowering_close(lowering);
    return false;
}

void ist_lower(ist_plan *p, const ist_graph *g, const ist_tensor *inputs, ist_lowering **lowering) {
    *lowering = NULL;
    if (ist_graph_failed(g)) ist_plan_fail(p, g->error.code, "%s", g->error.text);
    if (ist_plan_status(p) || !open_lowering(p, g, inputs, lowering)) return;
    ist_lowering *l = *lowering;
    l->side_share = side_share(p, g);
    choose_spans(l);
    share_units(l, 0);
    ist_layout(l);
    lower_range(l, 0, (int)g->node_count);
    if (l->now.branch) ist_plan_join(p);
    share_units(l, 0);
    ist_plan_limit(p, (ist_tensor){0});
    ist_plan_section(p, 0);
    ist_plan_reduced(p, false);
    l->inputs = NULL;
}

ist_tensor ist_lowered(const ist_lowering *l, ist_tensor t) {
    ist_tensor none = {0};
    if (!l || !ist_has(t) || ist_plan_status(l->plan) || !ist_has(ist_value_plan_of(l, t)->place)) return none;
    return ist_layout_tensor((ist_lowering *)l, t); /* which has a place: nothing changes */
}

/* ---- what became of it ---- */

int ist_lowering_describe(const ist_lowering *l, int node, int region, char *text, size_t size) {
    const ist_node_plan *at = region >= 0 ? &l->spans[region] : &l->nodes[node];
    size_t used = 0;
    text[0] = 0;
    for (int i = at->first; i < at->end; i++) {
        const char *name = ist_plan_launch_at(l->plan, i)->from.variant;
        bool seen = !name;
        for (int k = at->first; k < i && !seen; k++) {
            const char *other = ist_plan_launch_at(l->plan, k)->from.variant;
            seen = other && !strcmp(other, name);
        }
        if (seen || used >= size) continue;
        int n = snprintf(text + used, size - used, "%s%s", used ? " + " : "", name);
        used += n > 0 ? (size_t)n : 0;
    }
    return at->end - at->first;
}
