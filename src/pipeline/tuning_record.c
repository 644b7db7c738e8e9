/* Where a device's tuning record is, and reading it. */
#include "pipeline/tuning_record.h"

#include "device/sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20, KEY_LINES = 3 };

void ist_tuning_key(const ist_device *device, char key[IST_TUNING_KEY]) {
    const ist_device_info *f = ist_device_facts(device);
    ist_cache_key sources = ist_hash_sources();
    snprintf(key, IST_TUNING_KEY, "device %s, %s\ndriver %s, %s\nsources %016llx%016llx\n", f->name, f->platform_name,
             f->driver, f->version, (unsigned long long)sources.hash[0], (unsigned long long)sources.hash[1]);
}

bool ist_tuning_path(const ist_device *device, const char *cache_dir, char path[IST_TUNING_PATH]) {
    char folder[1024], key[IST_TUNING_KEY];
    if (!ist_cache_folder(cache_dir, folder, sizeof folder)) return false;
    ist_tuning_key(device, key);
    const char *texts[] = {key};
    ist_cache_key hash = ist_hash_texts(texts, 1);
    snprintf(path, IST_TUNING_PATH, "%s/%016llx%016llx.tuning", folder, (unsigned long long)hash.hash[0],
             (unsigned long long)hash.hash[1]);
    return true;
}

/* The file as a string (malloc'd), or NULL. */
static char *read_text(const char *path) {
    FILE *file = ist_cache_open_file(path);
    char *text = file ? malloc(MOST_BYTES + 1) : NULL;
    size_t n = text ? fread(text, 1, MOST_BYTES, file) : 0;
    if (file) fclose(file);
    if (text) text[n] = '\0';
    return text;
}

/* Copies lines `first` to `last` - 1 of the text; "" when there are fewer or they are too long. */
static void lines_of(const char *text, int first, int last, char out[IST_TUNING_KEY]) {
    const char *from = text, *to = text;
    out[0] = '\0';
    for (int i = 0; i < last; i++) {
        if (i == first) from = to;
        to = strchr(to, '\n');
        if (!to++) return;
    }
    if (to - from >= IST_TUNING_KEY) return;
    memcpy(out, from, (size_t)(to - from));
    out[to - from] = '\0';
}

void ist_tuning_shipped(const char *key, ist_tuning *tuning) {
    char device[IST_TUNING_KEY], own[IST_TUNING_KEY], its[IST_TUNING_KEY];
    ist_error ignored;
    *tuning = (ist_tuning){0};
    lines_of(key, 0, 1, device);
    for (const ist_source *s = ist_tuning_records; s->name && !tuning->count; s++) {
        lines_of(s->text, 1, 2, own);
        lines_of(s->text, 1, 1 + KEY_LINES, its);
        if (!strcmp(device, own)) ist_tuning_read(tuning, s->text, its, &ignored);
    }
}

static bool load_kept(const ist_device *device, const char *cache_dir, ist_tuning *tuning) {
    char path[IST_TUNING_PATH], key[IST_TUNING_KEY];
    ist_error ignored;
    if (!ist_tuning_path(device, cache_dir, path)) return false;
    char *text = read_text(path);
    ist_tuning_key(device, key);
    bool good = text && !ist_tuning_read(tuning, text, key, &ignored);
    free(text);
    return good;
}

void ist_tuning_load(const ist_device *device, const char *cache_dir, ist_tuning *tuning) {
    char key[IST_TUNING_KEY];
    *tuning = (ist_tuning){0};
    if (load_kept(device, cache_dir, tuning)) return;
    ist_tuning_key(device, key);
    ist_tuning_shipped(key, tuning);
}
