/* The way of a frame's pixels into pinned memory. A device with memory of its own waits for it, and one core copies at
 * a fraction of what the bus takes; so a few threads help when nothing else is in flight. They sleep otherwise. */
#ifndef IST_PIPELINE_COPIER_H
#define IST_PIPELINE_COPIER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ist_copier ist_copier;

/* Helpers that this machine has cores for, maybe none. */
int ist_copier_helpers(void);

/* With `helpers` of them, or as many threads as can be had. NULL when out of memory. */
ist_copier *ist_copier_open(int helpers);

/* Copies `bytes` bytes past the caches, with help when there is `hurry` and it pays. For one thread at a time; returns
 * when all is there. */
void ist_copier_copy(ist_copier *copier, void *to, const void *from, size_t bytes, bool hurry);

void ist_copier_close(ist_copier **copier);

#endif
