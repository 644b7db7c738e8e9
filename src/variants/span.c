/* Sequences: spans whose nodes become steps of few launches. */
#include "variants/span.h"

#include "base/mem.h"
#include "variants/sequence.h"

#include <stdlib.h>

/* The results of a sequence: values that are read behind it. */
static void end_sequence(ist_plan *p, const ist_spanned *s) {
    const ist_graph *g = s->graph;
    const ist_graph_region *r = s->region;
    ist_tensor *results = calloc(g->value_count, sizeof *results);
    int count = 0;
    if (!results) ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory", r->label);
    for (size_t v = 0; v < g->value_count && results && !ist_plan_status(p); v++) {
        int maker = g->values[v].maker;
        if (maker < r->first || maker >= r->end || !ist_graph_leaves(g, (int)v + 1, r->first, r->end)) continue;
        ist_tensor at = ist_span_tensor(s, g->values[v].whole);
        if (ist_has(at)) results[count++] = at;
    }
    ist_sequence_end(p, results, count, r->label);
    free(results);
}

/* The widest that the node makes of rows, 0 when it is no linear layer. */
static int outputs_of(const ist_node *n, bool *exact) {
    *exact = false;
    if (n->kind == IST_NODE_QKV) return ((const ist_qkv *)n->of)->filter.out;
    if (n->kind != IST_NODE_CONV) return 0;
    const ist_conv *q = n->of;
    *exact = q->o.exact;
    return q->filter.out;
}

ist_span_rows ist_span_rows_of(const void *span) {
    const ist_spanned *s = span;
    ist_span_rows r = {0};
    for (int i = s->region->first; i < s->region->end; i++) {
        const ist_node *n = &s->graph->nodes[i];
        bool exact;
        int outputs = outputs_of(n, &exact);
        if (outputs > r.most) r.most = outputs;
        if (!exact && outputs > r.widest) r.widest = outputs;
        if (n->kind != IST_NODE_LAYER_NORM) continue;
        const ist_layer_norm *q = n->of;
        r.n = q->x.n;
        r.rows = q->x.h * q->x.w;
        if (q->x.c > r.width) r.width = q->x.c;
    }
    return r;
}

ist_tensor ist_span_map_of(const void *span) {
    const ist_spanned *s = span;
    const ist_conv *last = ist_span_node(s, s->region->end - 1, IST_NODE_DWCONV);
    return last ? last->x : (ist_tensor){0};
}

void ist_span_emit_sequence(ist_plan *p, const ist_variant *v, void *span, int way) {
    const ist_spanned *s = span;
    ist_span_rows r = ist_span_rows_of(s);
    (void)way;
    ist_sequence_begin(p, v->config, r.n, r.rows, 0);
    ist_span_nodes(s, s->region->first, s->region->end);
    end_sequence(p, s);
}

void ist_span_emit_map(ist_plan *p, const ist_variant *v, void *span, int way) {
    const ist_spanned *s = span;
    ist_tensor x = ist_span_map_of(s);
    (void)way;
    ist_sequence_begin(p, v->config, x.n, x.h * x.w, x.w);
    ist_span_nodes(s, s->region->first, s->region->end);
    end_sequence(p, s);
}
