/* One network of a checkpoint as a plan of its own, with inputs that are not constant: what benchmarks run. */
#ifndef IST_PERF_MODEL_PLAN_H
#define IST_PERF_MODEL_PLAN_H

#include "core/plan.h"
#include "core/tuning.h"
#include "models/checkpoint.h"

typedef struct model_plan {
    ist_device *device;
    ist_plan *plan;
    ist_checkpoint_info info;
    ist_tuning tuning; /* the device's record, as engines read it */
    char what[96]; /* "dfine-n 640x640 batch 1", "mobilesam decoder 4 boxes" */
    double enqueue_ms; /* of the last run: until its last kernel was enqueued */
} model_plan;

typedef struct model_plan_options {
    const char *checkpoint;
    const char *device; /* device SPEC or NULL */
    bool decoder;       /* MobileSAM: the mask decoder instead of the image encoder */
    bool multimask;     /* decoder: three masks of each box */
    int points;         /* decoder: prompts are not boxes, but so many points each, as an engine's that has room for them */
    int limit;          /* decoder: how many prompts there are, of those that there is room for; 0: all */
    int size;           /* D-FINE: side of the image; 0: 640 */
    int count;          /* images; decoder: boxes; 0: 1 */
    int content;        /* rows of a letterboxed picture in a segmenter's input; 0: all */
    bool half, bf16;
    bool apart;         /* no series (core/series.c): every launch by itself. Not read from arguments */
} model_plan_options;

/* Reads --device SPEC, --size N, --count N, --content ROWS, --half, --bf16, --decoder, --multimask, --points N, --limit N
 * and the checkpoint's path; prints what is wrong and returns false otherwise. */
bool model_plan_arguments(int argc, char **argv, model_plan_options *options);

ist_status model_plan_open(const model_plan_options *options, model_plan *out, ist_error *err);
void model_plan_close(model_plan *m);

/* One frame: replay and wait. *ms is the time between. */
ist_status model_plan_run(model_plan *m, double *ms, ist_error *err);

#endif
