/* The infer function of every kind, for kinds.c. */
#ifndef IST_GRAPH_SHAPES_H
#define IST_GRAPH_SHAPES_H

#include "graph/kinds.h"

#define X(id, name, type) ist_status ist_infer_##name(void *node, ist_error *err);
IST_NODE_LIST(X)
#undef X

static inline int ist_tokens_of(ist_tensor t) {
    return t.h * t.w;
}

/* Tokens of a window along an axis whose relative positions are `count` floats, d of each; 0 where they are of none. */
static inline int ist_relative_side(size_t count, int d) {
    size_t rows = count / (size_t)d;
    return rows * (size_t)d == count && rows % 2 ? (int)(rows / 2 + 1) : 0;
}

/* Half of a side, rounded up: what 3x3 windows with stride 2 and padding 1 leave. */
static inline int ist_halved(int side) {
    return (side + 1) / 2;
}

#endif
