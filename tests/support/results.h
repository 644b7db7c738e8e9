/* Comparing what two runs of `isthmus predict` wrote. */
#ifndef IST_TESTS_RESULTS_H
#define IST_TESTS_RESULTS_H

#include "scratch.h"

/* Both folders hold the same files; frames.ndjson without its times, which are never the same. */
static inline void same_results(const scratch *s, const char *a, const char *b) {
    char command[1200];
    for (int i = 0; i < 2; i++) {
        const char *folder = i ? b : a;
        snprintf(command, sizeof command, "sed -i -e 's/\"ms\":{[^}]*}//' '%s/%s/frames.ndjson'", s->path, folder);
        cr_assert_eq(system(command), 0);
    }
    snprintf(command, sizeof command, "diff -r '%s/%s' '%s/%s' >&2", s->path, a, s->path, b);
    cr_expect_eq(system(command), 0, "%s and %s differ", a, b);
}

#endif
