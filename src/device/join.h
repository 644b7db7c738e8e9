/* One program out of several: the sources of a joined program.
 *
 * Parsing the built-in headers costs a CPU platform more than most of our programs (110 ms each when PoCL compiles, 25
 * ms when it loads), so programs that are wanted together are built as one. Each part keeps its own names: its -D
 * options become #defines around it, and what it declares at file scope gets the part's number as a suffix. */
#ifndef IST_DEVICE_JOIN_H
#define IST_DEVICE_JOIN_H

#include "device/device.h"

/* The joined text (the caller's to free) of prelude and `count` parts, or NULL when out of memory or when a part cannot
 * be joined: an option that is no -D, a source that is not there, or storage types that differ. The kernel `k` of part
 * i is called ist_join_kernel(k, i) in it. */
char *ist_join_text(const ist_program_part *parts, int count);

enum { IST_JOIN_NAME = 96 };
void ist_join_kernel(const char *kernel, int part, char out[IST_JOIN_NAME]);

#endif
