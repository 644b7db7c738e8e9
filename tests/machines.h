/* Which machines' kernel variants this build has (-DISTHMUS_MACHINES): tests that ask for one of another's by name are
 * left out, and say so. Header only. */
#ifndef MACHINES_H
#define MACHINES_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static inline bool machine_built(const char *name) {
    const size_t n = strlen(name);
    for (const char *at = IST_BUILT_MACHINES; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == n && !strncmp(at, name, n)) return true;
    fprintf(stderr, "left out: machine %s not built\n", name);
    return false;
}

#endif
