/* What the project's own programs may ask of an engine beyond isthmus.h: time per launch, time of the kernels alone,
 * what the device can do at most, and how long it was busy. Not part of the public API.
 *
 * All but the last wait. The frame that runs is the last one submitted, whose upload is still on the device, so a batch
 * must have been received before; results that are out stay valid. On the submitting thread, with nothing in flight. */
#ifndef IST_PIPELINE_PROFILE_H
#define IST_PIPELINE_PROFILE_H

#include "isthmus.h"

struct ist_jobs;

/* ist_open of an engine that launches every kernel by itself, where others make one launch of several (core/series.c,
 * on CPUs): same results, somewhat slower, but each kernel has a time of its own. The arguments are not checked: start
 * from ist_config_default() and values that ist_open takes. `jobs`: as for ist_engine_open. */
ist_status ist_engine_open_apart(const ist_config *config, struct ist_jobs *jobs, ist_engine **engine, ist_error *err);

/* One kernel launch of the frame. Strings belong to the engine. */
typedef struct ist_launch_time {
    const char *stage;                 /* "preprocess", "detector_backbone", ... */
    const char *label;                 /* "conv 3x3 backbone.stem.stem3" */
    const char *op, *kernel, *defines; /* program, entry and build options: together the kernel's name */
    double flops, bytes;               /* of one frame at full capacity; 0 when not counted */
    double ms;
} ist_launch_time;

/* Runs the frame `repeats` times and stores the launches in order with the least time of each by the device's clock;
 * `times` has room for ist_engine_info.kernels of them. What a launch costs the host, which is what short kernels wait
 * for, is not in them. */
ist_status ist_engine_profile(ist_engine *engine, int repeats, ist_launch_time *times, ist_error *err);

/* Enqueues the frame's kernels and waits once: milliseconds without upload, packet and what the host does. */
ist_status ist_engine_replay(ist_engine *engine, double *ms, ist_error *err);

/* Milliseconds in which the device had a batch, since the engine was opened: from the first command enqueued to the end
 * of the wait for the last, of all batches received, each moment once. On the receiving thread. */
double ist_engine_busy_ms(const ist_engine *engine);

/* Rates that small kernels reach on the engine's device now. */
typedef struct ist_device_peak {
    double gflops;            /* float32 multiply-adds in registers, two operations each */
    double gbytes_per_second; /* a copy that is larger than most caches, read and written bytes together */
} ist_device_peak;

ist_status ist_engine_peak(ist_engine *engine, ist_device_peak *peak, ist_error *err);

#endif
