/* The second process of a first start, which compiles kernels (pipeline/ahead.h). */
#ifndef AHEAD_H
#define AHEAD_H

#include "isthmus.h"

/* Starts it when no engine of this configuration has been opened before on this machine; its process id, or 0. To be
 * called before anything of OpenCL is, and with one thread: the child is a fork. Without it everything works as well,
 * only later. */
long ahead_start(const ist_config *config);

/* Waits for it; *id becomes 0. */
void ahead_end(long *id);

#endif
