/* The infer function of every kind, for kinds.c. */
#ifndef IST_GRAPH_SHAPES_H
#define IST_GRAPH_SHAPES_H

#include "graph/kinds.h"

#define X(id, name, type) ist_status ist_infer_##name(void *node, ist_error *err);
IST_NODE_LIST(X)
#undef X

#endif
