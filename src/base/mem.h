/* Checked sizes and allocation. Every size that comes from a file goes through these before it reaches malloc. */
#ifndef IST_BASE_MEM_H
#define IST_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *out = a * b or a + b; false (and *out untouched) when the result does not fit. */
static inline bool ist_mul_size(size_t a, size_t b, size_t *out) {
    if (b && a > SIZE_MAX / b) return false;
    *out = a * b;
    return true;
}
static inline bool ist_add_size(size_t a, size_t b, size_t *out) {
    if (a > SIZE_MAX - b) return false;
    *out = a + b;
    return true;
}

/* x rounded up to a multiple of `align` (a power of two); the caller knows that x + align fits. */
static inline size_t ist_align_up(size_t x, size_t align) {
    return (x + align - 1) & ~(align - 1);
}

static inline int ist_div_up(int a, int b) {
    return (a + b - 1) / b;
}

/* Growable array: ensures room for `need` items of `item` bytes in *items (capacity *cap); NULL-safe growth by
 * doubling. False on overflow or out of memory, with *items and *cap unchanged. New room is zeroed. */
bool ist_grow(void **items, size_t *cap, size_t need, size_t item);

/* malloc'd copy of a string, NULL when out of memory or s is NULL. */
char *ist_strdup(const char *s);

#endif
