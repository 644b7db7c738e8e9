/* Files into findings: which language, which analyser, what was left out. */
#include "audit/source_unit.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

ist_audit_language ist_audit_language_of(const char *path) {
    static const char *const c_ends[] = {".c",   ".h",   ".cc",  ".cpp", ".cxx", ".c++", ".hh", ".hpp",
                                         ".hxx", ".h++", ".inl", ".ipp", ".tpp", ".cu",  ".cuh"};
    static const char *const python_ends[] = {".py", ".pyw", ".pyx"}, *const kernel_ends[] = {".cl", ".clh", ".ocl"};
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    if (!dot) return IST_AUDIT_LANGUAGE_NONE;
    if (!strcmp(dot, ".C") || !strcmp(dot, ".H")) return IST_AUDIT_LANGUAGE_C;
    for (size_t k = 0; k < sizeof c_ends / sizeof *c_ends; k++)
        if (!strcmp(dot, c_ends[k])) return IST_AUDIT_LANGUAGE_C;
    for (size_t k = 0; k < sizeof python_ends / sizeof *python_ends; k++)
        if (!strcmp(dot, python_ends[k])) return IST_AUDIT_LANGUAGE_PYTHON;
    for (size_t k = 0; k < sizeof kernel_ends / sizeof *kernel_ends; k++)
        if (!strcmp(dot, kernel_ends[k])) return IST_AUDIT_LANGUAGE_KERNELS;
    if (!strcmp(dot, ".ipynb")) return IST_AUDIT_LANGUAGE_NOTEBOOK;
    return IST_AUDIT_LANGUAGE_NONE;
}

ist_status ist_audit_source_skip(ist_audit_source *source, const char *path, const char *reason, ist_error *err) {
    char *copy = ist_strdup(path), *why = ist_strdup(reason);
    if (!copy || !why ||
        !ist_grow((void **)&source->skipped, &source->skipped_cap, source->skipped_count + 1,
                  sizeof *source->skipped)) {
        free(copy);
        free(why);
        return ist_fail(err, IST_E_MEMORY, "out of memory for %zu names of files", source->skipped_count + 1);
    }
    source->skipped[source->skipped_count++] = (ist_audit_skipped){copy, why};
    return IST_OK;
}

/* A unit with its files, read, judged, forgotten. */
static ist_status read_unit(ist_audit_source *source, const ist_src_file *files, size_t count,
                            ist_audit_language language, ist_error *err) {
    ist_src_unit unit;
    ist_status status = IST_OK;
    size_t length = 0;
    for (size_t k = 0; k < count; k++) length += files[k].length;
    bool good = ist_src_unit_init(&unit, length);
    for (size_t k = 0; good && k < count; k++) good = ist_src_add_file(&unit, &files[k]);
    bool python = language == IST_AUDIT_LANGUAGE_PYTHON;
    if (good)
        (python ? ist_src_read_python : language == IST_AUDIT_LANGUAGE_C ? ist_src_read_c : ist_src_read_cl)(&unit);
    if (good && !unit.failed) status = ist_src_judge(&unit, source, python, err);
    if (!good || unit.failed) status = ist_fail(err, IST_E_MEMORY, "out of memory for %s", files[0].path);
    source->lines += unit.lines;
    source->kernels += unit.kernels;
    source->log.dropped += unit.dropped;
    ist_src_unit_free(&unit);
    return status;
}

static void forget_texts(ist_audit_source *source) {
    for (size_t k = 0; k < source->text_count; k++) {
        free(source->texts[k].path);
        free(source->texts[k].text);
        free(source->texts[k].cells);
    }
    source->text_count = source->text_bytes = 0;
}

static const char *inner_path(const char *path, size_t inner) {
    return path + (inner < strlen(path) ? inner : 0);
}

/* The Python files that wait. */
static ist_status read_texts(ist_audit_source *source, ist_error *err) {
    size_t n = source->text_count;
    if (!n) return IST_OK;
    ist_src_file *files = calloc(n, sizeof *files);
    ist_status status = files ? IST_OK : ist_fail(err, IST_E_MEMORY, "out of memory for %zu files", n);
    for (size_t k = 0; files && k < n; k++) {
        const ist_audit_text *t = &source->texts[k];
        files[k] = (ist_src_file){.path = t->path,
                                  .inner = inner_path(t->path, t->inner),
                                  .text = t->text,
                                  .length = t->length,
                                  .cells = t->cells};
    }
    if (files) status = read_unit(source, files, n, IST_AUDIT_LANGUAGE_PYTHON, err);
    free(files);
    forget_texts(source);
    return status;
}

/* Takes `text` and `cells`. */
static ist_status keep_text(ist_audit_source *source, const char *path, size_t inner, char *text, size_t length,
                            uint32_t *cells, ist_error *err) {
    ist_status status = IST_OK;
    char *copy = ist_strdup(path);
    if (source->text_bytes + length > IST_AUDIT_SOURCE_TOGETHER) status = read_texts(source, err);
    if (!status &&
        (!copy || !ist_grow((void **)&source->texts, &source->text_cap, source->text_count + 1, sizeof *source->texts)))
        status = ist_fail(err, IST_E_MEMORY, "out of memory for %s", path);
    if (status) {
        free(copy);
        free(text);
        free(cells);
        return status;
    }
    source->texts[source->text_count++] =
        (ist_audit_text){.path = copy, .inner = inner, .text = text, .length = length, .cells = cells};
    source->text_bytes += length;
    source->python_files++;
    return IST_OK;
}

