/* isthmus info --graph: the network of a checkpoint, and what a device makes of it. */
#ifndef INFO_GRAPH_H
#define INFO_GRAPH_H

#include "predict.h"

typedef struct info_graph_options {
    const char *device; /* NULL: only the network */
    ist_precision precision;
    bool json;
} info_graph_options;

/* Returns the exit code. */
int info_print_graph(const char *path, const info_graph_options *o);

#endif
