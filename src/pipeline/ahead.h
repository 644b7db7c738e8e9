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

struct ist_jobs;

/* Path of the file that says that an engine of this configuration has been compiled with these kernel sources and these
 * caches; false when nothing is kept on disk. Touches no device. */
bool ist_ahead_path(const ist_config *config, char *path, size_t size);

/* Memory that the processes share, all zeros at first: what the one that runs the frame wants done (device/jobs.h). */
size_t ist_ahead_bytes(void);
enum { IST_AHEAD_MOST = 15 }; /* processes beside that one */

/* In a process that was started for it, number `part`: on a CPU the first compiles the frame's kernels from the last to
 * the first, each on one group over zeroed buffers, and the others are of no use; on a GPU each runs probes and builds
 * programs that the process which runs the frame says it needs, as many as the device has memory for, until that has
 * called ist_ahead_end. The first then writes the file of ist_ahead_path if all went well, on devices where compiling
 * ahead is of no use too. For a process that does nothing else and ends then: on a damaged driver cache it may not come
 * back from here. */
ist_status ist_ahead_compile(const ist_config *config, struct ist_jobs *jobs, int part, ist_error *err);

/* In the process that runs the frame. There are `parts` others, before opening. */
void ist_ahead_begin(struct ist_jobs *jobs, int parts);
/* ist_open, with others at work for it. */
ist_status ist_ahead_open(const ist_config *config, struct ist_jobs *jobs, ist_engine **engine, ist_error *err);
/* There is nothing more to be done; `opened`: because the engine has opened. */
void ist_ahead_end(struct ist_jobs *jobs, bool opened);

#endif
