/* The other processes of a first start, which compile kernels (pipeline/ahead.h). */
#ifndef AHEAD_H
#define AHEAD_H

#include "pipeline/ahead.h"

#include <stdbool.h>

typedef struct ahead_processes {
    int count;
    long ids[IST_AHEAD_MOST];
    struct ist_jobs *jobs; /* memory shared with them; NULL where there are none */
} ahead_processes;

/* Starts them when no engine of this configuration has been opened before on this machine: as many as there are other
 * cores and as there is room for. To be called before anything of OpenCL is, and with one thread: the children are
 * forks. Without them everything works as well, only later. On Linux none outlives the thread that calls this. */
ahead_processes ahead_start(const ist_config *config);

/* The engine that they were started for is open: they come to their end. */
void ahead_opened(ahead_processes *helpers);

/* Waits for them, whatever became of the engine; none are left. */
void ahead_end(ahead_processes *helpers);

/* Ends them; false when there were none. */
bool ahead_stop(ahead_processes *helpers);

#endif
