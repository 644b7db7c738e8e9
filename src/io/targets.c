/* Reader of given boxes: see targets.h. */
#include "io/targets.h"

#include "io/atomic_file.h"

#include "base/mem.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TARGETS_BYTES ((size_t)1 << 30)

typedef struct reader {
    ist_targets *targets;
    const char *source;
    ist_error *err;
} reader;

static ist_status out_of_memory(reader *r) {
    return ist_fail(r->err, IST_E_MEMORY, "%s: out of memory", r->source);
}

/* The list of a file name, made when new. */
static ist_status list_of(reader *r, const char *file, ist_target_list **list) {
    ist_targets *t = r->targets;
    bool inserted;
    if (!ist_grow((void **)&t->lists, &t->capacity, t->count + 1, sizeof *t->lists) ||
        !ist_name_map_insert(&t->files, file, t->count, &inserted))
        return out_of_memory(r);
    if (inserted) t->lists[t->count++] = (ist_target_list){0};
    *list = &t->lists[*ist_name_map_find(&t->files, file)];
    return IST_OK;
}

/* Four finite numbers. */
static ist_status read_four(reader *r, const json_t *array, const char *file, float out[4]) {
    if (json_array_size(array) != 4)
        return ist_fail(r->err, IST_E_INPUT, "%s: %s: a box must be an array of four numbers", r->source, file);
    for (size_t i = 0; i < 4; i++) {
        const json_t *number = json_array_get(array, i);
        out[i] = (float)json_number_value(number);
        if (!json_is_number(number) || !isfinite(out[i]))
            return ist_fail(r->err, IST_E_INPUT, "%s: %s: element %zu of a box is not a number", r->source, file, i);
    }
    return IST_OK;
}

static ist_status add_target(reader *r, const char *file, size_t list, const float box[4], const json_t *label) {
    ist_target_list *l = &r->targets->lists[list];
    ist_target target = {.box = {box[0], box[1], box[2], box[3]}, .label = -1};
    if (!(box[0] <= box[2] && box[1] <= box[3]) || !isfinite(box[2] - box[0]) || !isfinite(box[3] - box[1]))
        return ist_fail(r->err, IST_E_INPUT, "%s: %s: box [%g, %g, %g, %g] is inside out or endless", r->source, file,
                        (double)box[0], (double)box[1], (double)box[2], (double)box[3]);
    if (label) {
        json_int_t value = json_integer_value(label);
        if (!json_is_integer(label) || value < -1 || value > INT_MAX)
            return ist_fail(r->err, IST_E_INPUT, "%s: %s: a label must be a whole number from -1", r->source, file);
        target.label = (int)value;
    }
    if (!ist_grow((void **)&l->items, &l->capacity, l->count + 1, sizeof *l->items)) return out_of_memory(r);
    l->items[l->count++] = target;
    return IST_OK;
}

static ist_status read_plain(reader *r, json_t *root) {
    const char *file;
    json_t *array, *item;
    json_object_foreach(root, file, array) {
        ist_target_list *list;
        size_t i;
        if (!json_is_array(array))
            return ist_fail(r->err, IST_E_INPUT, "%s: %s: expected an array of targets", r->source, file);
        IST_TRY(list_of(r, file, &list));
        size_t index = (size_t)(list - r->targets->lists);
        json_array_foreach(array, i, item) {
            float box[4];
            IST_TRY(read_four(r, json_object_get(item, "box"), file, box));
            IST_TRY(add_target(r, file, index, box, json_object_get(item, "label")));
        }
    }
    return IST_OK;
}

/* ids: image id as text -> index of its list */
static ist_status read_coco_images(reader *r, const json_t *images, ist_name_map *ids) {
    size_t i;
    json_t *image;
    json_array_foreach(images, i, image) {
        const char *file = json_string_value(json_object_get(image, "file_name"));
        const json_t *id = json_object_get(image, "id");
        char key[32];
        bool inserted;
        ist_target_list *list;
        if (!file || !json_is_integer(id))
            return ist_fail(r->err, IST_E_INPUT, "%s: image %zu lacks a file_name or a whole id", r->source, i);
        snprintf(key, sizeof key, "%lld", (long long)json_integer_value(id));
        IST_TRY(list_of(r, file, &list));
        if (!ist_name_map_insert(ids, key, (size_t)(list - r->targets->lists), &inserted)) return out_of_memory(r);
        if (!inserted) return ist_fail(r->err, IST_E_INPUT, "%s: image id %s appears twice", r->source, key);
    }
    return IST_OK;
}

