/* A folder that a test may write to, and small files in it. Header only: tests of every layer use it. */
#ifndef SCRATCH_H
#define SCRATCH_H

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct scratch {
    char path[128];
} scratch;

static inline scratch scratch_make(void) {
    scratch s;
    const char *root = getenv("TMPDIR");
    snprintf(s.path, sizeof s.path, "%.80s/isthmus-test-XXXXXX", root && *root ? root : "/tmp");
    cr_assert_not_null(mkdtemp(s.path));
    return s;
}

static inline void scratch_remove(const scratch *s) {
    char command[512];
    snprintf(command, sizeof command, "chmod -R u+w '%s'; rm -rf '%s'", s->path, s->path);
    cr_expect_eq(system(command), 0);
}

/* Path below the folder; eight results stay valid at a time. */
static inline const char *scratch_path(const scratch *s, const char *fmt, ...) {
    static char paths[8][512];
    static int next;
    char *out = paths[next++ % 8];
    int n = snprintf(out, sizeof paths[0], "%s/", s->path);
    va_list args;
    va_start(args, fmt);
    vsnprintf(out + n, sizeof paths[0] - (size_t)n, fmt, args);
    va_end(args);
    return out;
}

static inline void scratch_write(const char *path, const void *bytes, size_t count) {
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f, "%s", path);
    cr_assert_eq(fwrite(bytes, 1, count, f), count);
    cr_assert_eq(fclose(f), 0);
}

static inline void scratch_put(const char *path, const char *text) {
    scratch_write(path, text, strlen(text));
}

/* The whole file, malloc'd, ending with a zero byte; NULL when there is none. */
static inline char *scratch_read(const char *path, size_t *count) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    char *bytes = malloc((size_t)size + 1);
    cr_assert_not_null(bytes);
    cr_assert_eq(fread(bytes, 1, (size_t)size, f), (size_t)size);
    bytes[size] = '\0';
    fclose(f);
    if (count) *count = (size_t)size;
    return bytes;
}

static inline int scratch_exists(const char *path) {
    return !access(path, F_OK);
}

#endif
