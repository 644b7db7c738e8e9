/* A D-FINE with synthetic weights, recorded, lowered, replayed on synthetic images, ready to be read. A failing step
 * ends the test. */
#ifndef IST_TESTS_DFINE_RUN_H
#define IST_TESTS_DFINE_RUN_H

#include "models/dfine.h"
#include "variants/lower.h"

typedef struct dfine_setup {
    ist_model_kind kind;
    int classes, n, h, w;
    bool half;                            /* activations stored as half */
    bool by_shadow;                       /* another plan makes the values of constants */
    bool stored;                          /* the checkpoint's own constants are used */
    uint64_t seed, image_seed;            /* image_seed 0: the same; image i of a batch has image_seed + i */
    const int *order;                     /* 300 tokens that replace the selection (one item), or NULL */
    void (*change)(ist_weights *weights); /* edits the checkpoint before it is recorded, or NULL */
} dfine_setup;

typedef struct dfine_run {
    ist_device *device;
    ist_plan *plan; /* with taps: the graph's names */
} dfine_run;

void dfine_start(dfine_run *run, const dfine_setup *setup);
void dfine_stop(dfine_run *run);

/* Values of a tapped tensor; the caller frees them. */
float *dfine_read(const dfine_run *run, const char *name);
int *dfine_read_ints(const dfine_run *run, const char *name);

/* Lets `edit` change the values of one float32 tensor in place. */
void dfine_edit(ist_weights *weights, const char *name, void (*edit)(float *values, size_t count, float by), float by);

#endif
