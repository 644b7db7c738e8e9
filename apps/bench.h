/* The parts of `isthmus bench`: what one measurement is, for each scope. Used by cmd_bench.c and
 * bench_*.c only. */
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

/* What an earlier run's JSON says of what it measured, and how fast that was. */
enum { BENCH_NAME = 256 };
typedef struct bench_baseline {
    char device[BENCH_NAME], precision[BENCH_NAME], detector[BENCH_NAME], segmenter[BENCH_NAME], scope[BENCH_NAME];
    int batch;
    double p50, fps;
} bench_baseline;

/* For m->baseline; 0 or the exit code. Before anything is opened: reads it. */
int bench_read_baseline(const char *path, bench_baseline *baseline);
/* Before anything is measured: whether it is of the same device, precision, models, batch and scope. */
int bench_check_baseline(const measure *m, const bench_baseline *baseline);
/* By how much p50 and rate differ; slower by more than m->max_regression percent is a failure. */
int bench_compare(const measure *m, const bench_result *r, const bench_baseline *baseline);

#endif
