/* libFuzzer: any bytes as a tuning record, and as the lines of one whose first line, key and checksum are right. */
#include "core/tuning.h"

#include "base/hash.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char key[] = "device a, b\ndriver c\nsources 0\n";

/* What was read can be written, and comes back the same. */
static void write_again(const ist_tuning *t) {
    ist_tuning again = {0};
    char *text;
    if (ist_tuning_write(t, key, &text, NULL) || ist_tuning_read(&again, text, key, NULL)) abort();
    if (again.count != t->count) abort();
    for (size_t i = 0; i < t->count; i++) {
        const ist_tuned *a = &t->items[i], *b = ist_tuning_find(&again, a->family, a->shape);
        if (!b || strcmp(a->variant, b->variant) || a->param != b->param) abort();
    }
    ist_tuning_free(&again);
    free(text);
}

static bool read_text(const char *text) {
    ist_tuning tuning = {0};
    ist_error err = {0};
    if (ist_tuning_read(&tuning, text, key, &err)) {
        if (tuning.items || tuning.count || !err.text[0]) abort();
        return false;
    }
    write_again(&tuning);
    ist_tuning_free(&tuning);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char first[] = "isthmus tuning 1\n";
    size_t room = sizeof first + sizeof key + size + 32;
    char *text = malloc(room);
    if (!text) return 0;
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    read_text(text);
    int n = snprintf(text, room, "%s%s%.*s", first, key, (int)size, (const char *)data);
    snprintf(text + n, room - (size_t)n, "sum %016llx\n", (unsigned long long)ist_fnv(IST_FNV_OFFSET, text, (size_t)n));
    read_text(text);
    free(text);
    return 0;
}
