/* A small graph in an operator's test: its inputs are the case's tensors, its results tensors of the plan. Filters and
 * arrays are given as they are; where storage is half, lowering rounds filters in place, so that a reference that reads
 * the same arrays afterwards reads what the kernels read. */
#ifndef IST_TESTS_LOWERED_H
#define IST_TESTS_LOWERED_H

#include "support/optest.h"
#include "variants/lower.h"

enum { LOWERED_INPUTS = 8 };

typedef struct lowered {
    ist_graph *graph;
    ist_lowering *lowering;
    ist_tensor at[LOWERED_INPUTS];
    int inputs;
} lowered;

void lowered_begin(lowered *l);
/* The graph's value for a tensor that optest_in made. */
ist_tensor lowered_input(lowered *l, ist_tensor at);
/* Adds a node of the kind's struct; the graph must take it. */
void lowered_add(lowered *l, ist_node_kind kind, void *node);
/* Lowers the graph into the case's plan, which must not fail. */
void lowered_run(lowered *l, optest *t);
/* Where a value is, after lowered_run. */
ist_tensor lowered_place(const lowered *l, ist_tensor value);
/* Copies all channels to those of a wider map from c0 on. */
void lowered_put_channels(ref_map from, ref_map to, int c0);
/* After optest_run: replays on results that have other values, after which items up to the count are those wanted and
 * nothing else has been written. */
void lowered_check_items(optest *t, const char *what, ist_tensor place, ref_map want, double rtol, double atol,
                         int items);
/* Closes both; to be called before optest_end. */
void lowered_end(lowered *l);

#endif
