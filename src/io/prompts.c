/* Reader of prompts: see prompts.h. */
#include "io/prompts.h"

#include "io/atomic_file.h"
#include "io/targets.h"

#include "base/mem.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PROMPTS_BYTES ((size_t)1 << 30)

/* Where a sentence is about. */
typedef struct reader {
    ist_prompt_file *prompts;
    const char *source, *file; /* file NULL: one prompt alone */
    size_t index;              /* of the prompt in its image's list */
    ist_error *err;
} reader;

static ist_status out_of_memory(const reader *r) {
    return ist_fail(r->err, IST_E_MEMORY, "%s: out of memory", r->source);
}

/* Puts "FILE: a.png, prompt 2: " in front of the sentence. */
static ist_status add_place(const reader *r) {
    if (!r->file) return ist_fail_context(r->err, "%s", r->source);
    return ist_fail_context(r->err, "%s: %s, prompt %zu", r->source, r->file, r->index);
}

/* A sentence with its place; returns IST_E_INPUT. */
#define BAD(r, ...) (ist_fail((r)->err, IST_E_INPUT, __VA_ARGS__), add_place(r), IST_E_INPUT)

/* `count` finite numbers. */
static ist_status read_numbers(const reader *r, const json_t *array, const char *what, size_t count, float *out) {
    if (!json_is_array(array) || json_array_size(array) != count)
        return BAD(r, "%s must be an array of %zu numbers", what, count);
    for (size_t i = 0; i < count; i++) {
        const json_t *number = json_array_get(array, i);
        out[i] = (float)json_number_value(number);
        if (!json_is_number(number) || !isfinite(out[i])) return BAD(r, "element %zu of %s is not a number", i, what);
    }
    return IST_OK;
}

static ist_status read_points(const reader *r, const json_t *points, ist_prompt_entry *p) {
    size_t i;
    json_t *point;
    if (!json_is_array(points)) return BAD(r, "points must be an array of [x, y, label]");
    if (json_array_size(points) > IST_PROMPT_POINTS)
        return BAD(r, "%zu points, at most %d", json_array_size(points), IST_PROMPT_POINTS);
    json_array_foreach(points, i, point) {
        float v[3];
        IST_TRY(read_numbers(r, point, "a point", 3, v));
        if (v[2] != 0 && v[2] != 1) return BAD(r, "label %g of a point, want 1 (in) or 0 (out)", (double)v[2]);
        if (!ist_grow((void **)&p->points, &p->point_capacity, i + 1, sizeof *p->points)) return out_of_memory(r);
        p->points[p->point_count++] = (ist_point){v[0], v[1], (int)v[2]};
    }
    return IST_OK;
}

/* The name of a mask's file beside `source`. */
static ist_status read_mask(const reader *r, const json_t *mask, ist_prompt_entry *p) {
    const char *name = json_string_value(mask), *slash = strrchr(r->source, '/');
    if (!r->file) return BAD(r, "a mask cannot be given here");
    if (!name || !*name) return BAD(r, "mask must be the name of a .npy file");
    char *folder = *name != '/' && slash ? ist_strdup(r->source) : NULL;
    if (*name == '/' || !slash) {
        p->mask = ist_strdup(name);
    } else if (folder) {
        folder[slash - r->source] = '\0';
        p->mask = ist_path_join(*folder ? folder : "/", name);
    }
    free(folder);
    return p->mask ? IST_OK : out_of_memory(r);
}

static ist_status read_prompt(const reader *r, const json_t *item, ist_prompt_entry *p) {
    const json_t *points = json_object_get(item, "points"), *box = json_object_get(item, "box");
    const json_t *mask = json_object_get(item, "mask");
    if (!json_is_object(item)) return BAD(r, "it must be an object with points, a box or a mask");
    if (points) IST_TRY(read_points(r, points, p));
    if (box) IST_TRY(read_numbers(r, box, "a box", 4, p->box));
    if (mask) IST_TRY(read_mask(r, mask, p));
    p->boxed = box != NULL;
    if (p->boxed && !(p->box[0] <= p->box[2] && p->box[1] <= p->box[3]))
        return BAD(r, "box [%g, %g, %g, %g] is inside out", (double)p->box[0], (double)p->box[1], (double)p->box[2],
                   (double)p->box[3]);
    return p->point_count || box || mask ? IST_OK : BAD(r, "neither points nor a box nor a mask");
}

static ist_status add_entry(const reader *r, ist_prompt_list *list, ist_prompt_entry **entry) {
    if (!ist_grow((void **)&list->items, &list->capacity, list->count + 1, sizeof *list->items))
        return out_of_memory(r);
    *entry = &list->items[list->count++];
    **entry = (ist_prompt_entry){0};
    return IST_OK;
}

