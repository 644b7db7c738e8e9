/* What `isthmus bench` and `isthmus profile` share: their options, the engine and the frame that is measured, the
 * stages of a profile.
 *
 * The frame is generated. The detector's threshold is 0 and `max_objects` is --boxes, so that every frame has that many
 * objects whatever the checkpoint makes of it, and the mask decoder's part of the time is known. */
#ifndef MEASURE_H
#define MEASURE_H

#include "predict.h"

#include "pipeline/profile.h"

typedef enum measure_scope {
    MEASURE_UPLOAD_TO_PACKET,
    MEASURE_STAGED_TO_PACKET,
    MEASURE_KERNELS,
    MEASURE_FILE_TO_FILE
} measure_scope;

typedef struct measure {
    const char *command;     /* "bench" or "profile" */
    predict_options options; /* the engine's part of the command line */
    int frames, warmup, width, height;
    bool json;
    measure_scope scope;   /* bench's */
    const char *trace;     /* profile's; NULL: none */
    const char *baseline;  /* bench's: a file, or NULL */
    double max_regression; /* in percent */
    predict_job job;       /* the engine */
    double open_ms;        /* what measure_open took for it: checkpoints, kernels, device */
    ist_bitmap frame;
    ist_image images[64]; /* one batch of it */
} measure;

/* Parses the command line of argv[0]; *stop when the program ends with the returned code. */
int measure_parse(int argc, char **argv, measure *m, bool *stop);

/* Finds the checkpoints, opens the engine, makes the frame; 0 or the exit code. */
int measure_open(measure *m);

void measure_close(measure *m);

/* "upload_to_packet", "staged_to_packet", "kernels", "file_to_file". */
const char *measure_scope_name(measure_scope scope);

/* ist_submit of one batch; STAGED_TO_PACKET writes its pixels where ist_stage says before that. */
ist_status measure_submit(measure *m, ist_error *err);

/* One batch from submit to release; milliseconds from the start of ist_submit to the end of ist_receive. */
ist_status measure_batch(measure *m, double *ms, ist_error *err);

/* Launches that share a name, summed. */
typedef struct measure_sum {
    const char *name;
    const ist_launch_time *first;
    double ms, flops, bytes;
    int launches;
} measure_sum;

/* Least times over `repeats` runs of all launches of the frame; *times is the caller's to free. */
ist_status measure_launches(measure *m, int repeats, ist_launch_time **times, int *count, ist_error *err);

/* Sums by stage, in the order of the frame; `sums` has room for `count`. Returns how many there are. */
int measure_stages(const ist_launch_time *times, int count, measure_sum *sums);

/* Members of a JSON object: a string (null when empty), a number, and "stages_ms" with a member per stage. */
void measure_put_name(ist_text *out, const char *key, const char *name);
void measure_put_number(ist_text *out, const char *key, double value);
void measure_put_stages(ist_text *out, const measure_sum *stages, int count);

/* "fp32", "fp16" or "bf16": what AUTO became. */
const char *measure_precision(const measure *m);

/* Device, detector with the frame's size, segmenter: three lines for people. */
void measure_print_heading(const measure *m);

#endif
