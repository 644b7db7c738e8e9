/* External buffers of a plan under test: device memory with a watched margin on both sides. */
#ifndef IST_SUPPORT_EXTERNAL_H
#define IST_SUPPORT_EXTERNAL_H

#include "support/optest.h"

#include <criterion/criterion.h>
#include <string.h>

enum { EXTERNAL_MARGIN = 4096, EXTERNAL_PATTERN = 0x5a };

typedef struct external {
    cl_mem whole, mem;
    size_t bytes;
} external;

#define EXTERNAL_OK(t, expr) cr_assert_eq((expr), IST_OK, "%s: %s", (t)->name, (t)->err.text)

/* `data` may be NULL: the buffer then starts with the pattern of its margins. */
static inline external external_create(optest *t, const void *data, size_t bytes) {
    external e = {.bytes = bytes};
    size_t all = bytes + 2 * EXTERNAL_MARGIN;
    unsigned char *host = optest_alloc(t, all);
    memset(host, EXTERNAL_PATTERN, all);
    if (data) memcpy(host + EXTERNAL_MARGIN, data, bytes);
    EXTERNAL_OK(t, ist_buffer_create(t->device, all, "external", &e.whole, &t->err));
    EXTERNAL_OK(t, ist_write(t->device, (ist_frame_scope){0}, e.whole, 0, all, host, true, "external", &t->err));
    EXTERNAL_OK(t, ist_buffer_sub(t->device, e.whole, EXTERNAL_MARGIN, bytes, "external", &e.mem, &t->err));
    return e;
}

/* The contents, in memory that optest_end frees; the margins must be untouched. */
static inline void *external_read(optest *t, const external *e) {
    size_t all = e->bytes + 2 * EXTERNAL_MARGIN;
    unsigned char *host = optest_alloc(t, all);
    EXTERNAL_OK(t, ist_read(t->device, (ist_frame_scope){0}, e->whole, 0, all, host, NULL, "external", &t->err));
    for (size_t i = 0; i < EXTERNAL_MARGIN; i++)
        cr_assert(host[i] == EXTERNAL_PATTERN && host[all - 1 - i] == EXTERNAL_PATTERN,
                  "%s, seed %llu: something wrote outside an external buffer of %zu bytes", t->name,
                  (unsigned long long)t->seed, e->bytes);
    return host + EXTERNAL_MARGIN;
}

static inline void external_release(optest *t, external *e) {
    ist_buffer_release(t->device, &e->mem);
    ist_buffer_release(t->device, &e->whole);
}

#endif
