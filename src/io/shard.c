/* Shards of a list of images: see shard.h. */
#include "io/shard.h"

#include "base/hash.h"
#include "base/mem.h"
#include "io/atomic_file.h"
#include "io/text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES ((size_t)1 << 30)
enum { MOST_CATEGORIES = 1 << 17 };

/* 0 .. count - 1. The last steps are MurmurHash3's: FNV's low bits are not as even as they should be. */
static int whose(const char *text, size_t length, int count) {
    uint64_t h = ist_fnv(IST_FNV_OFFSET, text, length);
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    return (int)((h ^ h >> 33) % (uint64_t)count);
}

typedef struct taker {
    ist_shard shard;
    bool sequences;
    ist_shard_part *part;
    size_t position, kept;
} taker;

static bool take_one(void *context, ist_source *source) {
    taker *t = context;
    size_t position = t->position++;
    const char *slash = strrchr(source->path, '/');
    const char *text = t->sequences ? source->path : source->name;
    size_t mark = ist_source_mark(source), length = slash ? (size_t)(slash - source->path) : 0;
    if (!t->sequences || mark) length = strlen(text) - mark; /* a file's frames stay together */
    if (whose(text, length, t->shard.count) != t->shard.index - 1) return false;
    t->part->positions[t->kept++] = position;
    return true;
}

ist_status ist_shard_take(ist_shard shard, bool sequences, ist_sources *sources, ist_shard_part *part, ist_error *err) {
    *part = (ist_shard_part){.shard = shard, .total = sources->count, .list = IST_FNV_OFFSET};
    part->positions = calloc(sources->count + 1, sizeof *part->positions);
    if (!part->positions) return ist_fail(err, IST_E_MEMORY, "out of memory for %zu images", sources->count);
    for (size_t i = 0; i < sources->count; i++) {
        const ist_source *s = &sources->items[i];
        part->list = ist_fnv(part->list, s->path, strlen(s->path) + 1);
        part->list = ist_fnv(part->list, s->name, strlen(s->name) + 1);
    }
    taker t = {.shard = shard, .sequences = sequences, .part = part};
    ist_sources_filter(sources, take_one, &t);
    return IST_OK;
}

/* ---- shard.json ---- */

/* A string; one that is no UTF-8 has its bytes beside it. */
static void put_string(ist_text *out, const char *key, const char *value) {
    ist_text_printf(out, ",\"%s\":", key);
    ist_text_json_string(out, value);
    if (ist_text_is_utf8(value)) return;
    ist_text_printf(out, ",\"%s_bytes\":\"", key);
    ist_text_hex(out, value);
    ist_text_put(out, "\"");
}

ist_status ist_shard_write(const char *folder, const ist_shard_part *part, const ist_sources *sources, bool lazy,
                           ist_error *err) {
    ist_text text = {0};
    ist_text_printf(&text,
                    "{\"schema\":1,\"shard\":%d,\"of\":%d,\"images\":%zu,\"list\":\"%016llx\",\"coco\":%s,\"save\":",
                    part->shard.index, part->shard.count, part->total, (unsigned long long)part->list,
                    part->is_coco ? "true" : "false");
    ist_text_json_string(&text, part->save);
    for (int i = 0; i < part->category_count; i++)
        ist_text_printf(&text, "%s%lld", i ? "," : ",\"categories\":[", (long long)part->categories[i]);
    if (part->category_count) ist_text_put(&text, "]");
    ist_text_put(&text, ",\"own\":[");
    for (size_t i = 0; i < sources->count; i++) {
        const ist_source *s = &sources->items[i];
        ist_text_printf(&text, "%s\n{\"position\":%zu,\"id\":%lld", i ? "," : "", part->positions[i], (long long)s->id);
        put_string(&text, "path", s->path);
        put_string(&text, "name", s->name);
        put_string(&text, "stem", s->stem);
        if (s->frames > 1) ist_text_printf(&text, ",\"frame\":%zu,\"frames\":%zu", s->frame, s->frames);
        ist_text_put(&text, "}");
    }
    ist_text_put(&text, "\n]}\n");
    ist_atomic_file file;
    ist_status status = ist_text_status(&text, err);
    if (!status) status = ist_atomic_begin_in(&file, folder, IST_SHARD_NAME, err);
    if (!status) {
        file.lazy = lazy;
        fwrite(text.data, 1, text.length, file.stream);
        status = ist_atomic_commit(&file, err);
    }
    ist_text_free(&text);
    return status;
}

/* malloc'd; NULL when it is not there, or out of memory. */
static char *get_string(const json_t *object, const char *key) {
    char bytes_key[32];
    snprintf(bytes_key, sizeof bytes_key, "%s_bytes", key);
    const char *text = json_string_value(json_object_get(object, key));
    const char *bytes = json_string_value(json_object_get(object, bytes_key));
    return bytes ? ist_text_from_hex(bytes) : text ? ist_strdup(text) : NULL;
}

