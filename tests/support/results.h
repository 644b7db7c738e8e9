/* Comparing what two runs of `isthmus predict` wrote. */
#ifndef IST_TESTS_RESULTS_H
#define IST_TESTS_RESULTS_H

#include "io/image.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* Whether both are images of the same pixels. ISA-L 2.30, run by many new threads at once, makes other bytes of the same
 * image once in some 10^5 times: seen with nothing but calls of isal_deflate on zeroed memory, on a virtual machine. */
static inline bool same_pixels(const char *a, const char *b) {
    ist_bitmap x = {0}, y = {0};
    ist_error err;
    bool same = !ist_bitmap_read(a, 1 << 24, &x, &err) && !ist_bitmap_read(b, 1 << 24, &y, &err) && x.width == y.width &&
                x.height == y.height && x.format == y.format && x.stride == y.stride &&
                !memcmp(x.pixels, y.pixels, x.stride * (size_t)x.height);
    ist_bitmap_free(&x);
    ist_bitmap_free(&y);
    return same;
}

/* Both folders hold the same files; frames.ndjson without its times, which are never the same; of images the pixels
 * count where bytes differ. */
static inline void same_results(const scratch *s, const char *a, const char *b) {
    char command[1200], line[2600], first[1200], second[1200];
    for (int i = 0; i < 2; i++) {
        const char *folder = i ? b : a;
        snprintf(command, sizeof command, "sed -i -e 's/\"ms\":{[^}]*}//' '%s/%s/frames.ndjson'", s->path, folder);
        cr_assert_eq(system(command), 0);
    }
    snprintf(command, sizeof command, "diff -rq '%s/%s' '%s/%s' 2>&1", s->path, a, s->path, b);
    FILE *differ = popen(command, "r");
    cr_assert_not_null(differ);
    while (fgets(line, sizeof line, differ)) {
        bool images = sscanf(line, "Files %1199s and %1199s differ", first, second) == 2 && strstr(first, ".png");
        cr_expect(images && same_pixels(first, second), "%s and %s: %s", a, b, line);
    }
    int status = pclose(differ);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) <= 1, "the folders cannot be compared");
}

#endif
