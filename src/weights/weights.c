/* The checkpoint handle: element types, the tensor store, metadata, class names, and opening by content. Tensors are
 * sorted by name and unique once a reader is done. */
#include "weights/weights.h"
#include "weights/store.h"
#include "weights/sums.h"

#include "base/mem.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- element types and shapes ---- */

static const struct {
    const char *name;
    size_t bytes;
} weight_types[] = {
#define X(id, name, bytes) {name, bytes},
    IST_WEIGHT_TYPE_LIST(X)
#undef X
};

const char *ist_weight_type_name(ist_weight_type type) {
    return type < IST_WEIGHT_TYPES ? weight_types[type].name : "?";
}

size_t ist_weight_type_bytes(ist_weight_type type) {
    return type < IST_WEIGHT_TYPES ? weight_types[type].bytes : 0;
}

char *ist_weight_shape_text(int rank, const int64_t *dims, char *text, size_t size) {
    size_t used = 0;
    int n = snprintf(text, size, "[");
    for (int i = 0; i < rank && n >= 0 && used + (size_t)n < size; i++) {
        used += (size_t)n;
        const char *comma = i ? "," : "";
        n = dims[i] < 0 ? snprintf(text + used, size - used, "%s*", comma)
                        : snprintf(text + used, size - used, "%s%lld", comma, (long long)dims[i]);
    }
    if (n >= 0 && used + (size_t)n < size) {
        used += (size_t)n;
        snprintf(text + used, size - used, "]");
    }
    return text;
}

bool ist_shape_size(ist_weight_type type, int rank, const int64_t *dims, size_t *count, size_t *bytes) {
    if (rank < 0 || rank > IST_WEIGHT_RANK_MAX || type >= IST_WEIGHT_TYPES) return false;
    size_t n = 1;
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0 || (uint64_t)dims[i] > SIZE_MAX || !ist_mul_size(n, (size_t)dims[i], &n)) return false;
    *count = n;
    return ist_mul_size(n, weight_types[type].bytes, bytes);
}

ist_status ist_weight_check_shape(const ist_weight *weight, int rank, const int64_t *dims, ist_error *err) {
    bool same = weight->rank == rank;
    for (int i = 0; same && i < rank; i++) same = dims[i] < 0 || dims[i] == weight->dims[i];
    if (same) return IST_OK;
    char want[96], have[96];
    return ist_fail(err, IST_E_WEIGHTS, "%s: want %s, file has %s", weight->name,
                    ist_weight_shape_text(rank, dims, want, sizeof want),
                    ist_weight_shape_text(weight->rank, weight->dims, have, sizeof have));
}

/* ---- the store ---- */

ist_status ist_weights_create(ist_weights **out, ist_error *err) {
    ist_weights *w = calloc(1, sizeof *w);
    if (!w) return ist_fail(err, IST_E_MEMORY, "out of host memory for a checkpoint handle");
    w->format = "memory";
    w->naming = "official";
    *out = w;
    return IST_OK;
}

void ist_weights_close(ist_weights **weights) {
    if (!weights || !*weights) return;
    ist_weights *w = *weights;
    for (size_t i = 0; i < w->count; i++) {
        free((char *)w->items[i].name);
        free((char *)w->items[i].in_file);
    }
    for (size_t i = 0; i < w->block_count; i++) free(w->blocks[i]);
    for (size_t i = 0; i < w->metadata_count; i++) {
        free(w->metadata[i].key);
        free(w->metadata[i].value);
    }
    for (size_t i = 0; i < w->class_count; i++) free(w->classes[i]);
    free(w->items);
    free(w->blocks);
    free(w->metadata);
    free(w->classes);
    free(w);
    *weights = NULL;
}

void *ist_store_block(ist_weights *w, size_t bytes) {
    if (!ist_grow((void **)&w->blocks, &w->block_capacity, w->block_count + 1, sizeof *w->blocks)) return NULL;
    void *block = malloc(bytes ? bytes : 1);
    if (block) w->blocks[w->block_count++] = block;
    return block;
}

static ist_status check_name(const char *name, size_t index, ist_error *err) {
    size_t n = strlen(name);
    if (n == 0 || n > IST_WEIGHTS_NAME_MAX)
        return ist_fail(err, IST_E_WEIGHTS, "tensor %zu has a name of %zu bytes, the limit is 1 to %d", index, n,
                        IST_WEIGHTS_NAME_MAX);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return ist_fail(err, IST_E_WEIGHTS, "tensor %zu has control character 0x%02x in its name", index,
                            (unsigned char)name[i]);
    return IST_OK;
}

