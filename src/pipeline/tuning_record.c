/* Where a device's tuning record is, and reading it. */
#include "pipeline/tuning_record.h"

#include "device/sources.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_BYTES = 1 << 20 };

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

void ist_tuning_load(const ist_device *device, const char *cache_dir, ist_tuning *tuning) {
    char path[IST_TUNING_PATH], key[IST_TUNING_KEY];
    ist_error ignored;
    *tuning = (ist_tuning){0};
    if (!ist_tuning_path(device, cache_dir, path)) return;
    char *text = read_text(path);
    ist_tuning_key(device, key);
    if (text) ist_tuning_read(tuning, text, key, &ignored);
    free(text);
}
