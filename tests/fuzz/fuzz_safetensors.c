/* Opens the input as a checkpoint and touches everything a caller may touch. */
#include "weights/checkpoint.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void touch(const ist_weights *w) {
    for (size_t i = 0; i < ist_weights_count(w); i++) {
        const ist_weight *t = ist_weights_at(w, i);
        if (ist_weights_find(w, t->name) != t) abort();
        float *values = malloc((t->count ? t->count : 1) * sizeof *values);
        if (values) ist_weight_read_f32(t, values, NULL);
        free(values);
    }
    ist_checkpoint_info info;
    ist_checkpoint_identify(w, &info, NULL);
    ist_checkpoint_info_free(&info);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    ist_weights *w = NULL;
    ist_error err = {0};
    if (ist_weights_open_memory(bytes, size, &w, &err)) {
        if (w || !err.text[0]) abort();
        return 0;
    }
    touch(w);
    ist_weights_close(&w);
    return 0;
}