ist_status ist_store_tensor(ist_weights *w, const char *name, ist_weight_type type, int rank, const int64_t *dims,
                            const void *data, size_t bytes, ist_error *err) {
    IST_TRY(check_name(name, w->count, err));
    ist_weight t = {.type = type, .rank = rank, .data = data};
    if (!ist_shape_size(type, rank, dims, &t.count, &t.bytes) || t.bytes != bytes)
        return ist_fail(err, IST_E_WEIGHTS, "%s: shape and type do not give %zu bytes", name, bytes);
    for (int i = 0; i < rank; i++) t.dims[i] = dims[i];
    if (w->count >= IST_WEIGHTS_TENSORS_MAX)
        return ist_fail(err, IST_E_WEIGHTS, "%s: more than %d tensors in one file", name, IST_WEIGHTS_TENSORS_MAX);
    if (!ist_grow((void **)&w->items, &w->capacity, w->count + 1, sizeof *w->items) || !(t.name = ist_strdup(name)))
        return ist_fail(err, IST_E_MEMORY, "out of host memory for the tensor list (%zu entries)", w->count + 1);
    w->items[w->count++] = t;
    return IST_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const ist_weight *)a)->name, ((const ist_weight *)b)->name);
}

ist_status ist_weights_add(ist_weights *w, const char *name, ist_weight_type type, int rank, const int64_t *dims,
                           const void *data, ist_error *err) {
    size_t count, bytes;
    if (!ist_shape_size(type, rank, dims, &count, &bytes))
        return ist_fail(err, IST_E_ARGUMENT, "%s: the shape is out of range", name);
    if (ist_weights_find(w, name)) return ist_fail(err, IST_E_ARGUMENT, "%s: added twice", name);
    void *block = ist_store_block(w, bytes);
    if (!block) return ist_fail(err, IST_E_MEMORY, "%s: out of host memory (%zu bytes)", name, bytes);
    if (bytes) memcpy(block, data, bytes);
    IST_TRY(ist_store_tensor(w, name, type, rank, dims, block, bytes, err));
    size_t at = w->count - 1;
    ist_weight added = w->items[at];
    while (at > 0 && strcmp(w->items[at - 1].name, name) > 0) at--;
    memmove(w->items + at + 1, w->items + at, (w->count - 1 - at) * sizeof *w->items);
    w->items[at] = added;
    return IST_OK;
}

size_t ist_weights_count(const ist_weights *w) {
    return w->count;
}

const ist_weight *ist_weights_at(const ist_weights *w, size_t index) {
    return index < w->count ? &w->items[index] : NULL;
}

const ist_weight *ist_weights_find(const ist_weights *w, const char *name) {
    ist_weight key = {.name = name};
    return w->count ? bsearch(&key, w->items, w->count, sizeof *w->items, by_name) : NULL;
}

const char *ist_weights_format(const ist_weights *w) {
    return w->format;
}

bool ist_weights_listed(const ist_weights *w) {
    return w->listed;
}

const char *ist_weights_naming(const ist_weights *w) {
    return w->naming;
}

/* ---- metadata and class names ---- */

ist_status ist_weights_set_metadata(ist_weights *w, const char *key, const char *value, ist_error *err) {
    char *k = NULL, *v = ist_strdup(value);
    for (size_t i = 0; v && i < w->metadata_count; i++) {
        if (strcmp(w->metadata[i].key, key)) continue;
        free(w->metadata[i].value);
        w->metadata[i].value = v;
        return IST_OK;
    }
    if (!v || !(k = ist_strdup(key)) ||
        !ist_grow((void **)&w->metadata, &w->metadata_capacity, w->metadata_count + 1, sizeof *w->metadata)) {
        free(k);
        free(v);
        return ist_fail(err, IST_E_MEMORY, "out of host memory for metadata %.64s", key);
    }
    w->metadata[w->metadata_count++] = (ist_metadata){k, v};
    return IST_OK;
}

const char *ist_weights_metadata(const ist_weights *w, const char *key) {
    for (size_t i = 0; i < w->metadata_count; i++)
        if (!strcmp(w->metadata[i].key, key)) return w->metadata[i].value;
    return NULL;
}

size_t ist_weights_metadata_count(const ist_weights *w) {
    return w->metadata_count;
}

void ist_weights_metadata_at(const ist_weights *w, size_t index, const char **key, const char **value) {
    *key = index < w->metadata_count ? w->metadata[index].key : NULL;
    *value = index < w->metadata_count ? w->metadata[index].value : NULL;
}

int ist_weights_class_count(const ist_weights *w) {
    return (int)w->class_count;
}

