/* safetensors reader: 8 bytes header length, JSON header, tensor data without holes or overlaps. Every number in the
 * header is checked before it is used; sentences name the tensor. */
#include "weights/store.h"

#include "base/mem.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* The header of D-FINE X has 0.2 MB. JSON in memory takes a multiple of its text, so the limit is far below the
 * format's own 100 MB. */
#define HEADER_MAX ((size_t)16 << 20)

typedef struct entry {
    const char *name;
    ist_weight_type type;
    int rank;
    int64_t dims[IST_WEIGHT_RANK_MAX];
    uint64_t begin, end; /* bytes from the start of the data */
} entry;

static ist_status read_type(const json_t *json, entry *e, ist_error *err) {
    const char *name = json_string_value(json);
    if (!name) return ist_fail(err, IST_E_WEIGHTS, "%s: dtype is not a string", e->name);
    for (int i = 0; i < IST_WEIGHT_TYPES; i++)
        if (!strcmp(name, ist_weight_type_name((ist_weight_type)i))) {
            e->type = (ist_weight_type)i;
            return IST_OK;
        }
    return ist_fail(err, IST_E_WEIGHTS, "%s: dtype \"%.16s\" is not supported", e->name, name);
}

static ist_status read_shape(const json_t *json, entry *e, ist_error *err) {
    if (!json_is_array(json)) return ist_fail(err, IST_E_WEIGHTS, "%s: shape is not an array", e->name);
    size_t rank = json_array_size(json);
    if (rank > IST_WEIGHT_RANK_MAX)
        return ist_fail(err, IST_E_WEIGHTS, "%s: %zu dimensions, the limit is %d", e->name, rank, IST_WEIGHT_RANK_MAX);
    e->rank = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *d = json_array_get(json, i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return ist_fail(err, IST_E_WEIGHTS, "%s: dimension %zu is not a natural number", e->name, i);
        e->dims[i] = json_integer_value(d);
    }
    return IST_OK;
}

static ist_status read_offsets(const json_t *json, entry *e, uint64_t data_size, ist_error *err) {
    const json_t *b = json_array_get(json, 0), *d = json_array_get(json, 1);
    if (json_array_size(json) != 2 || !json_is_integer(b) || !json_is_integer(d))
        return ist_fail(err, IST_E_WEIGHTS, "%s: data_offsets is not a pair of integers", e->name);
    json_int_t begin = json_integer_value(b), end = json_integer_value(d);
    if (begin < 0 || end < begin || (uint64_t)end > data_size)
        return ist_fail(err, IST_E_WEIGHTS, "%s: data_offsets [%lld,%lld] do not lie in the %llu data bytes", e->name,
                        (long long)begin, (long long)end, (unsigned long long)data_size);
    e->begin = (uint64_t)begin;
    e->end = (uint64_t)end;
    size_t count, bytes;
    if (!ist_shape_size(e->type, e->rank, e->dims, &count, &bytes) || bytes != e->end - e->begin) {
        char shape[96];
        return ist_fail(err, IST_E_WEIGHTS, "%s: %s %s does not fill its %llu bytes", e->name,
                        ist_weight_type_name(e->type), ist_weight_shape_text(e->rank, e->dims, shape, sizeof shape),
                        (unsigned long long)(e->end - e->begin));
    }
    return IST_OK;
}

static ist_status read_metadata(ist_weights *w, json_t *json, ist_error *err) {
    const char *key;
    json_t *value;
    if (!json_is_object(json)) return ist_fail(err, IST_E_WEIGHTS, "__metadata__ is not an object");
    json_object_foreach(json, key, value) {
        if (!json_is_string(value)) return ist_fail(err, IST_E_WEIGHTS, "__metadata__ \"%.64s\" is not a string", key);
        IST_TRY(ist_weights_set_metadata(w, key, json_string_value(value), err));
    }
    return IST_OK;
}

