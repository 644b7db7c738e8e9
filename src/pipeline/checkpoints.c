/* See checkpoints.h. */
#include "pipeline/checkpoints.h"

#include <pthread.h>
#include <stdlib.h>

struct ist_reading {
    ist_checkpoints read;
    const char *detector, *segmenter; /* NULL: not wanted */
    bool running;
    pthread_t thread;
    ist_status status;
    ist_error error;
};

static void *read_both(void *argument) {
    ist_reading *r = argument;
    ist_checkpoints *c = &r->read;
    if (r->detector)
        r->status = ist_checkpoint_open(r->detector, IST_SLOT_DETECTOR, &c->detector, &c->detector_info, &r->error);
    if (!r->status && r->segmenter)
        r->status = ist_checkpoint_open(r->segmenter, IST_SLOT_SEGMENTER, &c->segmenter, &c->segmenter_info, &r->error);
    return NULL;
}

ist_reading *ist_reading_begin(const ist_config *config) {
    ist_reading *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    if (config->prompts == IST_PROMPTS_DETECTIONS) r->detector = config->detector;
    r->segmenter = config->segmenter;
    r->running = !pthread_create(&r->thread, NULL, read_both, r);
    if (!r->running) read_both(r);
    return r;
}

static void join(ist_reading *r) {
    if (r->running) pthread_join(r->thread, NULL);
    r->running = false;
}

ist_status ist_reading_wait(ist_reading *r, ist_checkpoints **read, ist_error *err) {
    join(r);
    *read = &r->read;
    if (r->status) *err = r->error;
    return r->status;
}

void ist_reading_close(ist_reading **reading) {
    ist_reading *r = *reading;
    if (!r) return;
    join(r);
    ist_weights_close(&r->read.detector);
    ist_weights_close(&r->read.segmenter);
    ist_checkpoint_info_free(&r->read.detector_info);
    ist_checkpoint_info_free(&r->read.segmenter_info);
    free(r);
    *reading = NULL;
}
