/* What the detector's labels are called and which category ids they have in result files. */
#ifndef IST_IO_LABELS_H
#define IST_IO_LABELS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ist_labels {
    int count;
    char **names;        /* count strings; a label without a name has its number */
    bool is_coco;        /* the 80 COCO classes: category ids are the dataset's sparse ones */
    int64_t *categories; /* count category ids of a dataset of the user's, -1 where it lacks the class; or NULL */
} ist_labels;

/* Labels of a model with `count` classes. `names` (may be NULL, entries may be NULL) are its own; 80 classes without
 * names, or with COCO's names, are taken for COCO's. */
ist_status ist_labels_make(int count, const char *const *names, ist_labels *labels, ist_error *err);

void ist_labels_free(ist_labels *labels);

/* Name of a label, a number when it is out of range; `buffer` has at least 16 bytes. */
const char *ist_label_name(const ist_labels *labels, int label, char *buffer);

/* category_id of a label (-1: the user's dataset lacks it), and the label of a category id of the model's own (-1 when
 * the id is none of COCO's). */
int64_t ist_label_category(const ist_labels *labels, int label);
int ist_category_label(const ist_labels *labels, int category);

/* Label with this name, or -1. */
int ist_label_find(const ist_labels *labels, const char *name);

/* A list of names: one per line, a JSON array, a JSON object with the keys 0, 1, ... or one of these as `names`, or the
 * `names:` entry of a data.yaml (inline list or mapping, dashed lines or numbered lines). The strings and the array are
 * the caller's (ist_names_free). */
ist_status ist_names_read(const char *path, char ***names, size_t *count, ist_error *err);
ist_status ist_names_parse(const char *text, size_t length, const char *source, char ***names, size_t *count,
                           ist_error *err);
void ist_names_free(char ***names, size_t count);

#endif
