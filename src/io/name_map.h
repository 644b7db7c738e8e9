/* String -> number, for names of files and classes. Keys are copied. Open addressing, never more than half full. */
#ifndef IST_IO_NAME_MAP_H
#define IST_IO_NAME_MAP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ist_name_slot {
    char *key; /* NULL: free */
    size_t value;
} ist_name_slot;

/* Zero-initialised is empty. */
typedef struct ist_name_map {
    ist_name_slot *slots;
    size_t count, capacity;
} ist_name_map;

/* The value stored under `key`, or NULL; valid until the next insertion. */
size_t *ist_name_map_find(const ist_name_map *map, const char *key);

/* The value of an image, looked up by its path as given, by its name, then by the last part of its path; NULL when there
 * is none. */
size_t *ist_name_map_find_image(const ist_name_map *map, const char *path, const char *name);

/* Stores value under key unless the key is there already; *inserted (may be NULL) tells. False when out of memory. */
bool ist_name_map_insert(ist_name_map *map, const char *key, size_t value, bool *inserted);

void ist_name_map_free(ist_name_map *map);

#endif