/* A list for a file name that is not there yet. */
static ist_status add_list(const reader *r, ist_prompt_list **list) {
    ist_prompt_file *p = r->prompts;
    if (!ist_grow((void **)&p->lists, &p->capacity, p->count + 1, sizeof *p->lists) ||
        !ist_name_map_insert(&p->files, r->file, p->count, NULL))
        return out_of_memory(r);
    *list = &p->lists[p->count++];
    **list = (ist_prompt_list){0};
    return IST_OK;
}

static ist_status read_plain(reader *r, json_t *root) {
    json_t *array, *item;
    json_object_foreach(root, r->file, array) {
        ist_prompt_list *list;
        if (!json_is_array(array))
            return ist_fail(r->err, IST_E_INPUT, "%s: %s: expected an array of prompts", r->source, r->file);
        IST_TRY(add_list(r, &list));
        json_array_foreach(array, r->index, item) {
            ist_prompt_entry *entry;
            IST_TRY(add_entry(r, list, &entry));
            IST_TRY(read_prompt(r, item, entry));
        }
    }
    return IST_OK;
}

/* The boxes of annotations, with the names of their files. */
static ist_status take_targets(reader *r, ist_targets *targets) {
    ist_prompt_file *p = r->prompts;
    p->files = targets->files;
    targets->files = (ist_name_map){0};
    p->lists = calloc(targets->count ? targets->count : 1, sizeof *p->lists);
    if (!p->lists) return out_of_memory(r);
    p->count = p->capacity = targets->count;
    for (size_t i = 0; i < p->count; i++)
        for (size_t k = 0; k < targets->lists[i].count; k++) {
            ist_prompt_entry *entry;
            IST_TRY(add_entry(r, &p->lists[i], &entry));
            entry->boxed = true;
            memcpy(entry->box, targets->lists[i].items[k].box, sizeof entry->box);
        }
    return IST_OK;
}

static ist_status read_root(reader *r, const char *text, size_t length, json_t *root) {
    if (!json_is_object(root))
        return ist_fail(r->err, IST_E_INPUT, "%s: expected a JSON object of file names or COCO annotations", r->source);
    if (!json_object_get(root, "images") || !json_object_get(root, "annotations")) return read_plain(r, root);
    ist_targets targets;
    IST_TRY(ist_targets_parse(text, length, r->source, &targets, r->err));
    ist_status status = take_targets(r, &targets);
    ist_targets_free(&targets);
    return status;
}

ist_status ist_prompt_file_parse(const char *text, size_t length, const char *source, ist_prompt_file *prompts,
                                 ist_error *err) {
    *prompts = (ist_prompt_file){0};
    json_error_t error;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!root) return ist_fail(err, IST_E_INPUT, "%s: line %d: %s", source, error.line, error.text);
    ist_error own = {0};
    reader r = {.prompts = prompts, .source = source, .err = &own};
    ist_status status = read_root(&r, text, length, root);
    json_decref(root);
    if (status) ist_prompt_file_free(prompts);
    if (status && err) *err = own;
    return status;
}

ist_status ist_prompt_parse(const char *text, size_t length, const char *source, ist_prompt_entry *prompt,
                            ist_error *err) {
    *prompt = (ist_prompt_entry){0};
    json_error_t error;
    json_t *item = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!item) return ist_fail(err, IST_E_INPUT, "%s: line %d: %s", source, error.line, error.text);
    ist_error own = {0};
    const reader r = {.source = source, .err = &own};
    ist_status status = read_prompt(&r, item, prompt);
    json_decref(item);
    if (status) ist_prompt_entry_free(prompt);
    if (status && err) *err = own;
    return status;
}

ist_status ist_prompt_file_read(const char *path, ist_prompt_file *prompts, ist_error *err) {
    char *text = NULL;
    size_t length = 0;
    *prompts = (ist_prompt_file){0};
    IST_TRY(ist_read_file(path, MAX_PROMPTS_BYTES, &text, &length, err));
    ist_status status = ist_prompt_file_parse(text, length, path, prompts, err);
    free(text);
    return status;
}

void ist_prompt_entry_free(ist_prompt_entry *prompt) {
    free(prompt->points);
    free(prompt->mask);
    *prompt = (ist_prompt_entry){0};
}

void ist_prompt_file_free(ist_prompt_file *prompts) {
    for (size_t i = 0; i < prompts->count; i++) {
        ist_prompt_list *list = &prompts->lists[i];
        for (size_t k = 0; k < list->count; k++) ist_prompt_entry_free(&list->items[k]);
        free(list->items);
    }
    free(prompts->lists);
    ist_name_map_free(&prompts->files);
    *prompts = (ist_prompt_file){0};
}

const ist_prompt_list *ist_prompt_file_find(const ist_prompt_file *prompts, const char *path, const char *name) {
    const size_t *index = ist_name_map_find_image(&prompts->files, path, name);
    return index ? &prompts->lists[*index] : NULL;
}
