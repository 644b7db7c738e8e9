/* A first start with two processes. Some platforms compile one kernel at a time in a process, while they hold a lock
 * that launches need too, and keep the results on disk; so the way to use a second core is a second process that
 * compiles what this one will need last. Not part of the public API; the programs of the project use it. */
#ifndef IST_PIPELINE_AHEAD_H
#define IST_PIPELINE_AHEAD_H

#include "isthmus.h"

#include <stdbool.h>
#include <stddef.h>

/* Path of the file that says that an engine of this configuration has been compiled with these kernel sources and these
 * caches; false when nothing is kept on disk. Touches no device. */
bool ist_ahead_path(const ist_config *config, char *path, size_t size);

/* Compiles the frame's kernels from the last to the first, each on one group over zeroed buffers, then writes the file
 * of ist_ahead_path. On devices where that is of no use only the file is written. For a process that does nothing else
 * and ends then: on a damaged driver cache it may not come back from here. */
ist_status ist_ahead_compile(const ist_config *config, ist_error *err);

#endif
