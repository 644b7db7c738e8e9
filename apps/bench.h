/* The parts of `isthmus bench`: what one measurement is, for each scope. Used by cmd_bench.c and bench_files.c only. */
#ifndef BENCH_H
#define BENCH_H

#include "measure.h"

/* Latencies of `count` batches, one at a time, and the rate when they overlap. */
typedef struct bench_result {
    double *ms; /* [count] */
    int count, frames;
    double p50, p90, p99, least, fps;
    double first_ms; /* the very first batch, which compiles what is not kept on disk */
} bench_result;

/* The scope file_to_file: fills in r->ms and r->fps. One PNG is decoded, run and written out as `isthmus predict` does
 * it, in a folder that goes away afterwards. 0 or the exit code. */
int bench_files(measure *m, bench_result *r);

#endif