static ist_status add_notebook(ist_audit_source *source, const char *path, size_t inner, const char *bytes,
                               size_t count, ist_error *err) {
    char *text;
    size_t length;
    uint32_t *cells;
    const char *reason;
    if (!ist_src_read_notebook(bytes, count, &text, &length, &cells, &reason))
        return ist_fail(err, IST_E_MEMORY, "out of memory for %zu bytes of %s", count, path);
    if (reason) return ist_audit_source_skip(source, path, reason, err);
    source->notebooks++;
    return keep_text(source, path, inner, text, length, cells, err);
}

ist_status ist_audit_source_add(ist_audit_source *source, const char *path, size_t inner, const char *bytes,
                                size_t count, ist_error *err) {
    ist_audit_language language = ist_audit_language_of(path);
    char *text;
    const char *reason;
    size_t length;
    if (count > IST_AUDIT_SOURCE_LIMIT) return ist_audit_source_skip(source, path, "larger than 64 MiB", err);
    if (language == IST_AUDIT_LANGUAGE_NOTEBOOK) return add_notebook(source, path, inner, bytes, count, err);
    if (!ist_src_decode(bytes, count, &text, &length, &reason))
        return ist_fail(err, IST_E_MEMORY, "out of memory for %zu bytes of %s", count, path);
    if (reason) return ist_audit_source_skip(source, path, reason, err);
    if (language == IST_AUDIT_LANGUAGE_PYTHON) return keep_text(source, path, inner, text, length, NULL, err);
    ist_src_file file = {.path = path, .inner = inner_path(path, inner), .text = text, .length = length};
    ist_status status = read_unit(source, &file, 1, language, err);
    *(language == IST_AUDIT_LANGUAGE_C ? &source->c_files : &source->kernel_files) += 1;
    free(text);
    return status;
}

/* Worst first: severity, how often it runs, training last; then by place. */
static int by_weight(const void *a, const void *b) {
    const ist_audit_finding *x = a, *y = b;
    if (x->severity != y->severity) return x->severity < y->severity ? -1 : 1;
    if (x->training != y->training) return x->training ? 1 : -1;
    if (x->context != y->context) return x->context < y->context ? -1 : 1;
    if (x->category != y->category) return x->category < y->category ? -1 : 1;
    return x->site < y->site ? -1 : x->site > y->site;
}

ist_status ist_audit_source_finish(ist_audit_source *source, const char *name, ist_error *err) {
    ist_audit_report *r = &source->report;
    IST_TRY(read_texts(source, err));
    r->log = &source->log;
    free(source->log.program);
    source->log.program = ist_strdup(name);
    if (!source->log.program) return ist_fail(err, IST_E_MEMORY, "out of memory for a name");
    if (r->finding_count) qsort(r->findings, r->finding_count, sizeof *r->findings, by_weight);
    memset(r->severities, 0, sizeof r->severities);
    for (size_t k = 0; k < r->finding_count; k++) r->severities[r->findings[k].severity]++;
    return IST_OK;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const ist_audit_file_total *)a)->path, ((const ist_audit_file_total *)b)->path);
}

static int by_severities(const void *a, const void *b) {
    const ist_audit_file_total *x = a, *y = b;
    for (int s = 0; s < IST_AUDIT_SEVERITY_COUNT; s++)
        if (x->severities[s] != y->severities[s]) return x->severities[s] > y->severities[s] ? -1 : 1;
    return by_path(a, b);
}

ist_audit_file_total *ist_audit_source_files(const ist_audit_source *source, size_t *count) {
    const ist_audit_report *r = &source->report;
    ist_audit_file_total *files = calloc(r->finding_count + 1, sizeof *files);
    size_t n = 0;
    *count = 0;
    if (!files) return NULL;
    for (size_t k = 0; k < r->finding_count; k++) {
        files[k].path = source->log.sites[r->findings[k].site].file;
        files[k].severities[r->findings[k].severity] = 1;
    }
    qsort(files, r->finding_count, sizeof *files, by_path);
    for (size_t k = 0; k < r->finding_count; k++) {
        if (n && !by_path(&files[n - 1], &files[k]))
            for (int s = 0; s < IST_AUDIT_SEVERITY_COUNT; s++) files[n - 1].severities[s] += files[k].severities[s];
        else
            files[n++] = files[k];
    }
    qsort(files, n, sizeof *files, by_severities);
    *count = n;
    return files;
}

void ist_audit_source_free(ist_audit_source *source) {
    for (size_t k = 0; k < source->skipped_count; k++) {
        free(source->skipped[k].path);
        free(source->skipped[k].reason);
    }
    free(source->skipped);
    forget_texts(source);
    free(source->texts);
    ist_audit_report_free(&source->report);
    ist_audit_log_free(&source->log);
    *source = (ist_audit_source){0};
}
