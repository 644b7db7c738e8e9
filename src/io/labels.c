/* Class names and category ids: see labels.h. */
#include "io/labels.h"

#include "io/coco_classes.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct coco_class {
    int category;
    const char *name;
} coco_class;

static const coco_class coco[] = {
#define X(category, name) {category, name},
    IST_COCO_CLASSES(X)
#undef X
};

_Static_assert(sizeof coco / sizeof *coco == IST_COCO_CLASS_COUNT, "COCO has 80 classes");

static bool names_are_coco(int count, const char *const *names) {
    if (count != IST_COCO_CLASS_COUNT) return false;
    for (int i = 0; names && i < count; i++)
        if (names[i] && strcmp(names[i], coco[i].name)) return false;
    return true;
}

ist_status ist_labels_make(int count, const char *const *names, ist_labels *labels, ist_error *err) {
    *labels = (ist_labels){.is_coco = names_are_coco(count, names)};
    labels->names = calloc(count > 0 ? (size_t)count : 1, sizeof *labels->names);
    if (!labels->names) return ist_fail(err, IST_E_MEMORY, "out of memory for %d class names", count);
    for (; labels->count < count; labels->count++) {
        char number[16];
        int i = labels->count;
        snprintf(number, sizeof number, "%d", i);
        const char *name = names && names[i] ? names[i] : labels->is_coco ? coco[i].name : number;
        if (!(labels->names[i] = ist_strdup(name))) {
            ist_labels_free(labels);
            return ist_fail(err, IST_E_MEMORY, "out of memory for %d class names", count);
        }
    }
    return IST_OK;
}

void ist_labels_free(ist_labels *labels) {
    if (labels->names) ist_names_free(&labels->names, (size_t)labels->count);
    free(labels->categories);
    *labels = (ist_labels){0};
}

const char *ist_label_name(const ist_labels *labels, int label, char *buffer) {
    if (label >= 0 && label < labels->count) return labels->names[label];
    snprintf(buffer, 16, "%d", label);
    return buffer;
}

int64_t ist_label_category(const ist_labels *labels, int label) {
    if (labels->categories) return label >= 0 && label < labels->count ? labels->categories[label] : -1;
    return labels->is_coco && label >= 0 && label < IST_COCO_CLASS_COUNT ? coco[label].category : label;
}

int ist_category_label(const ist_labels *labels, int category) {
    if (!labels->is_coco) return category;
    for (int i = 0; i < IST_COCO_CLASS_COUNT; i++)
        if (coco[i].category == category) return i;
    return -1;
}

int ist_label_find(const ist_labels *labels, const char *name) {
    for (int i = 0; i < labels->count; i++)
        if (!strcmp(labels->names[i], name)) return i;
    return -1;
}
