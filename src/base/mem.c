#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

bool ist_grow(void **items, size_t *cap, size_t need, size_t item) {
    if (need <= *cap) return true;
    size_t want = *cap ? *cap : 8, bytes;
    while (want < need) {
        if (want > SIZE_MAX / 2) return false;
        want *= 2;
    }
    if (!ist_mul_size(want, item, &bytes)) return false;
    void *grown = realloc(*items, bytes);
    if (!grown) return false;
    memset((char *)grown + *cap * item, 0, (want - *cap) * item);
    *items = grown;
    *cap = want;
    return true;
}

char *ist_strdup(const char *s) {
    if (!s) return NULL;
    size_t n = strlen(s) + 1;
    char *copy = malloc(n);
    if (copy) memcpy(copy, s, n);
    return copy;
}
