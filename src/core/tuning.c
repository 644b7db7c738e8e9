/* Tuning records: see tuning.h. */
#include "core/tuning.h"

#include "base/hash.h"
#include "base/mem.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char first_line[] = "isthmus tuning 1\n";

enum { LINE_BYTES = 192, SUM_BYTES = 22 }; /* "sum %016x\n" with its end */

void ist_tuning_free(ist_tuning *t) {
    free(t->items);
    *t = (ist_tuning){0};
}

const ist_tuned *ist_tuning_find(const ist_tuning *t, const char *family, const char *shape) {
    for (size_t i = 0; t && i < t->count; i++)
        if (!strcmp(t->items[i].shape, shape) && !strcmp(t->items[i].family, family)) return &t->items[i];
    return NULL;
}

ist_status ist_tuning_set(ist_tuning *t, const ist_tuned *choice, ist_error *err) {
    const ist_tuned *old = ist_tuning_find(t, choice->family, choice->shape);
    if (old) {
        t->items[old - t->items] = *choice;
        return IST_OK;
    }
    if (!ist_grow((void **)&t->items, &t->capacity, t->count + 1, sizeof *t->items))
        return ist_fail(err, IST_E_MEMORY, "no memory for %zu tuned choices", t->count + 1);
    t->items[t->count++] = *choice;
    return IST_OK;
}

static uint64_t sum_of(const char *text, size_t bytes) {
    return ist_fnv(IST_FNV_OFFSET, text, bytes);
}

ist_status ist_tuning_write(const ist_tuning *t, const char *key, char **text, ist_error *err) {
    size_t size = sizeof first_line + strlen(key) + t->count * LINE_BYTES + SUM_BYTES, at = 0;
    char *out = malloc(size);
    *text = NULL;
    if (!out) return ist_fail(err, IST_E_MEMORY, "no memory for a tuning record of %zu bytes", size);
    at += (size_t)snprintf(out, size, "%s%s", first_line, key);
    for (size_t i = 0; i < t->count; i++) {
        const ist_tuned *c = &t->items[i];
        at += (size_t)snprintf(out + at, size - at, "%s %s %s %d\n", c->family, c->shape, c->variant, c->param);
    }
    snprintf(out + at, size - at, "sum %016llx\n", (unsigned long long)sum_of(out, at));
    *text = out;
    return IST_OK;
}

/* Behind `prefix`, or NULL. */
static const char *after(const char *text, const char *prefix) {
    size_t n = strlen(prefix);
    return strncmp(text, prefix, n) ? NULL : text + n;
}

static ist_status read_lines(ist_tuning *t, const char *line, const char *end, ist_error *err) {
    while (line < end) {
        size_t n = strcspn(line, "\n");
        char copy[LINE_BYTES];
        ist_tuned c = {.param = 0};
        int used = 0;
        if (n >= sizeof copy) return ist_fail(err, IST_E_INPUT, "tuning record: a line of %zu bytes", n);
        memcpy(copy, line, n);
        copy[n] = '\0';
        if (sscanf(copy, "%11s %87s %23s %d%n", c.family, c.shape, c.variant, &c.param, &used) != 4 || (size_t)used != n)
            return ist_fail(err, IST_E_INPUT, "tuning record: \"%.80s\" is no choice", copy);
        IST_TRY(ist_tuning_set(t, &c, err));
        line += n + 1;
    }
    return IST_OK;
}

ist_status ist_tuning_read(ist_tuning *t, const char *text, const char *key, ist_error *err) {
    size_t bytes = strlen(text);
    char sum[SUM_BYTES];
    const char *lines = after(text, first_line);
    if (!lines || bytes < sizeof sum) return ist_fail(err, IST_E_INPUT, "not a tuning record of this version");
    const char *end = text + bytes - (sizeof sum - 1);
    snprintf(sum, sizeof sum, "sum %016llx\n", (unsigned long long)sum_of(text, (size_t)(end - text)));
    if (end < lines || strcmp(end, sum)) return ist_fail(err, IST_E_INPUT, "tuning record: wrong checksum");
    lines = after(lines, key);
    if (!lines || lines > end) return ist_fail(err, IST_E_INPUT, "tuning record: of another device, driver or version");
    ist_status status = read_lines(t, lines, end, err);
    if (status) ist_tuning_free(t);
    return status;
}