static ist_status read_coco_annotations(reader *r, const json_t *annotations, const ist_name_map *ids) {
    size_t i;
    json_t *annotation;
    json_array_foreach(annotations, i, annotation) {
        const json_t *id = json_object_get(annotation, "image_id");
        char key[32], place[48];
        float box[4];
        snprintf(key, sizeof key, "%lld", (long long)json_integer_value(id));
        snprintf(place, sizeof place, "annotation %zu", i);
        const size_t *list = json_is_integer(id) ? ist_name_map_find(ids, key) : NULL;
        if (!list) return ist_fail(r->err, IST_E_INPUT, "%s: %s has an unknown image_id", r->source, place);
        IST_TRY(read_four(r, json_object_get(annotation, "bbox"), place, box));
        box[2] += box[0];
        box[3] += box[1];
        IST_TRY(add_target(r, place, *list, box, json_object_get(annotation, "category_id")));
    }
    return IST_OK;
}

/* Categories without a name or with an id that no annotation can have are left out. */
static ist_status read_coco_categories(reader *r, const json_t *categories) {
    size_t i;
    json_t *category;
    json_array_foreach(categories, i, category) {
        const char *name = json_string_value(json_object_get(category, "name"));
        json_int_t id = json_integer_value(json_object_get(category, "id"));
        if (!name || !json_is_integer(json_object_get(category, "id")) || id < 0 || id > INT_MAX) continue;
        if (!ist_name_map_insert(&r->targets->named_ids, name, (size_t)id, NULL)) return out_of_memory(r);
    }
    return IST_OK;
}

static ist_status read_root(reader *r, json_t *root) {
    json_t *images = json_object_get(root, "images"), *annotations = json_object_get(root, "annotations");
    if (!json_is_object(root))
        return ist_fail(r->err, IST_E_INPUT, "%s: expected a JSON object of file names or COCO annotations", r->source);
    if (!images || !annotations) return read_plain(r, root);
    if (!json_is_array(images) || !json_is_array(annotations))
        return ist_fail(r->err, IST_E_INPUT, "%s: images and annotations must be arrays", r->source);
    ist_name_map ids = {0};
    r->targets->categories = true;
    ist_status status = read_coco_images(r, images, &ids);
    if (!status) status = read_coco_annotations(r, annotations, &ids);
    if (!status) status = read_coco_categories(r, json_object_get(root, "categories"));
    ist_name_map_free(&ids);
    return status;
}

ist_status ist_targets_parse(const char *text, size_t length, const char *source, ist_targets *targets,
                             ist_error *err) {
    *targets = (ist_targets){0};
    json_error_t error;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!root) return ist_fail(err, IST_E_INPUT, "%s: line %d: %s", source, error.line, error.text);
    reader r = {targets, source, err};
    ist_status status = read_root(&r, root);
    json_decref(root);
    if (status) ist_targets_free(targets);
    return status;
}

ist_status ist_targets_read(const char *path, ist_targets *targets, ist_error *err) {
    char *text = NULL;
    size_t length = 0;
    IST_TRY(ist_read_file(path, MAX_TARGETS_BYTES, &text, &length, err));
    ist_status status = ist_targets_parse(text, length, path, targets, err);
    free(text);
    return status;
}

void ist_targets_free(ist_targets *targets) {
    for (size_t i = 0; i < targets->count; i++) free(targets->lists[i].items);
    free(targets->lists);
    ist_name_map_free(&targets->files);
    ist_name_map_free(&targets->named_ids);
    *targets = (ist_targets){0};
}

const ist_target_list *ist_targets_find(const ist_targets *targets, const char *path, const char *name) {
    const size_t *index = ist_name_map_find_image(&targets->files, path, name);
    return index ? &targets->lists[*index] : NULL;
}
