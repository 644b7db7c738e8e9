/* One program out of several: the sources of a joined program.
 *
 * Parsing the built-in headers costs a CPU platform more than most of our programs (110 ms each when PoCL compiles, 25
 * ms when it loads), so programs that are wanted together are built as one. Each part keeps its own names: its -D
 * options become #defines around it, and what it declares at file scope gets the part's number as a suffix. */
#ifndef IST_DEVICE_JOIN_H
#define IST_DEVICE_JOIN_H

#include "device/device.h"

/* The joined text (the caller's to free) of prelude and `count` parts, or NULL when out of memory or when a part cannot
 * be joined: an option that is no -D, a source that is not there, a name that a struct of codes/args has for a member,
 * or storage types that differ. The kernel `k` of part i is called ist_join_kernel(k, i) in it. */
char *ist_join_text(const ist_program_part *parts, int count);

enum { IST_JOIN_NAME = 96 };
void ist_join_kernel(const char *kernel, int part, char out[IST_JOIN_NAME]);

/* A kernel of a series: its program, its name, and for each argument what the tape has of it: 'p' the base and the
 * offset in floats of a buffer, 'i' an int, 'f' a float, '4' and '8' vectors of ints, 'v' a float4, 's' the one struct
 * (codes/args): its type and its words. */
typedef struct ist_series_part {
    ist_program_part part;
    const char *kernel, *kinds, *type;
    int type_words;
} ist_series_part;

enum { IST_SERIES_HEAD = 4 }; /* words of the tape before its steps: steps, counters' base and offset, their count */

/* The text (the caller's to free) of a program whose kernel `series` does what launches of these kernels in a row would
 * do: arguments are the tape, which has `words` ints a step, the part and what it is called with, then `bases` buffers;
 * base `bases` is NULL. NULL as from ist_join_text. */
char *ist_series_text(const ist_series_part *parts, int count, int words, int bases);
/* Words of the tape that an argument of this kind takes. */
int ist_series_words(const ist_series_part *part, char kind);

#endif
