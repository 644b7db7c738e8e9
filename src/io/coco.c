/* Reader of COCO annotations and results: see coco.h. Masks are read in coco_mask.c. */
#include "io/coco_reader.h"

#include "io/atomic_file.h"

#include "base/mem.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COCO_BYTES ((size_t)4 << 30)

/* Beyond this a coordinate or an area is a mistake, and products of two still are exact enough. */
#define MAX_NUMBER 1e12

/* Longest side and most pixels of an image; run lengths need the latter. */
enum { MAX_SIDE = 1 << 20 };

ist_status coco_bad(const coco_reader *r, const char *fmt, ...) {
    char text[320];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return ist_fail(r->err, IST_E_INPUT, "%s: %s %zu: %s", r->source, r->what, r->index, text);
}

static ist_status out_of_memory(const coco_reader *r) {
    return ist_fail(r->err, IST_E_MEMORY, "%s: out of memory at %s %zu", r->source, r->what, r->index);
}

/* Also 7.0: tables of floats that become JSON have their ids so. 0 and false for anything else. */
static bool whole_number(const json_t *value, int64_t *number) {
    double real = json_real_value(value);
    bool whole = json_is_real(value) && fabs(real) <= MAX_NUMBER && real == floor(real);
    *number = whole ? (int64_t)real : json_integer_value(value);
    return whole || json_is_integer(value);
}

static ist_status read_id(const coco_reader *r, const json_t *item, const char *name, int64_t *id) {
    if (!whole_number(json_object_get(item, name), id)) return coco_bad(r, "%s is missing or no whole number", name);
    return IST_OK;
}

static ist_status read_number(const coco_reader *r, const json_t *value, const char *name, double *out) {
    *out = json_number_value(value);
    if (!json_is_number(value)) return coco_bad(r, "%s is missing or no number", name);
    if (!(fabs(*out) <= MAX_NUMBER)) return coco_bad(r, "%s is %g", name, *out);
    return IST_OK;
}

static ist_status read_box(const coco_reader *r, const json_t *item, double box[4]) {
    const json_t *array = json_object_get(item, "bbox");
    if (json_array_size(array) != 4) return coco_bad(r, "bbox is missing or not an array of four numbers");
    for (size_t i = 0; i < 4; i++) IST_TRY(read_number(r, json_array_get(array, i), "a number of bbox", &box[i]));
    return IST_OK;
}

/* Both sides, or 0 and 0 when the image says neither. */
static ist_status read_size(const coco_reader *r, const json_t *item, ist_coco_image *image) {
    const json_t *w = json_object_get(item, "width"), *h = json_object_get(item, "height");
    int64_t width, height;
    if (!w && !h) return IST_OK;
    if (!whole_number(w, &width) || !whole_number(h, &height))
        return coco_bad(r, "width and height must be whole numbers");
    return coco_size(r, width, height, &image->width, &image->height);
}

ist_status coco_size(const coco_reader *r, int64_t w, int64_t h, int *width, int *height) {
    if (w < 1 || h < 1 || w > MAX_SIDE || h > MAX_SIDE || w * h > INT32_MAX)
        return coco_bad(r, "a size of %lld x %lld pixels", (long long)w, (long long)h);
    *width = (int)w;
    *height = (int)h;
    return IST_OK;
}

static ist_status copy_text(const coco_reader *r, const json_t *item, const char *name, char **out) {
    const json_t *value = json_object_get(item, name);
    if (!value) return IST_OK;
    if (!json_is_string(value)) return coco_bad(r, "%s is no text", name);
    *out = ist_strdup(json_string_value(value));
    return *out ? IST_OK : out_of_memory(r);
}

static ist_status read_image(coco_reader *r, const json_t *item) {
    ist_coco *c = r->coco;
    if (!ist_grow((void **)&c->images, &c->image_capacity, c->image_count + 1, sizeof *c->images))
        return out_of_memory(r);
    ist_coco_image *image = &c->images[c->image_count++];
    *image = (ist_coco_image){.used = true};
    IST_TRY(read_id(r, item, "id", &image->id));
    IST_TRY(read_size(r, item, image));
    return copy_text(r, item, "file_name", &image->file);
}

