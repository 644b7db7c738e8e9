/* The files of cl that a variant's launches are of (ist_variant.sources), separated by blanks. */
#ifndef IST_TESTS_SOURCES_H
#define IST_TESTS_SOURCES_H

#include <stdbool.h>
#include <string.h>

/* Whether `op` is one of them; none are in NULL. */
static inline bool source_is_among(const char *op, const char *sources) {
    const size_t n = strlen(op);
    for (const char *at = sources ? sources : ""; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == n && !strncmp(at, op, n)) return true;
    return false;
}

#endif
