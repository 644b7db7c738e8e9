/* The input as a PyTorch zip archive: the container, its pickle and its storages at once. */
#include "weights/weights.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    ist_weights *w = NULL;
    ist_error err = {0};
    if (size < 4 || memcmp(bytes, "PK", 2)) return 0;
    if (ist_weights_open_memory(bytes, size, &w, &err)) {
        if (w || !err.text[0]) abort();
        return 0;
    }
    unsigned sum = 0;
    for (size_t i = 0; i < ist_weights_count(w); i++) {
        const ist_weight *t = ist_weights_at(w, i);
        for (size_t k = 0; k < t->bytes; k++) sum += ((const uint8_t *)t->data)[k];
    }
    volatile unsigned keep = sum; /* the reads must happen */
    (void)keep;
    ist_weights_close(&w);
    return 0;
}
