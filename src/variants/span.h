/* For variants of spans: what a span is, and how its emit function reaches the graph's nodes. */
#ifndef IST_VARIANTS_SPAN_H
#define IST_VARIANTS_SPAN_H

#include "variants/lower.h"

/* What takes and emit of a span's variant are given for a node. While takes is asked, nothing is lowered: there are
 * extents, but neither numbers nor places. */
typedef struct ist_spanned {
    ist_lowering *lowering;
    const ist_graph *graph;
    const ist_graph_region *region;
} ist_spanned;

/* ---- nodes, while emitting ---- */

/* Lowers nodes [first, end), with the spans among them, one by one. */
void ist_span_nodes(const ist_spanned *s, int first, int end);
/* Lowers node i by itself. */
void ist_span_lower(const ist_spanned *s, int i);

/* Where a view is; makes what has no maker (constants, inputs). Empty for values that nothing has made yet. */
ist_tensor ist_span_tensor(const ist_spanned *s, ist_tensor t);
/* A place for the value t before it is made: part of a concatenation, or a new tensor. */
ist_tensor ist_span_place(const ist_spanned *s, ist_tensor t);
/* The value t is there. */
void ist_span_made(const ist_spanned *s, ist_tensor t, ist_tensor place);

/* Node i with its operands where they are, its numbers loaded as the plan holds them, its results without places. NULL,
 * and the plan failed, when numbers cannot be loaded. Release it whether or not it was NULL. */
typedef struct ist_loaded {
    void *node;
    void *arrays[64];
    int count;
} ist_loaded;
const void *ist_span_load(const ist_spanned *s, int i, ist_loaded *loaded);
void ist_span_release(ist_loaded *loaded);
/* Launches from here on are node i's: its stage of the frame, limit, precision. */
void ist_span_enter(const ist_spanned *s, int i);

static inline const void *ist_span_node(const ist_spanned *s, int i, ist_node_kind kind) {
    const ist_node *n = &s->graph->nodes[i];
    return n->kind == kind ? n->of : NULL;
}

/* ---- sequences ---- */

/* Rows of a sequence: of n items, `rows` each; channels of the rows that are normalised, the most that a linear layer
 * makes of activations, and of all. */
typedef struct ist_span_rows { /* n and rows 0: nothing is normalised, and no sequence begins */
    int n, rows, width, widest, most;
} ist_span_rows;
ist_span_rows ist_span_rows_of(const void *span);
/* The map that the last node of a transition, a depthwise convolution, reads. */
ist_tensor ist_span_map_of(const void *span);
/* The emit functions of variants whose configuration is a sequence's form (sequence_steps.h). */
void ist_span_emit_sequence(ist_plan *p, const ist_variant *v, void *span, int way);
void ist_span_emit_map(ist_plan *p, const ist_variant *v, void *span, int way);

#endif
