/* How many threads can run at a time. */
#ifndef IST_BASE_CORES_H
#define IST_BASE_CORES_H

/* Cores that are online and that this thread may use (taskset, a container's set of processors); at least 1. */
int ist_cores(void);

#endif