static ist_status add_category(coco_reader *r, int64_t id, ist_coco_category **category) {
    ist_coco *c = r->coco;
    if (!ist_grow((void **)&c->categories, &c->category_capacity, c->category_count + 1, sizeof *c->categories))
        return out_of_memory(r);
    *category = &c->categories[c->category_count++];
    **category = (ist_coco_category){.id = id};
    return IST_OK;
}

static ist_status read_category(coco_reader *r, const json_t *item) {
    ist_coco_category *category;
    int64_t id = 0;
    IST_TRY(read_id(r, item, "id", &id));
    IST_TRY(add_category(r, id, &category));
    IST_TRY(copy_text(r, item, "name", &category->name));
    if (!category->name && !(category->name = ist_strdup(""))) return out_of_memory(r);
    return IST_OK;
}

/* Both kinds of entries begin with their id. */
static int compare_ids(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

_Static_assert(!offsetof(ist_coco_image, id) && !offsetof(ist_coco_category, id), "compare_ids reads the first field");

static ist_status sort_ids(coco_reader *r, void *items, size_t count, size_t size, const char *what) {
    if (count) qsort(items, count, size, compare_ids);
    for (size_t i = 1; i < count; i++) {
        const char *at = (const char *)items + i * size;
        if (!compare_ids(at, at - size))
            return ist_fail(r->err, IST_E_INPUT, "%s: %s id %lld appears twice", r->source, what,
                            (long long)*(const int64_t *)(const void *)at);
    }
    return IST_OK;
}

ist_status coco_find_image(const coco_reader *r, const json_t *item, size_t *place) {
    int64_t id = 0;
    IST_TRY(read_id(r, item, "image_id", &id));
    const ist_coco *c = r->coco;
    const ist_coco_image *found = NULL;
    if (c->image_count) found = bsearch(&id, c->images, c->image_count, sizeof *c->images, compare_ids);
    if (!found) return coco_bad(r, "there is no image with the image_id %lld", (long long)id);
    *place = (size_t)(found - c->images);
    return IST_OK;
}

/* *found false when there is none with that id. */
static ist_status find_category(const coco_reader *r, const json_t *item, size_t *place, int64_t *id, bool *found) {
    IST_TRY(read_id(r, item, "category_id", id));
    const ist_coco *c = r->coco;
    const ist_coco_category *category = NULL;
    if (c->category_count) category = bsearch(id, c->categories, c->category_count, sizeof *c->categories, compare_ids);
    *found = category != NULL;
    if (*found) *place = (size_t)(category - c->categories);
    return IST_OK;
}

static ist_status new_object(coco_reader *r, ist_coco_object **object) {
    ist_coco_list *l = r->list;
    if (!ist_grow((void **)&l->items, &l->capacity, l->count + 1, sizeof *l->items)) return out_of_memory(r);
    *object = &l->items[l->count++];
    **object = (ist_coco_object){0};
    return IST_OK;
}

static ist_status read_annotation(coco_reader *r, const json_t *item) {
    ist_coco_object *o;
    int64_t category = 0, id = 1;
    bool found;
    const json_t *crowd = json_object_get(item, "iscrowd"), *area = json_object_get(item, "area");
    IST_TRY(new_object(r, &o));
    IST_TRY(coco_find_image(r, item, &o->image));
    IST_TRY(find_category(r, item, &o->category, &category, &found));
    if (!found) return coco_bad(r, "there is no category with the id %lld", (long long)category);
    if (json_object_get(item, "id")) IST_TRY(read_id(r, item, "id", &id));
    o->no_id = id == 0;
    IST_TRY(read_box(r, item, o->box));
    if (o->box[2] < 0 || o->box[3] < 0) return coco_bad(r, "a box of %g x %g", o->box[2], o->box[3]);
    if (crowd && !json_is_integer(crowd) && !json_is_boolean(crowd)) return coco_bad(r, "iscrowd is neither 0 nor 1");
    o->crowd = json_is_true(crowd) || json_integer_value(crowd);
    IST_TRY(coco_read_mask(r, json_object_get(item, "segmentation"), o));
    if (!o->height) r->list->masks = false;
    o->area = o->height ? (double)ist_rle_area(&o->mask) : o->box[2] * o->box[3];
    return area ? read_number(r, area, "area", &o->area) : IST_OK;
}

static ist_status read_result(coco_reader *r, const json_t *item) {
    ist_coco_object *o;
    int64_t category = 0;
    bool found;
    const json_t *box = json_object_get(item, "bbox");
    IST_TRY(new_object(r, &o));
    IST_TRY(coco_find_image(r, item, &o->image));
    IST_TRY(find_category(r, item, &o->category, &category, &found));
    IST_TRY(read_number(r, json_object_get(item, "score"), "score", &o->score));
    bool has_box = json_array_size(box) > 0;
    if (!r->index) r->boxes = has_box;
    if (r->boxes || has_box) IST_TRY(read_box(r, item, o->box));
    IST_TRY(coco_read_mask(r, json_object_get(item, "segmentation"), o));
    if (!r->boxes && !o->height) return coco_bad(r, "there is neither a bbox nor a segmentation");
    if (o->height) r->list->masks = true;
    if (!has_box) ist_rle_box(&o->mask, o->height, o->box);
    o->area = r->boxes ? o->box[2] * o->box[3] : (double)ist_rle_area(&o->mask);
    if (found) return IST_OK;
    ist_rle_free(&o->mask);
    r->list->count--;
    r->list->skipped++;
    return IST_OK;
}

static ist_status each(coco_reader *r, const json_t *array, const char *what,
                       ist_status (*read)(coco_reader *, const json_t *)) {
    size_t i;
    json_t *item;
    r->what = what;
    json_array_foreach(array, i, item) {
        r->index = i;
        if (!json_is_object(item)) return coco_bad(r, "it is no JSON object");
        IST_TRY(read(r, item));
    }
    return IST_OK;
}

/* Categories of a file that does not list them: those that annotations name. */
static ist_status collect_categories(coco_reader *r, const json_t *annotations) {
    size_t i, count = 0;
    json_t *item;
    int64_t *ids = malloc((json_array_size(annotations) + 1) * sizeof *ids);
    if (!ids) return out_of_memory(r);
    json_array_foreach(annotations, i, item) whole_number(json_object_get(item, "category_id"), &ids[count++]);
    if (count) qsort(ids, count, sizeof *ids, compare_ids);
    ist_status status = IST_OK;
    for (i = 0; i < count && !status; i++) {
        ist_coco_category *category;
        if (i && ids[i] == ids[i - 1]) continue;
        status = add_category(r, ids[i], &category);
        if (!status && !(category->name = ist_strdup(""))) status = out_of_memory(r);
    }
    free(ids);
    return status;
}

/* Annotation ids name one annotation each; one without an id is free of that. */
static ist_status check_ids(coco_reader *r, const json_t *annotations) {
    size_t i, count = 0;
    json_t *item;
    int64_t *ids = malloc((json_array_size(annotations) + 1) * sizeof *ids);
    if (!ids) return out_of_memory(r);
    json_array_foreach(annotations, i, item) {
        const json_t *id = json_object_get(item, "id");
        if (id) whole_number(id, &ids[count++]);
    }
    ist_status status = sort_ids(r, ids, count, sizeof *ids, "annotation");
    free(ids);
    return status;
}

static ist_status read_truth(coco_reader *r, const json_t *root) {
    ist_coco *c = r->coco;
    const json_t *images = json_object_get(root, "images"), *annotations = json_object_get(root, "annotations"),
                 *categories = json_object_get(root, "categories");
    if (!json_is_array(images) || !json_is_array(annotations))
        return ist_fail(r->err, IST_E_INPUT,
                        "%s: expected COCO annotations: an object with arrays images, annotations "
                        "and categories",
                        r->source);
    if (categories && !json_is_array(categories))
        return ist_fail(r->err, IST_E_INPUT, "%s: categories must be an array", r->source);
    r->list = &c->objects;
    c->objects.masks = true;
    IST_TRY(each(r, images, "image", read_image));
    IST_TRY(sort_ids(r, c->images, c->image_count, sizeof *c->images, "image"));
    if (categories)
        IST_TRY(each(r, categories, "category", read_category));
    else
        IST_TRY(collect_categories(r, annotations));
    IST_TRY(sort_ids(r, c->categories, c->category_count, sizeof *c->categories, "category"));
    IST_TRY(each(r, annotations, "annotation", read_annotation));
    return check_ids(r, annotations);
}

/* Once any result has a mask, all must: the box stands in. */
static ist_status complete_masks(coco_reader *r) {
    for (size_t i = 0; r->list->masks && i < r->list->count; i++) {
        r->index = i;
        if (!r->list->items[i].height) IST_TRY(coco_box_mask(r, &r->list->items[i]));
    }
    return IST_OK;
}

static ist_status load(const char *text, size_t length, const char *source, json_t **root, ist_error *err) {
    json_error_t error;
    *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    return *root ? IST_OK : ist_fail(err, IST_E_INPUT, "%s: line %d: %s", source, error.line, error.text);
}

ist_status ist_coco_parse(const char *text, size_t length, const char *source, ist_coco *coco, ist_error *err) {
    *coco = (ist_coco){0};
    json_t *root;
    IST_TRY(load(text, length, source, &root, err));
    coco_reader r = {.source = source, .err = err, .coco = coco};
    ist_status status = read_truth(&r, root);
    json_decref(root);
    ist_raster_free(&r.raster);
    free(r.points);
    if (status) ist_coco_free(coco);
    return status;
}

ist_status ist_coco_results_parse(const char *text, size_t length, const char *source, const ist_coco *coco,
                                  ist_coco_list *results, ist_error *err) {
    *results = (ist_coco_list){0};
    json_t *root;
    IST_TRY(load(text, length, source, &root, err));
    ist_coco borrowed = *coco; /* read only here */
    coco_reader r = {.source = source, .err = err, .coco = &borrowed, .list = results};
    ist_status status = IST_OK;
    if (!json_is_array(root))
        status = ist_fail(err, IST_E_INPUT, "%s: expected COCO results: an array of objects", source);
    if (!status) status = each(&r, root, "result", read_result);
    if (!status) status = complete_masks(&r);
    json_decref(root);
    ist_raster_free(&r.raster);
    free(r.points);
    if (status) ist_coco_list_free(results);
    return status;
}

ist_status ist_coco_read(const char *path, ist_coco *coco, ist_error *err) {
    char *text = NULL;
    size_t length = 0;
    IST_TRY(ist_read_file(path, MAX_COCO_BYTES, &text, &length, err));
    ist_status status = ist_coco_parse(text, length, path, coco, err);
    free(text);
    return status;
}

ist_status ist_coco_results_read(const char *path, const ist_coco *coco, ist_coco_list *results, ist_error *err) {
    char *text = NULL;
    size_t length = 0;
    IST_TRY(ist_read_file(path, MAX_COCO_BYTES, &text, &length, err));
    ist_status status = ist_coco_results_parse(text, length, path, coco, results, err);
    free(text);
    return status;
}

void ist_coco_list_free(ist_coco_list *list) {
    for (size_t i = 0; i < list->count; i++) ist_rle_free(&list->items[i].mask);
    free(list->items);
    *list = (ist_coco_list){0};
}

void ist_coco_free(ist_coco *coco) {
    for (size_t i = 0; i < coco->image_count; i++) free(coco->images[i].file);
    for (size_t i = 0; i < coco->category_count; i++) free(coco->categories[i].name);
    free(coco->images);
    free(coco->categories);
    ist_coco_list_free(&coco->objects);
    *coco = (ist_coco){0};
}

/* Category of this name, or -1. */
static int64_t category_named(const ist_coco *coco, const char *name) {
    for (size_t i = 0; i < coco->category_count; i++)
        if (*name && !strcmp(coco->categories[i].name, name)) return coco->categories[i].id;
    return -1;
}

static bool has_category(const ist_coco *coco, int64_t id) {
    return coco->category_count &&
           bsearch(&id, coco->categories, coco->category_count, sizeof *coco->categories, compare_ids);
}

ist_status ist_coco_relabel(const ist_coco *coco, ist_labels *labels, size_t *missing, ist_error *err) {
    size_t count = labels->count > 0 ? (size_t)labels->count : 0, named = 0, present = 0;
    int64_t *ids = malloc((count + 1) * sizeof *ids);
    if (!ids) return ist_fail(err, IST_E_MEMORY, "out of memory for %zu classes", count);
    for (size_t i = 0; i < count; i++) {
        ids[i] = category_named(coco, labels->names[i]);
        named += ids[i] >= 0;
    }
    for (size_t i = 0; i < count && !named; i++) {
        int64_t id = ist_label_category(labels, (int)i);
        if (has_category(coco, id)) ids[i] = id;
    }
    for (size_t i = 0; i < count; i++) present += ids[i] >= 0;
    labels->categories = ids;
    *missing = coco->category_count > present ? coco->category_count - present : 0;
    return IST_OK;
}
