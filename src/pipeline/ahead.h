/* A first start with several processes. Compiling is most of it, and one process has little use for a second core:
 * some platforms compile one kernel at a time and hold a lock meanwhile that launches need too; others build programs
 * with 8 threads in 0.6 of the time, with 8 processes in 0.3 (perf/NOTES.md, "Notes on starting"). What was compiled is
 * kept on disk. So other processes compile what the one that runs the frame will need last. Not part of the public API;
 * the programs of the project use it. */
#ifndef IST_PIPELINE_AHEAD_H
#define IST_PIPELINE_AHEAD_H

#include "isthmus.h"

#include <stdbool.h>
#include <stddef.h>

/* Path of the file that says that an engine of this configuration has been compiled with these kernel sources and these
 * caches; false when nothing is kept on disk. Touches no device. */
bool ist_ahead_path(const ist_config *config, char *path, size_t size);

/* Compiles in process number `part` of `parts` that were started for it, which need not all be of use: on a CPU the
 * first compiles the frame's kernels from the last to the first, each on one group over zeroed buffers; on a GPU each
 * builds its share of the programs, as many processes as the device has memory for. The first then writes the file of
 * ist_ahead_path, on devices where compiling ahead is of no use too. For a process that does nothing else and ends
 * then: on a damaged driver cache it may not come back from here. */
ist_status ist_ahead_compile(const ist_config *config, int part, int parts, ist_error *err);

#endif
