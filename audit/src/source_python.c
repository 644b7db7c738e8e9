/* Goes over all Python files of a project until what is known of their functions and attributes changes no more. */
#include "audit/source_py.h"

#include <stdlib.h>
#include <string.h>

/* A reader for the file, with what is kept from file to file. */
static void begin_file(ist_py_reader *r, uint32_t file) {
    ist_src_unit *u = r->u;
    const ist_src_file *f = &u->files[file];
    *r = (ist_py_reader){.u = u,
                         .p = r->p,
                         .module = f->module,
                         .stamp = r->stamp + 1,
                         .imports = r->imports,
                         .import_cap = r->import_cap,
                         .bindings = r->bindings,
                         .binding_cap = r->binding_cap,
                         .torch = f->torch,
                         .numpy = f->numpy,
                         .cupy = f->cupy,
                         .opencl = f->opencl};
    u->file = file;
    u->host_data = f->host_data;
}

/* Lines from number `line` on; the number of the last one. */
static uint32_t read_lines(ist_py_reader *r, const char *text, size_t length, uint32_t line) {
    ist_py_lexer lexer;
    ist_py_lexer_init(&lexer, text, length, line);
    while (!r->u->failed && ist_py_next_line(&lexer)) ist_py_statement(r, &lexer);
    r->u->failed = r->u->failed || lexer.failed;
    line = lexer.line;
    ist_py_lexer_free(&lexer);
    return line;
}

/* A cell at a time: a bracket that one leaves open is no matter of the next. */
static void read_cells(ist_py_reader *r, const ist_src_file *f) {
    uint32_t line = 1;
    for (const char *at = f->text, *end = f->text + f->length; at < end;) {
        const char *stop = at;
        uint32_t first = line, cell = f->cells[2 * (size_t)(line - 1)];
        while (stop < end && f->cells[2 * (size_t)(line - 1)] == cell) {
            const char *next = memchr(stop, '\n', (size_t)(end - stop));
            stop = next ? next + 1 : end;
            line++;
        }
        read_lines(r, at, (size_t)(stop - at) - 1, first); /* without the last line end */
        at = stop;
    }
    r->u->lines += line - 1;
}

static void read_file(ist_py_reader *r, uint32_t file) {
    const ist_src_file *f = &r->u->files[file];
    begin_file(r, file);
    if (f->cells)
        read_cells(r, f);
    else
        r->u->lines += read_lines(r, f->text, f->length, 1);
    ist_py_end_file(r);
}

/* What callers passed in the pass before is what counts in the next. */
static void begin_pass(ist_src_unit *u) {
    ist_src_begin_pass(u);
    for (size_t i = 0; i < u->function_count; i++) {
        ist_src_function *f = &u->functions[i];
        memcpy(f->given, f->giving, sizeof f->given);
        memset(f->giving, 0, sizeof f->giving);
    }
}

static uint64_t mix(uint64_t hash, const ist_src_value *v) {
    const uint32_t parts[] = {v->kind, v->flags, v->of, v->origin};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) hash = (hash ^ parts[i]) * 1099511628211u;
    return hash;
}

/* Changes with whatever a further pass would go by. */
static uint64_t knowledge(const ist_py_reader *r) {
    const ist_src_unit *u = r->u;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < r->p->class_count; i++) {
        const ist_py_class *c = &r->p->classes[i];
        uint32_t flags = c->is_module + 2u * c->is_record + 4u * c->data + 8u * c->open;
        hash = (hash ^ (c->base_count * 16 + flags)) * 1099511628211u;
    }
    for (size_t i = 0; i < u->function_count; i++) {
        const ist_src_function *f = &u->functions[i];
        for (uint32_t k = 0; k < f->param_count; k++) hash = (mix(hash, &f->giving[k]) ^ f->sinks[k]) * 1099511628211u;
        for (uint32_t k = 0; k < f->part_count; k++) hash = mix(hash, &f->parts[k]);
        hash = mix(hash, &f->result);
    }
    for (size_t i = 0; i < u->name_count; i++)
        if (ist_py_is_known(u->names[i].value) || u->names[i].hint)
            hash = (mix(hash, &u->names[i].value) ^ u->names[i].hint) * 1099511628211u;
    return hash;
}

static bool is_about_devices(const ist_src_unit *u) {
    for (size_t i = 0; i < u->file_count; i++)
        if (u->files[i].torch || u->files[i].cupy || u->files[i].opencl) return true;
    return u->hit_count;
}

void ist_src_read_python(ist_src_unit *unit) {
    ist_py_project project = {.u = unit};
    ist_py_reader *r = calloc(1, sizeof *r);
    uint64_t known = 0;
    for (uint32_t file = 0; r && file < unit->file_count; file++) ist_py_add_module(&project, file);
    for (int pass = 1; r && pass <= IST_PY_PASSES && !unit->failed; pass++) {
        r->u = unit;
        r->p = &project;
        begin_pass(unit);
        for (uint32_t file = 0; file < unit->file_count && !unit->failed; file++) read_file(r, file);
        uint64_t now = knowledge(r);
        if (!is_about_devices(unit) || now == known) break;
        known = now;
    }
    if (r) {
        free(r->bindings);
        free(r->imports);
    }
    unit->failed = unit->failed || !r;
    free(r);
    ist_py_project_free(&project);
}
