/* The network of one checkpoint as its model records it, and what a device would make of it. Not part of the public
 * API; `isthmus info --graph` is how people see it. Nothing is compiled and no frame is run. */
#ifndef IST_PIPELINE_DESCRIBE_H
#define IST_PIPELINE_DESCRIBE_H

#include "isthmus.h"

#include "graph/graph.h"

typedef struct ist_description ist_description;

/* Records the network for one image: a detector's of its default size, a segmenter's of its own, with one box. Close
 * *description whenever it is not NULL. */
ist_status ist_description_open(const char *path, ist_description **description, ist_error *err);
void ist_description_close(ist_description **description);

/* Lowers it for a device, once, by the device's tuning record where it has one and else by estimated costs, as an engine
 * for one image would. Replaces AUTO in *precision by what it becomes. */
ist_status ist_description_lower(ist_description *d, const char *device, ist_precision *precision, ist_error *err);

const char *ist_description_model(const ist_description *d);
const ist_graph *ist_description_graph(const ist_description *d);
double ist_description_multiply_adds(const ist_description *d);
/* Of the whole network; -1 when it is not lowered. */
int ist_description_launches(const ist_description *d);
/* As ist_lowering_describe; -1 and "" when it is not lowered. */
int ist_description_of(const ist_description *d, int node, int region, char *text, size_t size);

#endif
