/* Opens the input as a checkpoint and touches everything a caller may touch; then once more with the header length set
 * to where the last brace is, so that mutations of the JSON text are not all stopped by a length that no longer fits.
 */
#include "models/checkpoint.h"

#include <stdlib.h>
#include <string.h>

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

static void open_and_touch(const uint8_t *bytes, size_t size) {
    ist_weights *w = NULL;
    ist_error err = {0};
    if (ist_weights_open_memory(bytes, size, &w, &err) == IST_OK)
        touch(w);
    else if (w || !err.text[0])
        abort();
    ist_weights_close(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    open_and_touch(bytes, size);
    size_t end = size;
    while (end > 8 && bytes[end - 1] != '}') end--;
    if (end <= 8) return 0;
    uint8_t *fixed = malloc(size);
    if (!fixed) return 0;
    memcpy(fixed, bytes, size);
    for (int i = 0; i < 8; i++) fixed[i] = (uint8_t)((uint64_t)(end - 8) >> (8 * i));
    open_and_touch(fixed, size);
    free(fixed);
    return 0;
}
