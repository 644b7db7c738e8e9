/* Given boxes to match detections with, from JSON in either of two forms:
 *     {"a.png": [{"box": [x0, y0, x1, y1], "label": 0}, ...], ...}       label may be left out: it matches any class
 *     {"images": [{"id", "file_name"}], "annotations": [{"image_id", "bbox": [x, y, w, h], "category_id"}],
 *      "categories": [{"id", "name"}]}    COCO; without categories their ids are the model's own (COCO's 80, else
 * labels) */
#ifndef IST_IO_TARGETS_H
#define IST_IO_TARGETS_H

#include "io/labels.h"
#include "io/name_map.h"

typedef struct ist_target_list {
    ist_target *items;
    size_t count, capacity;
} ist_target_list;

typedef struct ist_targets {
    ist_name_map files; /* file name -> index in lists */
    ist_target_list *lists;
    size_t count, capacity;
    bool categories;        /* COCO form: labels are category ids until ist_targets_relabel */
    ist_name_map named_ids; /* COCO form: name of a category -> its id */
} ist_targets;

ist_status ist_targets_read(const char *path, ist_targets *targets, ist_error *err);
ist_status ist_targets_parse(const char *text, size_t length, const char *source, ist_targets *targets, ist_error *err);
void ist_targets_free(ist_targets *targets);

/* Turns category ids into the model's labels: by name when any label has a category's, else by id. An id that the model
 * does not have is IST_E_INPUT. */
ist_status ist_targets_relabel(ist_targets *targets, const ist_labels *labels, ist_error *err);

/* Labels of targets that are objects themselves, without a model's classes: `names` where count > 0, else the categories of
 * COCO annotations by rising id, which results keep, else numbers. Targets without a label get one of their own behind
 * these, "object"; all labels become these. IST_E_INPUT for a label beyond the names, the categories or 65535. On success
 * *labels is the caller's to free. */
ist_status ist_targets_own_labels(ist_targets *targets, const char *const *names, size_t count, ist_labels *labels,
                                  ist_error *err);

/* Targets of an image, looked up by its path as given, by its name, then by the last part of its path; NULL when the
 * file names none. */
const ist_target_list *ist_targets_find(const ist_targets *targets, const char *path, const char *name);

#endif
