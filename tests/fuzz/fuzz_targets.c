/* libFuzzer: any bytes as a file of targets. */
#include "io/targets.h"

#include "exact_text.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Boxes that a frame may be given, in every list. */
static void check(const ist_targets *targets, size_t size) {
    size_t boxes = 0;
    for (size_t i = 0; i < targets->count; i++) {
        boxes += targets->lists[i].count;
        for (size_t k = 0; k < targets->lists[i].count; k++) {
            const ist_target *t = &targets->lists[i].items[k];
            for (int c = 0; c < 4; c++)
                if (!(t->box[c] - t->box[c] == 0)) abort(); /* not finite */
        }
    }
    if (targets->count > size || boxes > size) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ist_targets targets;
    ist_labels labels;
    ist_error err = {0};
    char *text = exact_text(data, size);
    if (!text) return 0;
    if (ist_targets_parse(text, size, "fuzz", &targets, &err)) {
        if (targets.count || targets.lists || !err.text[0]) abort();
        free(text);
        return 0;
    }
    check(&targets, size);
    ist_targets own;
    if (!ist_targets_parse(text, size, "fuzz", &own, &err)) {
        if (!ist_targets_own_labels(&own, NULL, 0, &labels, NULL)) {
            for (size_t i = 0; i < own.count; i++)
                for (size_t k = 0; k < own.lists[i].count; k++)
                    if (own.lists[i].items[k].label < 0 || own.lists[i].items[k].label >= labels.count) abort();
            ist_labels_free(&labels);
        }
        ist_targets_free(&own);
    }
    if (!ist_labels_make(80, NULL, &labels, NULL)) {
        ist_targets_relabel(&targets, &labels, NULL);
        ist_labels_free(&labels);
    }
    ist_targets_find(&targets, "in/a.png", "a.png");
    ist_targets_free(&targets);
    free(text);
    return 0;
}
