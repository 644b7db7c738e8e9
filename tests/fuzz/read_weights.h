/* What the fuzzers of checkpoints do with their input: open it and read every byte of every tensor. */
#ifndef READ_WEIGHTS_H
#define READ_WEIGHTS_H

#include "weights/weights.h"

#include <stdlib.h>

/* Aborts when a failure leaves weights or says nothing. */
static inline void read_weights(const void *bytes, size_t size) {
    ist_weights *w = NULL;
    ist_error err = {0};
    if (ist_weights_open_memory(bytes, size, &w, &err)) {
        if (w || !err.text[0]) abort();
        return;
    }
    unsigned sum = 0;
    for (size_t i = 0; i < ist_weights_count(w); i++) {
        const ist_weight *t = ist_weights_at(w, i);
        for (size_t k = 0; k < t->bytes; k++) sum += ((const uint8_t *)t->data)[k];
    }
    volatile unsigned keep = sum; /* the reads must happen */
    (void)keep;
    ist_weights_close(&w);
}

#endif