static int by_offset(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Data must be covered exactly once, from the first byte to the last. */
static ist_status check_cover(entry *entries, size_t count, uint64_t data_size, ist_error *err) {
    uint64_t at = 0;
    qsort(entries, count, sizeof *entries, by_offset);
    for (size_t i = 0; i < count; i++) {
        const entry *e = &entries[i];
        if (e->begin < at)
            return ist_fail(err, IST_E_WEIGHTS, "%s: overlaps %s at data byte %llu", e->name, entries[i - 1].name,
                            (unsigned long long)e->begin);
        if (e->begin > at)
            return ist_fail(err, IST_E_WEIGHTS,
                            "%s: starts at data byte %llu, %llu bytes before it belong to no tensor", e->name,
                            (unsigned long long)e->begin, (unsigned long long)(e->begin - at));
        at = e->end;
    }
    if (at != data_size)
        return ist_fail(err, IST_E_WEIGHTS, "%llu %s after the last tensor", (unsigned long long)(data_size - at),
                        ist_plural(data_size - at, "byte", "bytes"));
    return IST_OK;
}

static ist_status read_entries(ist_weights *w, json_t *header, const uint8_t *data, uint64_t data_size, entry *entries,
                               ist_error *err) {
    size_t count = 0;
    const char *name;
    json_t *value;
    json_object_foreach(header, name, value) {
        if (!strcmp(name, "__metadata__")) {
            IST_TRY(read_metadata(w, value, err));
            continue;
        }
        entry *e = &entries[count++];
        e->name = name;
        IST_TRY(read_type(json_object_get(value, "dtype"), e, err));
        IST_TRY(read_shape(json_object_get(value, "shape"), e, err));
        IST_TRY(read_offsets(json_object_get(value, "data_offsets"), e, data_size, err));
    }
    if (count) IST_TRY(check_cover(entries, count, data_size, err));
    for (size_t i = 0; i < count; i++) {
        const entry *e = &entries[i];
        IST_TRY(
            ist_store_tensor(w, e->name, e->type, e->rank, e->dims, data + e->begin, (size_t)(e->end - e->begin), err));
    }
    return IST_OK;
}

ist_status ist_safetensors_read(ist_weights *w, const uint8_t *bytes, size_t size, ist_error *err) {
    uint64_t length = 0;
    if (size < 8)
        return ist_fail(err, IST_E_WEIGHTS, "%zu %s too few for a safetensors file", size,
                        ist_plural(size, "byte is", "bytes are"));
    for (int i = 0; i < 8; i++) length |= (uint64_t)bytes[i] << (8 * i);
    if (length > HEADER_MAX)
        return ist_fail(err, IST_E_WEIGHTS, "the safetensors header claims %llu bytes, the limit is %zu",
                        (unsigned long long)length, HEADER_MAX);
    if (length > size - 8)
        return ist_fail(err, IST_E_WEIGHTS,
                        "the safetensors header claims %llu bytes, %zu follow: the file is truncated",
                        (unsigned long long)length, size - 8);
    json_error_t json_err;
    json_t *header = json_loadb((const char *)bytes + 8, (size_t)length, JSON_REJECT_DUPLICATES, &json_err);
    if (!header)
        return ist_fail(err, IST_E_WEIGHTS, "the safetensors header is not valid JSON at byte %d: %s",
                        8 + json_err.position, json_err.text);
    ist_status status = IST_OK;
    entry *entries = NULL;
    if (!json_is_object(header))
        status = ist_fail(err, IST_E_WEIGHTS, "the safetensors header is not a JSON object");
    else if (!(entries = calloc(json_object_size(header) + 1, sizeof *entries)))
        status = ist_fail(err, IST_E_MEMORY, "out of host memory for %zu tensors", json_object_size(header));
    else
        status = read_entries(w, header, bytes + 8 + length, size - 8 - length, entries, err);
    w->format = "safetensors";
    free(entries);
    json_decref(header);
    return status;
}
