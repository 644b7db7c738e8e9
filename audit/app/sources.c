/* `--source`: the files below a folder, in byte order of their names, each read once. */
#include "parts.h"

#include "audit/source.h"
#include "base/mem.h"
#include "io/atomic_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_DEPTH = 100 };

typedef struct walk {
    ist_audit_source source;
    size_t inner; /* where paths begin to be the project's own */
    size_t unreadable;
} walk;

static ist_status skip(walk *w, const char *path, const char *reason, bool failed, ist_error *err) {
    if (failed) cli_note("%s: %s", path, reason);
    w->unreadable += failed;
    return ist_audit_source_skip(&w->source, path, reason, err);
}

/* A name in a shape that needs no cleaning: "." and trailing slashes go. */
static void shorten(char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') path[--n] = '\0';
    while (!strncmp(path, "./", 2) && path[2]) memmove(path, path + 2, strlen(path + 2) + 1);
}

static ist_status add_file(walk *w, const char *path, const struct stat *about, ist_error *err) {
    char *bytes;
    size_t count;
    ist_error why;
    if (!S_ISREG(about->st_mode)) return skip(w, path, "not a regular file", false, err);
    if (about->st_size > IST_AUDIT_SOURCE_LIMIT) return skip(w, path, "larger than 64 MiB", false, err);
    ist_status status = ist_read_file(path, IST_AUDIT_SOURCE_LIMIT, &bytes, &count, &why);
    if (status == IST_E_MEMORY) return ist_fail(err, status, "%s", why.text);
    if (status) return skip(w, path, why.text, true, err);
    status = ist_audit_source_add(&w->source, path, w->inner, bytes, count, err);
    free(bytes);
    return status;
}

static ist_status add_folder(walk *w, const char *path, int depth, ist_error *err);

/* Links to files are followed, links to folders are not: there is no going round. */
static ist_status add_entry(walk *w, const char *folder, const char *name, int depth, ist_error *err) {
    struct stat about;
    char *path = strcmp(folder, ".") ? ist_path_join(folder, name) : ist_strdup(name);
    bool source = path && ist_audit_language_of(path) != IST_AUDIT_LANGUAGE_NONE;
    ist_status status = IST_OK;
    if (!path)
        status = ist_fail(err, IST_E_MEMORY, "out of memory for a path");
    else if (lstat(path, &about))
        status = source ? skip(w, path, strerror(errno), true, err) : IST_OK;
    else if (S_ISDIR(about.st_mode))
        status = add_folder(w, path, depth + 1, err);
    else if (source && stat(path, &about))
        status = skip(w, path, strerror(errno), true, err);
    else if (source && S_ISDIR(about.st_mode))
        status = skip(w, path, "a link to a folder", false, err);
    else if (source)
        status = add_file(w, path, &about, err);
    free(path);
    return status;
}

static bool is_wanted(const char *name) {
    return *name != '.' && strcmp(name, "__pycache__") != 0;
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All names of a folder; false with errno set. */
static bool read_names(const char *path, char ***names, size_t *count) {
    size_t cap = 0;
    struct dirent *entry;
    DIR *d = opendir(path);
    *names = NULL;
    *count = 0;
    if (!d) return false;
    bool good = true;
    for (errno = 0; good && (entry = readdir(d));) {
        if (!is_wanted(entry->d_name)) continue;
        good = ist_grow((void **)names, &cap, *count + 1, sizeof **names) &&
               ((*names)[*count] = ist_strdup(entry->d_name)) != NULL;
        *count += good;
        errno = good ? 0 : ENOMEM;
    }
    good = good && !errno;
    int saved = errno;
    closedir(d);
    errno = saved;
    if (*count) qsort(*names, *count, sizeof **names, by_bytes);
    return good;
}

static ist_status add_folder(walk *w, const char *path, int depth, ist_error *err) {
    char **names;
    size_t count;
    if (depth > MOST_DEPTH) return skip(w, path, "more than 100 folders deep", true, err);
    ist_status status = IST_OK;
    if (!read_names(path, &names, &count)) status = skip(w, path, strerror(errno), true, err);
    for (size_t k = 0; k < count; k++) {
        if (!status) status = add_entry(w, path, names[k], depth, err);
        free(names[k]);
    }
    free(names);
    return status;
}

/* The folder or file that the user named. */
static ist_status add_root(walk *w, const char *path, ist_error *err) {
    struct stat about;
    if (stat(path, &about)) return ist_fail(err, IST_E_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(about.st_mode)) {
        w->inner = strcmp(path, ".") ? strlen(path) + 1 : 0;
        return add_folder(w, path, 0, err);
    }
    const char *slash = strrchr(path, '/');
    w->inner = slash ? (size_t)(slash - path) + 1 : 0;
    if (ist_audit_language_of(path) == IST_AUDIT_LANGUAGE_NONE)
        return ist_fail(err, IST_E_INPUT, "%s is no C, C++, OpenCL C or Python source, by its name", path);
    return add_file(w, path, &about, err);
}

typedef struct outcome {
    const ist_audit_source *source;
    const char *baseline;
} outcome;

static ist_status write_text(void *what, FILE *out, ist_error *err) {
    const outcome *o = what;
    ist_audit_source_write_text(o->source, out);
    return audit_compare(&o->source->report, o->baseline, out, err);
}

static ist_status write_json(void *what, FILE *out, ist_error *err) {
    return ist_audit_source_write_json(((outcome *)what)->source, out, err);
}

static ist_status write_sarif(void *what, FILE *out, ist_error *err) {
    return ist_audit_write_sarif(&((outcome *)what)->source->report, NULL, out, err);
}

static ist_status write_all(const walk *w, const audit_options *o, ist_error *err) {
    outcome what = {&w->source, o->baseline};
    IST_TRY(audit_write(audit_text_place(o, "-"), write_text, &what, err));
    IST_TRY(audit_write(o->json, write_json, &what, err));
    return audit_write(o->sarif, write_sarif, &what, err);
}

int audit_source(const audit_options *o) {
    walk w = {.inner = 0};
    ist_error err;
    char *root = ist_strdup(o->source);
    ist_status status = root ? IST_OK : ist_fail(&err, IST_E_MEMORY, "out of memory for a path");
    if (!status) {
        shorten(root);
        status = add_root(&w, root, &err);
    }
    if (!status) status = ist_audit_source_finish(&w.source, root, &err);
    if (!status) status = write_all(&w, o, &err);
    int code = status ? cli_fail(CLI_FAILED, "%s", err.text) : CLI_SUCCESS;
    bool nothing = !w.source.c_files && !w.source.python_files && !w.source.kernel_files && !w.source.skipped_count;
    if (!code && nothing) cli_note("%s has no C, C++, OpenCL C or Python sources", root);
    if (!code && w.unreadable) code = cli_fail(CLI_PARTIAL, "%zu of the files could not be read", w.unreadable);
    ist_audit_source_free(&w.source);
    free(root);
    return code;
}
