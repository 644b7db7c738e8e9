/* A run's folder, read again: see report.h. Lines come one at a time; what is kept does not grow with their pictures.
 */
#include "report.h"

#include "base/mem.h"
#include "io/atomic_file.h"
#include "io/journal.h"
#include "percentile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUN_BYTES = 1 << 24 /* most of run.json */ };

const char *report_number_name(int number) {
    static const char *const names[] = {
#define X(id, name) name,
        REPORT_TIMES(X) REPORT_TRANSFERS(X)
#undef X
    };
    return names[number];
}

/* ---- lines ---- */

static bool is_count(const json_t *value, json_int_t low, json_int_t high) {
    return json_is_integer(value) && json_integer_value(value) >= low && json_integer_value(value) <= high;
}

static bool is_object_line(const json_t *object) {
    const json_t *box = json_object_get(object, "box"), *score = json_object_get(object, "score");
    if (!json_is_number(score) || !(json_number_value(score) >= 0) || !(json_number_value(score) <= 1)) return false;
    if (!json_is_string(json_object_get(object, "name")) || json_array_size(box) != 4) return false;
    for (size_t i = 0; i < 4; i++)
        if (!json_is_number(json_array_get(box, i))) return false;
    return true;
}

static bool is_frame(const json_t *frame) {
    const json_t *objects = json_object_get(frame, "objects");
    if (!json_is_string(json_object_get(frame, "file")) || !json_is_array(objects) ||
        !is_count(json_object_get(frame, "width"), 1, INT32_MAX) ||
        !is_count(json_object_get(frame, "height"), 1, INT32_MAX))
        return false;
    for (size_t i = 0; i < json_array_size(objects); i++)
        if (!is_object_line(json_array_get(objects, i))) return false;
    return true;
}

static bool is_failure(const json_t *line) {
    return json_is_string(json_object_get(line, "file")) && json_is_string(json_object_get(line, "error"));
}

/* Calls `visit` with each line of a file; `check` says whether it is what it should be. */
static ist_status each_line(const char *path, FILE *file, bool (*check)(const json_t *), report_visit *visit, void *arg,
                            ist_error *err) {
    char *line = NULL;
    size_t room = 0, index = 0;
    ssize_t n;
    ist_status status = IST_OK;
    for (; !status && (n = getline(&line, &room, file)) > 0; index++) {
        json_error_t why = {0};
        json_t *value = json_loadb(line, (size_t)n, 0, &why);
        if (!value && json_error_code(&why) == json_error_out_of_memory)
            status = ist_fail(err, IST_E_MEMORY, "%s:%zu: out of memory", path, index + 1);
        else if (!value || !check(value))
            status = ist_fail(err, IST_E_INPUT, "%s:%zu: is not a line that isthmus writes", path, index + 1);
        else
            status = visit(arg, index, value, err);
        json_decref(value);
    }
    if (!status && !feof(file)) status = ist_fail(err, IST_E_IO, "%s: %s", path, strerror(errno));
    free(line);
    return status;
}

/* DIR/name, opened; NULL in *file when there is none. *path is the caller's to free. */
static ist_status open_in(const char *folder, const char *name, char **path, FILE **file, ist_error *err) {
    *path = ist_path_join(folder, name);
    *file = NULL;
    if (!*path) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", folder);
    return ist_open_file(*path, file, err);
}

static ist_status fail_without_lines(const report *r, ist_error *err) {
    char *partial = ist_path_join(r->folder, IST_JOURNAL_PARTIAL);
    bool begun = partial && !access(partial, F_OK);
    free(partial);
    if (access(r->folder, F_OK)) return ist_fail(err, IST_E_IO, "%s: %s", r->folder, strerror(ENOENT));
    return ist_fail(err, IST_E_INPUT,
                    begun ? "%s: the run is not finished; --resume goes on with it"
                          : "%s: there is no frames.ndjson; a report needs ndjson among --save",
                    r->folder);
}

ist_status report_each_frame(const report *r, report_visit *visit, void *arg, ist_error *err) {
    char *path;
    FILE *file;
    ist_status status = open_in(r->folder, IST_JOURNAL_NAME, &path, &file, err);
    if (!status && !file) status = fail_without_lines(r, err);
    if (!status) status = each_line(path, file, is_frame, visit, arg, err);
    if (file) fclose(file);
    free(path);
    return status;
}

/* ---- what is kept of them ---- */

static ist_status add_value(report_values *values, double value, ist_error *err) {
    if (!ist_grow((void **)&values->list, &values->room, values->count + 1, sizeof *values->list))
        return ist_fail(err, IST_E_MEMORY, "out of memory for %zu images", values->count);
    values->list[values->count++] = value;
    return IST_OK;
}