/* A whole number from 0 to `most`. */
static bool get_number(const json_t *object, const char *key, int64_t most, int64_t *out) {
    const json_t *value = json_object_get(object, key);
    *out = json_integer_value(value);
    return json_is_integer(value) && *out >= 0 && *out <= most;
}

/* Stems name files below the folder. */
static bool stays_below(const char *stem) {
    return *stem && *stem != '/' && strcmp(stem, "..") && strncmp(stem, "../", 3) && !strstr(stem, "/../");
}

static bool get_image(const json_t *image, ist_shard_part *part, ist_sources *sources) {
    ist_source *s = &sources->items[sources->count];
    int64_t position, frame, frames, first = sources->count ? (int64_t)part->positions[sources->count - 1] + 1 : 0;
    *s = (ist_source){
        .path = get_string(image, "path"), .name = get_string(image, "name"), .stem = get_string(image, "stem")};
    part->positions[sources->count++] = 0; /* freed with the list from now on */
    if (!s->path || !s->name || !s->stem || !stays_below(s->stem)) return false;
    if (!get_number(image, "id", INT64_MAX, &s->id)) return false;
    if (!get_number(image, "position", (int64_t)part->total - 1, &position) || position < first) return false;
    part->positions[sources->count - 1] = (size_t)position;
    if (!json_object_get(image, "frames")) return true;
    if (!get_number(image, "frames", INT64_MAX, &frames) || !get_number(image, "frame", frames - 1, &frame))
        return false;
    s->frame = (size_t)frame;
    s->frames = (size_t)frames;
    return true;
}

static bool get_categories(const json_t *list, ist_shard_part *part) {
    size_t i, n = json_array_size(list);
    const json_t *id;
    if (!list) return true;
    if (!json_is_array(list) || !n || n > MOST_CATEGORIES) return false;
    part->categories = calloc(n, sizeof *part->categories);
    if (!part->categories) return false;
    part->category_count = (int)n;
    json_array_foreach(list, i, id) {
        if (!json_is_integer(id)) return false;
        part->categories[i] = json_integer_value(id);
    }
    return true;
}

static bool get_part(const json_t *root, ist_shard_part *part, ist_sources *sources) {
    const json_t *own = json_object_get(root, "own"), *image;
    const char *list = json_string_value(json_object_get(root, "list"));
    const char *save = json_string_value(json_object_get(root, "save"));
    unsigned long long hash;
    int64_t index, count, total, schema;
    char after;
    size_t i, n = json_array_size(own);
    if (!get_number(root, "schema", 1, &schema) || schema != 1) return false;
    if (!get_number(root, "of", IST_SHARD_MOST, &count) || !get_number(root, "shard", count, &index) || !index)
        return false;
    if (!get_number(root, "images", INT64_MAX / 2, &total) || !json_is_array(own) || n > (size_t)total) return false;
    if (!list || sscanf(list, "%16llx%c", &hash, &after) != 1 || !save || strlen(save) >= sizeof part->save)
        return false;
    if (!json_is_boolean(json_object_get(root, "coco"))) return false;
    if (!get_categories(json_object_get(root, "categories"), part)) return false;
    part->shard = (ist_shard){(int)index, (int)count};
    part->total = (size_t)total;
    part->list = hash;
    part->is_coco = json_is_true(json_object_get(root, "coco"));
    strcpy(part->save, save);
    part->positions = calloc(n + 1, sizeof *part->positions);
    sources->items = calloc(n + 1, sizeof *sources->items);
    sources->capacity = n + 1;
    if (!part->positions || !sources->items) return false;
    json_array_foreach(own, i, image) if (!get_image(image, part, sources)) return false;
    return true;
}

ist_status ist_shard_read(const char *folder, ist_shard_part *part, ist_sources *sources, ist_error *err) {
    char *path = ist_path_join(folder, IST_SHARD_NAME), *bytes = NULL;
    size_t count = 0;
    *part = (ist_shard_part){0};
    *sources = (ist_sources){0};
    if (!path) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", folder);
    ist_status status = ist_read_file(path, MAX_BYTES, &bytes, &count, err);
    if (status == IST_E_IO)
        status = ist_fail(err, IST_E_STATE, "%s is no folder of predict --shard: there is no %s in it", folder,
                          IST_SHARD_NAME);
    json_t *root = status ? NULL : json_loadb(bytes, count, 0, NULL);
    if (!status && !get_part(root, part, sources)) status = ist_fail(err, IST_E_INPUT, "%s is damaged", path);
    json_decref(root);
    free(bytes);
    free(path);
    if (!status) return IST_OK;
    ist_shard_part_free(part);
    ist_sources_free(sources);
    return status;
}

void ist_shard_part_free(ist_shard_part *part) {
    free(part->positions);
    free(part->categories);
    *part = (ist_shard_part){0};
}
