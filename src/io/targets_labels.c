/* What targets' labels mean: a model's classes, or their own. See targets.h. */
#include "io/targets.h"

#include <stdlib.h>
#include <string.h>

enum { LABELS_MAX = 65536 };

/* Whether a label is called as a category is. */
static bool any_named(const ist_targets *targets, const ist_labels *labels) {
    for (int i = 0; i < labels->count; i++)
        if (ist_name_map_find(&targets->named_ids, labels->names[i])) return true;
    return false;
}

/* The label that is called as the category with this id is, or -1. */
static int label_named(const ist_targets *targets, const ist_labels *labels, int id) {
    for (int i = 0; i < labels->count; i++) {
        const size_t *named = ist_name_map_find(&targets->named_ids, labels->names[i]);
        if (named && *named == (size_t)id) return i;
    }
    return -1;
}

/* `whose` labels these are. */
static ist_status relabel(ist_targets *targets, const ist_labels *labels, const char *whose, ist_error *err) {
    bool by_name = targets->categories && any_named(targets, labels);
    for (size_t i = 0; i < targets->count; i++)
        for (size_t k = 0; k < targets->lists[i].count; k++) {
            int *label = &targets->lists[i].items[k].label, given = *label;
            if (given < 0) continue;
            if (targets->categories)
                *label = by_name ? label_named(targets, labels, given) : ist_category_label(labels, given);
            if (*label < 0 || *label >= labels->count)
                return ist_fail(err, IST_E_INPUT, "a target has %s %d, which the %s %d %s",
                                targets->categories ? "category" : "class", given, whose, labels->count,
                                ist_plural((size_t)labels->count, "class is not", "classes lack"));
        }
    targets->categories = false;
    return IST_OK;
}

ist_status ist_targets_relabel(ist_targets *targets, const ist_labels *labels, ist_error *err) {
    return relabel(targets, labels, "detector's", err);
}

/* ---- labels of their own ---- */

static int by_id(const void *a, const void *b) {
    const ist_name_slot *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return strcmp(x->key, y->key);
}

/* The categories by rising id, in a copy of the map's slots that is the caller's to free; NULL when out of memory. */
static ist_name_slot *sorted_categories(const ist_name_map *map) {
    ist_name_slot *list = malloc((map->count + 1) * sizeof *list);
    size_t n = 0;
    for (size_t i = 0; list && i < map->capacity; i++)
        if (map->slots[i].key) list[n++] = map->slots[i];
    if (list) qsort(list, n, sizeof *list, by_id);
    return list;
}

/* The largest label, -1 without; *without: whether any target has none. */
static int largest_label(const ist_targets *targets, bool *without) {
    int largest = -1;
    *without = false;
    for (size_t i = 0; i < targets->count; i++)
        for (size_t k = 0; k < targets->lists[i].count; k++) {
            int label = targets->lists[i].items[k].label;
            if (label > largest) largest = label;
            *without |= label < 0;
        }
    return largest;
}

/* `count` names, one more with `more`; the category ids of `categories` unless that is NULL. */
static ist_status make_labels(const char *const *names, const ist_name_slot *categories, size_t count, bool more,
                              ist_labels *labels, ist_error *err) {
    const char **all = calloc(count + 2, sizeof *all);
    int64_t *ids = categories ? calloc(count + 2, sizeof *ids) : NULL;
    if (!all || (categories && !ids)) {
        free(all);
        free(ids);
        return ist_fail(err, IST_E_MEMORY, "out of memory for %zu class names", count);
    }
    if (!names && !categories) all[0] = "0"; /* numbers, and of 80 not COCO's */
    for (size_t i = 0; i < count; i++) {
        if (names || categories) all[i] = names ? names[i] : categories[i].key;
        if (categories) ids[i] = (int64_t)categories[i].value;
    }
    if (more) all[count] = "object";
    if (more && ids) ids[count] = count ? ids[count - 1] + 1 : 0;
    ist_status status = ist_labels_make((int)count + more, all, labels, err);
    free(all);
    if (status)
        free(ids);
    else
        labels->categories = ids;
    return status;
}

static ist_status take_own(ist_targets *targets, ist_labels *labels, bool more, const char *whose, ist_error *err) {
    ist_labels known = *labels; /* a label of the file is never the one behind them */
    known.count -= more;
    IST_TRY(relabel(targets, &known, whose, err));
    for (size_t i = 0; i < targets->count; i++)
        for (size_t k = 0; k < targets->lists[i].count; k++) {
            int *label = &targets->lists[i].items[k].label;
            if (*label < 0) *label = known.count;
        }
    return IST_OK;
}

ist_status ist_targets_own_labels(ist_targets *targets, const char *const *names, size_t count, ist_labels *labels,
                                  ist_error *err) {
    bool more, named = count > 0;
    int largest = largest_label(targets, &more);
    ist_name_slot *categories = NULL;
    if (!named && targets->named_ids.count) {
        count = targets->named_ids.count;
        if (!(categories = sorted_categories(&targets->named_ids)))
            return ist_fail(err, IST_E_MEMORY, "out of memory for %zu categories", count);
    } else if (!named) {
        count = (size_t)(largest + 1);
    }
    ist_status status = IST_OK;
    if (count > LABELS_MAX)
        status = ist_fail(err, IST_E_INPUT, "%zu classes; at most %d are possible", count, LABELS_MAX);
    if (!status) status = make_labels(named ? names : NULL, categories, count, more, labels, err);
    free(categories);
    if (status) return status;
    status = take_own(targets, labels, more, named ? "given" : "file's", err);
    if (status) ist_labels_free(labels);
    return status;
}
