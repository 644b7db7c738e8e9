/* Options of a run: see run_options.h. */
#include "io/run_options.h"

#include "base/hash.h"
#include "io/atomic_file.h"
#include "io/text.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { END_BYTES = 1 << 20, MAX_BYTES = 1 << 16 };

ist_status ist_run_option_file(const char *path, ist_run_option *option, ist_error *err) {
    struct stat st;
    if (!path) {
        snprintf(option->value, sizeof option->value, "none");
        return IST_OK;
    }
    FILE *file = fopen(path, "rb");
    char *bytes = file ? malloc(END_BYTES) : NULL;
    unsigned long long hash = IST_FNV_OFFSET;
    bool read = bytes && !fstat(fileno(file), &st);
    for (int end = 0; read && end < 2; end++) {
        if (end && st.st_size > END_BYTES) read = !fseeko(file, st.st_size - END_BYTES, SEEK_SET);
        hash = read ? ist_fnv(hash, bytes, fread(bytes, 1, END_BYTES, file)) : hash;
    }
    read = read && !ferror(file);
    int code = errno;
    free(bytes);
    if (file) fclose(file);
    if (!read) return ist_fail(err, IST_E_IO, "%s: %s", path, strerror(code));
    snprintf(option->value, sizeof option->value, "a file of %lld bytes with the hash %016llx", (long long)st.st_size,
             hash);
    return IST_OK;
}

/* Whether every word of `list` is one of `all`; both have commas in between. */
static bool is_part(const char *list, const char *all) {
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        bool found = false;
        for (const char *q = all; *q && !found;) {
            size_t m = strcspn(q, ",");
            found = n == m && !strncmp(p, q, n);
            q += m + (q[m] == ',');
        }
        if (!found) return false;
        p += n + (p[n] == ',');
    }
    return true;
}

static ist_status read_options(const char *folder, json_t **root, ist_error *err) {
    char *path = ist_path_join(folder, IST_RUN_OPTIONS_NAME), *bytes = NULL;
    size_t count = 0;
    *root = NULL;
    if (!path) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", folder);
    ist_status status = ist_refuse_link(folder, IST_RUN_OPTIONS_NAME, err);
    bool there = !status && (!access(path, F_OK) || errno != ENOENT);
    if (there) status = ist_read_file(path, MAX_BYTES, &bytes, &count, err);
    if (there && !status && !(*root = json_loadb(bytes, count, 0, NULL)))
        status = ist_fail(err, IST_E_INPUT, "%s is damaged: the options of the run before are not known", path);
    free(bytes);
    free(path);
    return status;
}

ist_status ist_run_options_check(const char *folder, const ist_run_option *options, size_t count, ist_error *err) {
    json_t *root;
    ist_status status = read_options(folder, &root, err);
    for (size_t i = 0; root && i < count && !status; i++) {
        const ist_run_option *o = &options[i];
        const char *before = json_string_value(json_object_get(json_object_get(root, "options"), o->name));
        if (!before || (o->part ? is_part(o->value, before) : !strcmp(o->value, before))) continue;
        status = ist_fail(err, IST_E_ARGUMENT,
                          "%s holds results with --%s %s, this run has --%s %s; --resume needs the same options",
                          folder, o->name, *before ? before : "none", o->name, *o->value ? o->value : "none");
    }
    json_decref(root);
    return status;
}

ist_status ist_run_options_write(const char *folder, const ist_run_option *options, size_t count, bool keep, bool lazy,
                                 ist_error *err) {
    if (keep) {
        json_t *root;
        IST_TRY(read_options(folder, &root, err));
        bool there = root != NULL;
        json_decref(root);
        if (there) return IST_OK;
    }
    ist_text text = {0};
    ist_text_put(&text, "{\"schema\":1,\"options\":{");
    for (size_t i = 0; i < count; i++) {
        ist_text_put(&text, i ? ",\n" : "\n");
        ist_text_json_string(&text, options[i].name);
        ist_text_put(&text, ":");
        ist_text_json_string(&text, options[i].value);
    }
    ist_text_put(&text, "\n}}\n");
    ist_atomic_file file;
    ist_status status = ist_text_status(&text, err);
    if (!status) status = ist_atomic_begin_in(&file, folder, IST_RUN_OPTIONS_NAME, err);
    if (!status) {
        file.lazy = lazy;
        fwrite(text.data, 1, text.length, file.stream);
        status = ist_atomic_commit(&file, err);
    }
    ist_text_free(&text);
    return status;
}
