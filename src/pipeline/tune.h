/* Tuning: which kernel variants are fastest for the problems of a frame on a device. Not part of the public API; `isthmus
 * tune` is how people do it. Engines open with what it found as soon as its record lies in the cache folder. */
#ifndef IST_PIPELINE_TUNE_H
#define IST_PIPELINE_TUNE_H

#include "isthmus.h"

#include <stdbool.h>

enum { IST_TUNING_PATH = 1200 };

/* One problem after it was measured. `best` equals `first`, the heuristic's choice, when nothing was 3 % faster. */
typedef struct ist_tune_result {
    const char *family, *shape;
    int launches;   /* of the frame */
    int candidates; /* ways to do it, all measured */
    int wrong;      /* ways left out because their result differs from the portable variant's */
    const char *first_variant, *best_variant;
    int first_way, best_way;
    double first_us, best_us;
    int done, total; /* problems */
} ist_tune_result;

typedef struct ist_tune_summary {
    int problems, candidates, wrong, changed;
    double before_ms, after_ms; /* kernels of the whole frame, least times */
    bool kept;                  /* the whole frame is faster too */
    char path[IST_TUNING_PATH]; /* where the record belongs; "" when no folder keeps things */
} ist_tune_summary;

/* Measures every problem of the frame that `config` describes, then the whole frame with the winners beside the
 * heuristic's. `report` (or NULL) is called after each problem. *text is the record to store at summary->path: the
 * winners, and what an earlier record said about problems of other frames; NULL when nothing is to be stored. The
 * caller frees it. */
ist_status ist_tune(const ist_config *config, void (*report)(void *arg, const ist_tune_result *result), void *arg,
                    ist_tune_summary *summary, char **text, ist_error *err);

#endif