const char *ist_weights_class_name(const ist_weights *w, int label) {
    return label >= 0 && (size_t)label < w->class_count ? w->classes[label] : NULL;
}

ist_status ist_store_class(ist_weights *w, const char *name, ist_error *err) {
    if (w->class_count >= IST_WEIGHTS_TENSORS_MAX)
        return ist_fail(err, IST_E_WEIGHTS, "class names: more than %d", IST_WEIGHTS_TENSORS_MAX);
    char *copy = ist_strdup(name);
    if (!copy || !ist_grow((void **)&w->classes, &w->class_capacity, w->class_count + 1, sizeof *w->classes)) {
        free(copy);
        return ist_fail(err, IST_E_MEMORY, "out of host memory for class names");
    }
    for (char *c = copy; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = ' ';
    w->classes[w->class_count++] = copy;
    return IST_OK;
}

/* "a, b,c": names are trimmed of blanks at both ends. */
static ist_status classes_from_list(ist_weights *w, const char *text, ist_error *err) {
    char *copy = ist_strdup(text);
    if (!copy) return ist_fail(err, IST_E_MEMORY, "out of host memory for class names");
    ist_status status = IST_OK;
    char *at = copy;
    while (at && !status) {
        char *comma = strchr(at, ',');
        if (comma) *comma = '\0';
        at += strspn(at, " \t");
        size_t n = strlen(at);
        while (n && (at[n - 1] == ' ' || at[n - 1] == '\t')) at[--n] = '\0';
        status = ist_store_class(w, at, err);
        at = comma ? comma + 1 : NULL;
    }
    free(copy);
    return status;
}

/* A JSON array of strings, or an object {"0": "name", ..} with every label from 0 present. */
static ist_status classes_from_json(ist_weights *w, const json_t *json, const char *key, ist_error *err) {
    size_t n = json_is_array(json) ? json_array_size(json) : json_object_size(json);
    for (size_t i = 0; i < n; i++) {
        char label[24];
        snprintf(label, sizeof label, "%zu", i);
        const json_t *name = json_is_array(json) ? json_array_get(json, i) : json_object_get(json, label);
        if (!json_is_string(name))
            return ist_fail(err, IST_E_WEIGHTS, "metadata \"%s\": no name for class %zu of %zu", key, i, n);
        IST_TRY(ist_store_class(w, json_string_value(name), err));
    }
    return IST_OK;
}

/* Text that starts like JSON must be JSON; anything else is a comma list. */
static ist_status classes_from_metadata(ist_weights *w, ist_error *err) {
    static const char *const keys[] = {"names", "class_names"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !w->class_count; i++) {
        const char *text = ist_weights_metadata(w, keys[i]);
        if (!text || !*text) continue;
        char first = text[strspn(text, " \t\r\n")];
        if (first != '[' && first != '{') {
            IST_TRY(classes_from_list(w, text, err));
            continue;
        }
        json_error_t why;
        json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &why);
        if (!json) return ist_fail(err, IST_E_WEIGHTS, "metadata \"%s\" is not valid JSON: %s", keys[i], why.text);
        ist_status status = classes_from_json(w, json, keys[i], err);
        json_decref(json);
        IST_TRY(status);
    }
    return IST_OK;
}

ist_status ist_store_finish(ist_weights *w, ist_error *err) {
    IST_TRY(ist_names_official(w, err));
    if (w->count) qsort(w->items, w->count, sizeof *w->items, by_name);
    for (size_t i = 1; i < w->count; i++)
        if (!strcmp(w->items[i - 1].name, w->items[i].name))
            return ist_fail(err, IST_E_WEIGHTS, "%s: the name appears twice", w->items[i].name);
    if (!w->count) return ist_fail(err, IST_E_WEIGHTS, "the file holds no tensors");
    return w->class_count ? IST_OK : classes_from_metadata(w, err);
}

/* ---- opening ---- */

typedef enum file_format { SAFETENSORS, TORCH_ZIP, TORCH_LEGACY } file_format;

/* Dispatches on the first bytes; `head` holds the first `known` of `size`. */
static ist_status find_format(const uint8_t *head, size_t known, size_t size, file_format *format, ist_error *err) {
    bool zip = known >= 4 && head[0] == 'P' && head[1] == 'K' && head[2] < 8 && head[3] < 9;
    bool safetensors = !zip && known >= 9 && head[8] == '{'; /* after a length that may begin like a pickle */
    bool legacy = !safetensors && known >= 2 && head[0] == 0x80 && head[1] <= 5;
    *format = zip ? TORCH_ZIP : legacy ? TORCH_LEGACY : SAFETENSORS;
    if (!zip && !legacy && !safetensors)
        return ist_fail(err, IST_E_WEIGHTS, "is neither a safetensors nor a PyTorch file (%zu %s)", size,
                        ist_plural(size, "byte", "bytes"));
    return IST_OK;
}

