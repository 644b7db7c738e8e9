/* Lowering: a graph becomes the launches of a plan. One pass chooses a variant for every span and node, by what the
 * device can do and what is tuned or estimated to be cheapest (variant.h), decides where values lie, loads numbers one
 * node at a time and records. */
#ifndef IST_VARIANTS_LOWER_H
#define IST_VARIANTS_LOWER_H

#include "graph/graph.h"
#include "variants/variant.h"

/* A graph in a plan. Borrows both. */
typedef struct ist_lowering ist_lowering;

/* Records all of the graph. inputs: the plan's tensors for the graph's inputs, in the order in which those were made.
 * A failure is the plan's. Close it whenever *lowering is not NULL. */
void ist_lower(ist_plan *plan, const ist_graph *graph, const ist_tensor *inputs, ist_lowering **lowering);
void ist_lowering_close(ist_lowering **lowering);

/* The same for a graph without inputs, by as many threads as there are cores, up to some. */
void ist_lower_shared(ist_plan *plan, const ist_graph *graph);

/* Where a view of one of the graph's values is in the plan; empty when nothing made it. */
ist_tensor ist_lowered(const ist_lowering *lowering, ist_tensor t);

/* What a region or, with region -1, a node became: names of the variants that made its launches, each once, in `text`,
 * and the number of launches. A node within a span that a variant took as one has none of its own. */
int ist_lowering_describe(const ist_lowering *lowering, int node, int region, char *text, size_t size);

#endif
