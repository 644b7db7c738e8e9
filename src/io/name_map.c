/* Hashed names: see name_map.h. */
#include "io/name_map.h"

#include "base/hash.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static size_t hash(const char *key) {
    uint64_t h = ist_fnv(IST_FNV_OFFSET, key, strlen(key));
    return (size_t)(h ^ h >> 32);
}

static ist_name_slot *probe(ist_name_slot *slots, size_t capacity, const char *key) {
    size_t i = hash(key) & (capacity - 1);
    while (slots[i].key && strcmp(slots[i].key, key)) i = (i + 1) & (capacity - 1);
    return &slots[i];
}

size_t *ist_name_map_find(const ist_name_map *map, const char *key) {
    if (!map->capacity) return NULL;
    ist_name_slot *slot = probe(map->slots, map->capacity, key);
    return slot->key ? &slot->value : NULL;
}

size_t *ist_name_map_find_image(const ist_name_map *map, const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    const char *keys[3] = {path, name, slash ? slash + 1 : path};
    size_t *value = NULL;
    for (int i = 0; i < 3 && !value; i++) value = keys[i] ? ist_name_map_find(map, keys[i]) : NULL;
    return value;
}

static bool rehash(ist_name_map *map) {
    size_t capacity = map->capacity ? map->capacity * 2 : 64;
    ist_name_slot *slots = calloc(capacity, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].key) *probe(slots, capacity, map->slots[i].key) = map->slots[i];
    free(map->slots);
    map->slots = slots;
    map->capacity = capacity;
    return true;
}

bool ist_name_map_insert(ist_name_map *map, const char *key, size_t value, bool *inserted) {
    if (inserted) *inserted = false;
    if (ist_name_map_find(map, key)) return true;
    if (map->count * 2 >= map->capacity && !rehash(map)) return false;
    char *copy = ist_strdup(key);
    if (!copy) return false;
    *probe(map->slots, map->capacity, key) = (ist_name_slot){copy, value};
    map->count++;
    if (inserted) *inserted = true;
    return true;
}

void ist_name_map_free(ist_name_map *map) {
    for (size_t i = 0; i < map->capacity; i++) free(map->slots[i].key);
    free(map->slots);
    *map = (ist_name_map){0};
}