static ist_status finish_open(ist_weights *w, ist_status status, ist_weights **out, ist_error *err) {
    if (!status) status = ist_store_finish(w, err);
    if (status)
        ist_weights_close(&w);
    else
        *out = w;
    return status;
}

ist_status ist_weights_open_memory(const void *bytes, size_t size, ist_weights **out, ist_error *err) {
    file_format format;
    ist_weights *w = NULL;
    IST_TRY(find_format(bytes, size, size, &format, err));
    IST_TRY(ist_weights_create(&w, err));
    if (format == TORCH_LEGACY) return finish_open(w, ist_torch_legacy_read(w, NULL, bytes, size, err), out, err);
    if (format == TORCH_ZIP) return finish_open(w, ist_torch_zip_read(w, NULL, bytes, size, err), out, err);
    void *copy = ist_store_block(w, size);
    if (!copy) {
        ist_weights_close(&w);
        return ist_fail(err, IST_E_MEMORY, "out of host memory (%zu bytes)", size);
    }
    memcpy(copy, bytes, size);
    return finish_open(w, ist_safetensors_read(w, copy, size, err), out, err);
}

static ist_status read_safetensors_file(ist_weights *w, FILE *file, size_t size, ist_error *err) {
    uint8_t *bytes = ist_store_block(w, size);
    if (!bytes) return ist_fail(err, IST_E_MEMORY, "out of host memory (%zu bytes)", size);
    size_t got = fread(bytes, 1, size, file);
    if (got != size) return ist_fail(err, IST_E_IO, "read %zu of %zu bytes: %s", got, size, strerror(errno));
    return ist_safetensors_read(w, bytes, size, err);
}

/* Before anything of a listed file is understood: its digest. `file` stands at its beginning before and after. */
static ist_status check_sum(FILE *file, const char *want, ist_error *err) {
    char have[IST_SHA256_TEXT];
    if (!*want) return IST_OK;
    IST_TRY(ist_sha256_stream(file, have, err));
    rewind(file);
    return ist_sums_compare(want, have, err);
}

/* Sentences without the path, which the caller puts in front. Closes `file`. */
static ist_status open_file(FILE *file, const char *want, ist_weights **out, ist_error *err) {
    struct stat st;
    uint8_t head[16];
    file_format format;
    ist_status status = IST_OK;
    ist_weights *w = NULL;
    size_t size = 0, known = 0;
    if (fstat(fileno(file), &st))
        status = ist_fail(err, IST_E_IO, "%s", strerror(errno));
    else if ((uint64_t)st.st_size > IST_WEIGHTS_BYTES_MAX)
        status = ist_fail(err, IST_E_WEIGHTS, "has %lld bytes, the limit for a checkpoint is %zu",
                          (long long)st.st_size, IST_WEIGHTS_BYTES_MAX);
    if (!status) status = check_sum(file, want, err);
    if (!status) {
        size = (size_t)st.st_size;
        known = fread(head, 1, sizeof head, file);
        rewind(file);
        status = find_format(head, known, size, &format, err);
    }
    if (!status) status = ist_weights_create(&w, err);
    if (status) {
        fclose(file);
        return status;
    }
    w->listed = *want != '\0';
    if (format == TORCH_ZIP) return finish_open(w, ist_torch_zip_read(w, file, NULL, size, err), out, err);
    status = format == TORCH_LEGACY ? ist_torch_legacy_read(w, file, NULL, size, err)
                                    : read_safetensors_file(w, file, size, err);
    fclose(file);
    return finish_open(w, status, out, err);
}

ist_status ist_weights_open(const char *path, ist_weights **out, ist_error *err) {
    char want[IST_SHA256_TEXT];
    struct stat st; /* looked at before opening, because opening a pipe waits for a writer */
    if (!stat(path, &st) && !S_ISREG(st.st_mode)) return ist_fail(err, IST_E_IO, "%s: is not a regular file", path);
    IST_TRY(ist_sums_find(path, want, err));
    FILE *file = fopen(path, "rb");
    if (!file) return ist_fail(err, IST_E_IO, "%s: %s", path, strerror(errno));
    ist_status status = open_file(file, want, out, err);
    if (status) ist_fail_context(err, "%s", path);
    return status;
}
