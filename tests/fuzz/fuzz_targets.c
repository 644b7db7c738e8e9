/* libFuzzer: any bytes as a file of targets and as a file of class names. */
#include "io/targets.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_targets(const char *text, size_t size) {
    ist_targets targets;
    ist_labels labels;
    if (ist_targets_parse(text, size, "fuzz", &targets, NULL)) {
        if (targets.count || targets.lists) abort();
        return;
    }
    if (!ist_labels_make(80, NULL, &labels, NULL)) {
        ist_targets_relabel(&targets, &labels, NULL);
        ist_labels_free(&labels);
    }
    ist_targets_find(&targets, "in/a.png", "a.png");
    if (targets.count > size) abort();
    ist_targets_free(&targets);
}

static void try_names(const char *text, size_t size) {
    char **names;
    size_t count;
    if (ist_names_parse(text, size, "fuzz", &names, &count, NULL)) {
        if (names) abort();
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (!strlen(names[i])) abort();
    ist_names_free(&names, count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size ? size : 1); /* exactly as long as it claims */
    if (!text) return 0;
    if (size) memcpy(text, data, size);
    try_targets(text, size);
    try_names(text, size);
    free(text);
    return 0;
}
