/* A network, or a whole frame, as nodes over values: what is computed, and nothing about where or how.
 *
 * Models record it (models/), one line per layer; variants/ chooses kernels for it and records those into a plan. A
 * value is made by one node, or given: a constant, an input, an external buffer. Tensors are views of values: `buffer`
 * is the value's number, slices and rows are as of dense tensors. Nodes are in an order in which they can run.
 *
 * Regions say where the spans of kinds.h are: they nest, and their nodes are their decomposition.
 *
 * Failure is sticky: after the first one every call does nothing and returns an empty tensor, so that models carry no
 * error handling. A graph owns all that it points to but the checkpoints. */
#ifndef IST_GRAPH_GRAPH_H
#define IST_GRAPH_GRAPH_H

#include "graph/kinds.h"

#include <stdio.h>

typedef enum ist_value_home { IST_VALUE_MADE, IST_VALUE_CONST, IST_VALUE_INPUT, IST_VALUE_EXTERNAL } ist_value_home;

typedef struct ist_value {
    ist_value_home home;
    ist_tensor whole;   /* dense, its buffer the value's own number */
    int maker;          /* MADE: the node */
    int uses, last_use; /* operands that read it; the last node that does, -1: none */
    bool output;        /* read after the frame */
    const void *data;   /* CONST: values of elem, floats for IST_ELEM_T */
    const char *what;   /* CONST: for messages */
    int number;         /* INPUT: the how-manieth; EXTERNAL: number of the buffer */
} ist_value;

/* What a node is part of. `part`: programs of nodes of one part are built together. `branch`: 0, or 1 and 2 for nodes
 * that run beside each other; branch 1 and 2 begin at the first node that has it, and end with the first that has 0
 * again. `section`: those of a section that is left out (ist_plan_leave_out) do not run, and make nothing. */
typedef struct ist_node_place {
    const char *stage; /* of the frame, for profiles */
    int part, branch;
    int section;       /* 0, or of nodes that frames may be without */
    ist_tensor limit; /* I32: items n >= *limit need no work; empty: all do */
    bool reduced;     /* products may be of bfloat16 where the caller allows that */
    bool uniform;     /* half storage rounds filters about the means of a uniform image */
} ist_node_place;

typedef struct ist_node {
    ist_node_kind kind;
    void *of; /* the struct of its kind */
    ist_node_place place;
} ist_node;

/* Nodes [first, end). Regions are in the order in which they begin, an outer one before those in it. */
typedef struct ist_graph_region {
    ist_node_kind kind;
    const char *label;
    int first, end;
} ist_graph_region;

typedef struct ist_graph_tap {
    const char *name;
    ist_tensor t;
} ist_graph_tap;

/* To be read by everyone, written by graph.c. */
typedef struct ist_graph {
    ist_node *nodes;
    size_t node_count, node_capacity;
    ist_value *values; /* value number v is values[v - 1] */
    size_t value_count, value_capacity;
    ist_graph_region *regions;
    size_t region_count, region_capacity;
    ist_graph_tap *taps;
    size_t tap_count, tap_capacity;
    ist_node_place now; /* of nodes to come */
    int open;           /* regions that have begun and not ended */
    int inputs;
    ist_error error;
    struct ist_graph_block *blocks; /* memory */
} ist_graph;

ist_status ist_graph_open(ist_graph **graph, ist_error *err);
void ist_graph_close(ist_graph **graph);

/* ---- recording ---- */

/* Makes the graph fail (first failure wins); returns the code. */
ist_status ist_graph_fail(ist_graph *g, ist_status code, const char *fmt, ...) IST_PRINTF(3, 4);
static inline bool ist_graph_failed(const ist_graph *g) {
    return g->error.code != IST_OK;
}

/* Zeroed memory, and a text, of the graph's own. NULL, and the graph failed, without memory; "" for a text. */
void *ist_graph_room(ist_graph *g, size_t bytes);
const char *ist_graph_text(ist_graph *g, const char *fmt, ...) IST_PRINTF(2, 3);

/* Given values. An input is bound when the graph is lowered, in the order of these calls. An external buffer is one the
 * frame's owner binds; its view is of one element. Constants are copied: floats for IST_ELEM_T and F32. */
ist_tensor ist_graph_input(ist_graph *g, int n, int h, int w, int c, ist_elem elem);
ist_tensor ist_graph_external(ist_graph *g, int number, ist_elem elem);
ist_tensor ist_graph_const(ist_graph *g, const void *data, int n, int h, int w, int c, ist_elem elem, const char *what);

/* Appends a node of the kind's struct *node, which is copied with its texts, and gives its results their values, in
 * *node too. Fails with the sentence of the kind's infer. */
void ist_graph_add(ist_graph *g, ist_node_kind kind, void *node);

/* Nodes from here on belong to a stage of the frame (a static text); to another part; to a branch; to a section; work on
 * as many items as *count says, or all when it is empty. */
void ist_graph_stage(ist_graph *g, const char *stage);
void ist_graph_part(ist_graph *g);
void ist_graph_branch(ist_graph *g, int branch);
void ist_graph_section(ist_graph *g, int section); /* 0 to 31 */
void ist_graph_limit(ist_graph *g, ist_tensor count);
/* Products of nodes from here on may be of bfloat16 where the caller allows that; their filters are rounded about the
 * means of a uniform image. */
void ist_graph_reduced(ist_graph *g, bool reduced);
void ist_graph_uniform(ist_graph *g, bool uniform);

void ist_graph_begin(ist_graph *g, ist_node_kind kind, const char *fmt, ...) IST_PRINTF(3, 4);
void ist_graph_end(ist_graph *g);

/* Names a value for tests and `verify`; it is kept to the end of the frame where those ask for it. */
void ist_graph_name(ist_graph *g, ist_tensor t, const char *fmt, ...) IST_PRINTF(3, 4);
/* The value is read after the frame. */
void ist_graph_output(ist_graph *g, ist_tensor t);

/* ---- reading ---- */

static inline const ist_value *ist_graph_value(const ist_graph *g, ist_tensor t) {
    return &g->values[t.buffer - 1];
}
/* Whether the value is read by a node outside of [first, end) or is an output. */
bool ist_graph_leaves(const ist_graph *g, int value, int first, int end);
/* The only node that reads the value, -1 when there are more or none. */
int ist_graph_reader(const ist_graph *g, int value);

/* The first result of a node; empty where it has none. */
ist_tensor ist_graph_result(const ist_node *n);

/* One line for each node: label, kind, extents of its first result, multiply-adds if it has any, in the order of the
 * graph. A region has a line of its own, label and kind, and its nodes are indented by two more. `more`, when it is not
 * NULL, writes to the end of a line what else is known of a node (region -1) or of a region (node -1). */
typedef void (*ist_graph_remark)(void *user, int node, int region, FILE *out);
void ist_graph_print(const ist_graph *g, FILE *out, ist_graph_remark more, void *user);

#endif
