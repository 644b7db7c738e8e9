/* The other processes of a first start, which compile kernels (pipeline/ahead.h). */
#ifndef AHEAD_H
#define AHEAD_H

#include "isthmus.h"

#include <stdbool.h>

typedef struct ahead_processes {
    int count;
    long ids[7]; /* of processes; more than these wait for each other in the drivers at hand */
} ahead_processes;

/* Starts them when no engine of this configuration has been opened before on this machine: as many as there are other
 * cores and as there is room for. To be called before anything of OpenCL is, and with one thread: the children are
 * forks. Without them everything works as well, only later. On Linux none outlives the thread that calls this. */
ahead_processes ahead_start(const ist_config *config);

/* Waits for them; none are left. */
void ahead_end(ahead_processes *helpers);

/* Ends them; false when there were none. */
bool ahead_stop(ahead_processes *helpers);

#endif
