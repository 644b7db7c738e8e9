/* Import statements: names of this file for what modules have, of the project and of libraries. */
#include "audit/source_py.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static const ist_py_token *token(const ist_py_reader *r, uint32_t at) {
    return &r->tokens[at];
}

static uint32_t intern(ist_py_reader *r, uint32_t at) {
    const ist_py_token *t = token(r, at);
    return t->kind == IST_PY_NAME ? ist_src_intern(r->u, t->at, t->length) : 0;
}

/* `name` means `path` from now on, to this file and to those that import it from here. */
static void import_as(ist_py_reader *r, uint32_t name, const char *path) {
    uint32_t alias = ist_py_import(r->p, r->module, path);
    ist_src_file *f = &r->u->files[r->u->file];
    if (!name || !alias) return;
    if (!r->u->names[name].alias) {
        if (!ist_grow((void **)&r->imports, &r->import_cap, r->import_count + 1, sizeof *r->imports)) {
            r->u->failed = true;
            return;
        }
        r->imports[r->import_count++] = name;
    }
    r->u->names[name].alias = alias;
    r->u->names[name].stamp = 0;
    if (r->module && !r->function) {
        const ist_src_name *n = &r->u->names[name];
        uint32_t full = ist_src_join(r->u, r->p->modules[r->module - 1].name, ist_src_text(r->u, name), n->length);
        if (full && full != alias) r->u->names[full].alias = alias;
    }
    r->torch = f->torch = r->torch || !strncmp(path, "torch", 5);
    r->numpy = f->numpy = r->numpy || !strncmp(path, "numpy", 5);
    r->cupy = f->cupy = r->cupy || !strncmp(path, "cupy", 4);
    r->opencl = f->opencl = r->opencl || !strncmp(path, "pyopencl", 8);
}

/* "a.b.c" from `at` on into `path`; the index behind it. */
static uint32_t dotted(const ist_py_reader *r, uint32_t at, uint32_t end, char *path, size_t size) {
    size_t n = strlen(path);
    for (; at < end && !ist_py_is(token(r, at), "import") && !ist_py_is(token(r, at), "as") &&
           !ist_py_is(token(r, at), ",") && !ist_py_is(token(r, at), ")");
         at++)
        if (n + token(r, at)->length + 1 < size) {
            memcpy(path + n, token(r, at)->at, token(r, at)->length);
            path[n += token(r, at)->length] = '\0';
        }
    return at;
}

/* The names of an import statement from `at` on; `prefix` is the module of "from". */
static void import_names(ist_py_reader *r, uint32_t at, uint32_t end, const char *prefix) {
    while (at < end) {
        char path[IST_PY_PATH];
        uint32_t first = at;
        bool dotted_prefix = *prefix && prefix[strlen(prefix) - 1] != '.'; /* "from . import a" is ".a" */
        snprintf(path, sizeof path, "%s%s", prefix, dotted_prefix ? "." : "");
        at = dotted(r, at, end, path, sizeof path);
        uint32_t name = intern(r, first);
        if (at + 1 < end && ist_py_is(token(r, at), "as")) {
            name = intern(r, at + 1);
            at += 2;
        } else if (!*prefix) {
            path[strcspn(path, ".")] = '\0'; /* "import a.b" binds a */
        }
        if (ist_py_is(token(r, first), "*"))
            ist_py_import_all(r->p, r->module, prefix);
        else
            import_as(r, name, path);
        at = at > first ? at : first + 1;
        while (at < end && (ist_py_is(token(r, at), ",") || ist_py_is(token(r, at), ")"))) at++;
    }
}

void ist_py_import_statement(ist_py_reader *r, uint32_t at, uint32_t end) {
    char prefix[IST_PY_PATH] = "";
    if (ist_py_is(token(r, at), "import")) {
        import_names(r, at + 1, end, prefix);
        return;
    }
    at = dotted(r, at + 1, end, prefix, sizeof prefix) + 1;
    if (at < end && ist_py_is(token(r, at), "(")) at++;
    import_names(r, at, end, prefix);
}
