/* What the files of the lowering share: lower.c, layout.c (where values lie), load.c (numbers). */
#ifndef IST_VARIANTS_LOWERING_H
#define IST_VARIANTS_LOWERING_H

#include "variants/span.h"
#include "weights/matrix.h"

/* What is known of a value. */
typedef struct ist_value_plan {
    ist_tensor place;
    int concat, part;   /* the concatenation's node of which it is a part in place, and which; -1: none */
    ist_widening wide;  /* its channels, and the zeros that were added */
    float *means;       /* of its channels, for a uniform image; NULL: not known */
    ist_padding_reuse reuse;    /* which of its rows repeat others */
} ist_value_plan;

typedef struct ist_node_plan {
    int first, end; /* launches */
} ist_node_plan;

struct ist_lowering {
    ist_plan *plan;
    const ist_graph *graph;
    const ist_tensor *inputs;
    ist_value_plan *values; /* of value v at v - 1 */
    ist_node_plan *nodes, *spans;
    const ist_variant **chosen; /* of regions */
    size_t region;              /* the next that begins */
    double side_share;          /* of the device's units, for the second branch */
    ist_node_place now;
};

/* Of the value of which t is a view. */
static inline ist_value_plan *ist_value_plan_of(const ist_lowering *l, ist_tensor t) {
    return &l->values[t.buffer - 1];
}

/* ---- layout.c ---- */

/* Chooses the parts of concatenations that are made in place and the channels that are widened. */
void ist_layout(ist_lowering *l);
/* ist_span_place and ist_span_tensor. */
ist_tensor ist_layout_place(ist_lowering *l, ist_tensor value);
ist_tensor ist_layout_tensor(ist_lowering *l, ist_tensor t);
/* Widening of the channels of a view. */
ist_widening ist_layout_widening(const ist_lowering *l, ist_tensor t);
/* Whether a variant has taken the node as part of a span. */
bool ist_layout_spanned(const ist_lowering *l, int node);

/* ---- load.c ---- */

/* Node i of the graph as a plan has it: see ist_span_load. Notes what the means of its result are. */
const void *ist_load(ist_lowering *l, int i, ist_loaded *loaded);

/* ---- repeats.c: rows that repeat others (ist_padding_reuse) ---- */

/* What is known of the rows of node i's operands goes to `node`; rows that it cannot do without are made. */
void ist_repeats_before(ist_lowering *l, int i, void *node);
/* What is known of the rows of its result, which has its place, comes from there. */
void ist_repeats_behind(ist_lowering *l, int i, const void *node);
/* Makes all rows that were left out of what nodes [first, end), a span, read: it knows nothing of them. */
void ist_repeats_all(ist_lowering *l, int first, int end);

#endif