size_t report_class_of(const report *r, const json_t *object) {
    const char *name = json_string_value(json_object_get(object, "name"));
    size_t i = 0;
    while (i < r->class_count && strcmp(r->classes[i].name, name)) i++;
    return i;
}

static ist_status add_object(report *r, const json_t *object, ist_error *err) {
    double score = json_number_value(json_object_get(object, "score"));
    int bin = (int)(score * REPORT_BINS);
    r->bins[bin < REPORT_BINS ? bin : REPORT_BINS - 1]++;
    r->objects++;
    r->masks += json_is_object(json_object_get(object, "rle"));
    size_t i = report_class_of(r, object);
    if (i == r->class_count && i < REPORT_CLASSES) {
        if (!ist_grow((void **)&r->classes, &r->class_room, i + 1, sizeof *r->classes))
            return ist_fail(err, IST_E_MEMORY, "out of memory for %zu classes", i);
        r->classes[i].name = ist_strdup(json_string_value(json_object_get(object, "name")));
        if (!r->classes[i].name) return ist_fail(err, IST_E_MEMORY, "out of memory for %zu classes", i);
        r->class_count++;
    }
    if (i == r->class_count) return IST_OK;
    r->classes[i].count++;
    r->classes[i].sum += score;
    if (score > r->classes[i].best) r->classes[i].best = score;
    return IST_OK;
}

static ist_status add_frame(void *arg, size_t index, const json_t *frame, ist_error *err) {
    report *r = arg;
    json_t *object;
    size_t i;
    (void)index;
    r->images++;
    r->dropped += (size_t)json_integer_value(json_object_get(frame, "dropped"));
    json_array_foreach(json_object_get(frame, "objects"), i, object) IST_TRY(add_object(r, object, err));
    const json_t *ms = json_object_get(frame, "ms"), *transfers = json_object_get(frame, "transfers");
    for (int n = 0; n < REPORT_NUMBERS; n++) {
        const json_t *value = json_object_get(n < REPORT_FIRST_TRANSFER ? ms : transfers, report_number_name(n));
        if (json_is_number(value)) IST_TRY(add_value(&r->numbers[n], json_number_value(value), err));
    }
    return IST_OK;
}

static ist_status add_failure(void *arg, size_t index, const json_t *line, ist_error *err) {
    report *r = arg;
    r->failed++;
    if (index >= REPORT_FAILURES || !json_array_append(r->failures, (json_t *)(uintptr_t)line)) return IST_OK;
    return ist_fail(err, IST_E_MEMORY, "out of memory for %zu failures", index);
}

static ist_status read_failures(report *r, ist_error *err) {
    char *path;
    FILE *file;
    r->failures = json_array();
    if (!r->failures) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", r->folder);
    ist_status status = open_in(r->folder, "failed.ndjson", &path, &file, err);
    if (!status && file) status = each_line(path, file, is_failure, add_failure, r, err);
    if (file) fclose(file);
    free(path);
    return status;
}

/* A run without run.json, or with one that says nothing, has no options to tell of. */
static ist_status read_options(report *r, ist_error *err) {
    char *path, *bytes = NULL;
    FILE *file;
    size_t count = 0;
    ist_status status = open_in(r->folder, "run.json", &path, &file, err);
    if (file) fclose(file);
    if (!status && file) status = ist_read_file(path, RUN_BYTES, &bytes, &count, err);
    json_error_t why = {0};
    json_t *run = bytes ? json_loadb(bytes, count, 0, &why) : NULL;
    if (!run && bytes && json_error_code(&why) == json_error_out_of_memory)
        status = ist_fail(err, IST_E_MEMORY, "%s: out of memory", path);
    r->options = json_incref(json_object_get(run, "options"));
    json_decref(run);
    free(bytes);
    free(path);
    return status;
}

ist_status report_read(report *r, ist_error *err) {
    IST_TRY(report_each_frame(r, add_frame, r, err));
    for (int n = 0; n < REPORT_NUMBERS; n++) percentile_sort(r->numbers[n].list, r->numbers[n].count);
    IST_TRY(read_failures(r, err));
    return read_options(r, err);
}

bool report_shows(const report *r, size_t index) {
    if (r->pictures >= r->images) return true;
    /* the first index of each of so many equal parts */
    unsigned long long part = (unsigned long long)index * r->pictures / r->images;
    return r->pictures && (!index || part != (unsigned long long)(index - 1) * r->pictures / r->images);
}

void report_free(report *r) {
    for (size_t i = 0; i < r->class_count; i++) free(r->classes[i].name);
    free(r->classes);
    for (int n = 0; n < REPORT_NUMBERS; n++) free(r->numbers[n].list);
    json_decref(r->options);
    json_decref(r->failures);
}
