/* Jupyter notebooks: the code of their cells as one text, and which cell and line each of its lines is. */
#include "audit/source_unit.h"

#include "base/mem.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer {
    char *text;
    size_t length, text_cap;
    uint32_t *cells; /* cell and line of each line */
    size_t count, cell_cap;
    bool failed;
} writer;

static void put(writer *w, const char *bytes, size_t count) {
    if (w->failed || !ist_grow((void **)&w->text, &w->text_cap, w->length + count + 1, 1)) {
        w->failed = true;
        return;
    }
    if (count) memcpy(w->text + w->length, bytes, count);
    w->length += count;
}

/* Commands to the notebook and to a shell are no Python; their lines stay, empty. */
static bool is_command(const char *line, size_t length) {
    size_t n = 0;
    while (n < length && (line[n] == ' ' || line[n] == '\t')) n++;
    return n < length && (line[n] == '%' || line[n] == '!' || line[n] == '?');
}

/* "%%bash" and the like make a cell of another language; those that only measure do not. */
static bool is_python_cell(const char *source) {
    static const char *const measures[] = {"%%time", "%%timeit", "%%capture", "%%prun"};
    source += strspn(source, " \t\n");
    if (strncmp(source, "%%", 2) != 0) return true;
    size_t n = strcspn(source, " \t\n");
    for (size_t k = 0; k < sizeof measures / sizeof *measures; k++)
        if (strlen(measures[k]) == n && !memcmp(source, measures[k], n)) return true;
    return false;
}

static void put_cell(writer *w, uint32_t cell, const char *source) {
    uint32_t number = 1;
    bool python = is_python_cell(source);
    for (const char *line = source; *line && !w->failed; number++) {
        size_t n = strcspn(line, "\r\n");
        if (!ist_grow((void **)&w->cells, &w->cell_cap, w->count + 2, sizeof *w->cells)) {
            w->failed = true;
            return;
        }
        w->cells[w->count++] = cell;
        w->cells[w->count++] = number;
        if (python && !is_command(line, n)) put(w, line, n);
        put(w, "\n", 1);
        line += n;
        line += line[0] == '\r' && line[1] == '\n' ? 2 : *line != '\0';
    }
}

/* A string, or an array of strings; the caller's to free. */
static char *source_of(const json_t *source) {
    writer w = {0};
    size_t k;
    const json_t *part;
    if (json_is_string(source)) put(&w, json_string_value(source), json_string_length(source));
    json_array_foreach(source, k, part) if (json_is_string(part))
        put(&w, json_string_value(part), json_string_length(part));
    put(&w, "", 1);
    if (!w.failed) return w.text;
    free(w.text);
    return NULL;
}

static void put_cells(writer *w, const json_t *cells) {
    size_t k;
    const json_t *cell;
    json_array_foreach(cells, k, cell) {
        const char *kind = json_string_value(json_object_get(cell, "cell_type"));
        const json_t *source = json_object_get(cell, "source");
        if (!kind || strcmp(kind, "code") != 0) continue;
        char *text = source_of(source ? source : json_object_get(cell, "input")); /* "input" before version 4 */
        w->failed = w->failed || !text;
        if (text) put_cell(w, (uint32_t)k + 1, text);
        free(text);
    }
}

static bool is_other_language(const json_t *root) {
    const json_t *metadata = json_object_get(root, "metadata");
    const char *name = json_string_value(json_object_get(json_object_get(metadata, "language_info"), "name"));
    if (!name) name = json_string_value(json_object_get(json_object_get(metadata, "kernelspec"), "language"));
    return name && strcmp(name, "python") != 0;
}

bool ist_src_read_notebook(const char *bytes, size_t count, char **text, size_t *length, uint32_t **cells,
                           const char **reason) {
    json_error_t error;
    json_t *root = json_loadb(bytes, count, 0, &error), *list = json_object_get(root, "cells");
    if (!root && json_error_code(&error) == json_error_out_of_memory) return false;
    if (!list) list = json_object_get(json_array_get(json_object_get(root, "worksheets"), 0), "cells");
    writer w = {0};
    *reason = !json_is_array(list)      ? "not a notebook"
              : is_other_language(root) ? "a notebook in another language"
                                        : NULL;
    if (!*reason) {
        put_cells(&w, list);
        put(&w, "", 0); /* also of no cells there is a text */
        w.failed = w.failed || !ist_grow((void **)&w.cells, &w.cell_cap, w.count + 2, sizeof *w.cells);
    }
    json_decref(root);
    *text = w.text;
    *length = w.length;
    *cells = w.cells;
    if (!w.failed) return true;
    free(w.text);
    free(w.cells);
    return false;
}
