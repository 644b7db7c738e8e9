/* Modules, imports, classes: what the names of a Python project mean. */
#include "audit/source_py_project.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_MODULE = 160, MOST_PATH = 512, MOST_CLASSES = 1 << 18, MOST_VISITS = 32, MOST_MODULES_OF_A_NAME = 64 };

void ist_py_project_free(ist_py_project *p) {
    free(p->modules);
    free(p->suffixes);
    free(p->classes);
    *p = (ist_py_project){0};
}

static const ist_src_name *name_at(const ist_py_project *p, uint32_t name) {
    return &p->u->names[name];
}

/* "first.second" if anything is called so. */
static uint32_t find_joined(const ist_py_project *p, uint32_t first, const char *second, size_t length) {
    char text[MOST_PATH];
    size_t n = name_at(p, first)->length;
    if (!first || n + 1 + length > sizeof text) return 0;
    memcpy(text, ist_src_text(p->u, first), n);
    text[n] = '.';
    memcpy(text + n + 1, second, length);
    return ist_src_find_name(p->u, text, n + 1 + length);
}

/* ---- modules ---- */

/* "package.module" of a file, at most the last MOST_MODULE characters of it in whole parts; folders above the project
 * count, since it may be a package of its own. */
static size_t module_text(const char *path, char *text, bool *package) {
    size_t n = 0;
    *package = false;
    while (*path) {
        size_t length = strcspn(path, "/");
        const char *part = path;
        path += length + (path[length] == '/');
        if (!length || (length <= 2 && part[0] == '.')) continue;
        if (!*path) { /* the file */
            for (size_t i = length; i-- > 0;)
                if (part[i] == '.') {
                    length = i;
                    break;
                }
            *package = length == 8 && !memcmp(part, "__init__", 8) && n;
            if (*package) break;
        }
        if (length > MOST_MODULE / 2) length = MOST_MODULE / 2;
        while (n + length + 1 > MOST_MODULE) { /* the first part goes */
            char *dot = memchr(text, '.', n);
            size_t first = dot ? (size_t)(dot - text) + 1 : n;
            memmove(text, text + first, n - first);
            n -= first;
        }
        if (n) text[n++] = '.';
        for (size_t i = 0; i < length; i++) text[n++] = part[i] == '.' ? '_' : part[i];
    }
    return n;
}

static uint32_t add_module(ist_py_project *p, const char *text, size_t length) {
    uint32_t name = ist_src_intern(p->u, text, length);
    if (!name || name_at(p, name)->module) return name ? name_at(p, name)->module : 0;
    if (!ist_grow((void **)&p->modules, &p->module_cap, p->module_count + 1, sizeof *p->modules)) {
        p->u->failed = true;
        return 0;
    }
    p->modules[p->module_count++] = (ist_py_module){.name = name};
    uint32_t number = p->u->names[name].module = (uint32_t)p->module_count;
    for (const char *at = text, *end = text + length; at; at = memchr(at, '.', (size_t)(end - at))) {
        at += at > text; /* behind the dot; every end of its name */
        uint32_t suffix = ist_src_intern(p->u, at, (size_t)(end - at));
        if (!suffix || !ist_grow((void **)&p->suffixes, &p->suffix_cap, p->suffix_count + 1, sizeof *p->suffixes)) {
            p->u->failed = p->u->failed || suffix;
            break;
        }
        p->suffixes[p->suffix_count++] = (ist_py_suffix){number, p->u->names[suffix].suffix};
        p->u->names[suffix].suffix = (uint32_t)p->suffix_count;
    }
    return number;
}

void ist_py_add_module(ist_py_project *p, uint32_t file) {
    char text[MOST_MODULE + 2];
    bool package;
    size_t n = module_text(p->u->files[file].path, text, &package);
    uint32_t number = add_module(p, text, n);
    if (number) p->modules[number - 1].package = p->modules[number - 1].package || package;
    p->u->files[file].module = number;
    for (size_t i = n; i-- > 0;)
        if (text[i] == '.') {
            number = add_module(p, text, i);
            if (number) p->modules[number - 1].package = true;
        }
}

/* ---- imports ---- */

static size_t common_length(const char *a, const char *b) {
    size_t n = 0;
    while (a[n] && a[n] == b[n]) n++;
    return n;
}

/* The module whose name ends so; of several, the one nearest to `from`. */
static uint32_t find_module(const ist_py_project *p, uint32_t from, const char *text, size_t length) {
    uint32_t name = ist_src_find_name(p->u, text, length), best = 0, steps = 0;
    const char *here = from ? ist_src_text(p->u, p->modules[from - 1].name) : "";
    size_t nearest = 0;
    for (uint32_t k = name ? name_at(p, name)->suffix : 0; k && steps < MOST_MODULES_OF_A_NAME;
         k = p->suffixes[k - 1].next, steps++) {
        uint32_t m = p->suffixes[k - 1].module;
        size_t near = common_length(here, ist_src_text(p->u, p->modules[m - 1].name)) + 1;
        if (near > nearest) best = m, nearest = near;
    }
    return best;
}

/* What other projects install: not looked for here, whatever folders are called. */
static bool is_known_library(const char *path) {
    static const char *const names[] = {
        "torch",   "torchvision", "numpy",   "cupy",        "pyopencl", "pycuda",    "math",        "cv2",
        "PIL",     "scipy",       "os",      "sys",         "typing",   "copy",      "collections", "json",
        "logging", "time",        "random",  "re",          "argparse", "functools", "itertools",   "matplotlib",
        "pandas",  "tqdm",        "skimage", "dataclasses", "abc"};
    size_t n = strcspn(path, ".");
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (strlen(names[k]) == n && !memcmp(path, names[k], n)) return true;
    return false;
}

/* "..a.b" from within a module, in `text`. */
static bool resolve_relative(const ist_py_project *p, uint32_t module, const char *path, char text[MOST_PATH]) {
    const ist_py_module *m = &p->modules[module - 1];
    size_t n = name_at(p, m->name)->length, dots = strspn(path, ".");
    const char *rest = path + dots;
    memcpy(text, ist_src_text(p->u, m->name), n + 1);
    for (size_t k = m->package ? 1 : 0; k < dots; k++) {
        char *dot = strrchr(text, '.');
        n = dot ? (size_t)(dot - text) : 0;
        text[n] = '\0';
    }
    size_t more = strlen(rest);
    if (n + more + 2 > MOST_PATH) return false;
    if (n && more) text[n++] = '.';
    memcpy(text + n, rest, more + 1);
    return n + more > 0;
}

uint32_t ist_py_import(ist_py_project *p, uint32_t module, const char *path) {
    char text[MOST_PATH];
    size_t length = strlen(path);
    if (*path == '.') {
        if (!module || !resolve_relative(p, module, path, text)) return 0;
        return ist_src_intern(p->u, text, strlen(text));
    }
    if (!is_known_library(path))
        for (size_t n = length; n > 0; n--) { /* the longest beginning that is a module */
            uint32_t m = path[n] == '.' || !path[n] ? find_module(p, module, path, n) : 0;
            if (!m) continue;
            uint32_t name = p->modules[m - 1].name;
            return n == length ? name : ist_src_join(p->u, name, path + n + 1, length - n - 1);
        }
    return ist_src_intern(p->u, path, length);
}

void ist_py_import_all(ist_py_project *p, uint32_t module, const char *path) {
    uint32_t name = ist_py_import(p, module, path), target = name ? name_at(p, name)->module : 0;
    if (!module || !target || target == module) return;
    ist_py_module *m = &p->modules[module - 1];
    for (uint32_t k = 0; k < m->star_count; k++)
        if (m->stars[k] == target) return;
    if (m->star_count < IST_PY_STARS) m->stars[m->star_count++] = target;
}

static bool means_something(const ist_src_name *n) {
    return n->function || n->class_ || n->value.kind || n->value.of || n->value.origin;
}

static uint32_t follow(const ist_py_project *p, uint32_t name, unsigned steps);

static uint32_t follow_in(const ist_py_project *p, uint32_t module, const char *text, size_t length, unsigned steps) {
    const ist_py_module *m = &p->modules[module - 1];
    uint32_t found = follow(p, find_joined(p, m->name, text, length), steps + 1);
    for (uint32_t k = 0; !found && k < m->star_count && steps < IST_PY_STEPS; k++)
        found = follow_in(p, m->stars[k], text, length, steps + 3);
    return found;
}

/* Through what modules import from others. */
static uint32_t follow(const ist_py_project *p, uint32_t name, unsigned steps) {
    for (; name && steps < IST_PY_STEPS; steps++) {
        const ist_src_name *n = name_at(p, name);
        if (means_something(n)) return name;
        if (n->alias && n->alias != name) {
            const char *text = ist_src_text(p->u, n->alias), *dot = strrchr(text, '.');
            uint32_t package = dot ? ist_src_find_name(p->u, text, (size_t)(dot - text)) : 0;
            if (!means_something(name_at(p, n->alias)) && !name_at(p, n->alias)->alias && package &&
                name_at(p, package)->module)
                return follow_in(p, name_at(p, package)->module, dot + 1, strlen(dot + 1), steps + 1);
            name = n->alias;
        } else {
            return 0;
        }
    }
    return 0;
}

uint32_t ist_py_symbol_of(const ist_py_project *p, const char *path) {
    const char *dot = strrchr(path, '.');
    uint32_t found = follow(p, ist_src_find_name(p->u, path, strlen(path)), 0);
    uint32_t package = !found && dot ? ist_src_find_name(p->u, path, (size_t)(dot - path)) : 0;
    if (!package) return found;
    if (name_at(p, package)->module) return follow_in(p, name_at(p, package)->module, dot + 1, strlen(dot + 1), 1);
    uint32_t owner = follow(p, package, 1); /* a method of a class that has this name */
    uint32_t class_ = owner ? name_at(p, owner)->class_ : 0;
    return class_ ? ist_py_method(p, class_, dot + 1, strlen(dot + 1)) : 0;
}

uint32_t ist_py_symbol_in(const ist_py_project *p, uint32_t module, const char *name, size_t length) {
    return module ? follow_in(p, module, name, length, 0) : 0;
}

/* ---- classes ---- */

uint32_t ist_py_class_of(ist_py_project *p, uint32_t name) {
    if (!name) return 0;
    if (name_at(p, name)->class_) return name_at(p, name)->class_;
    if (p->class_count >= MOST_CLASSES) return 0;
    if (!ist_grow((void **)&p->classes, &p->class_cap, p->class_count + 1, sizeof *p->classes)) {
        p->u->failed = true;
        return 0;
    }
    p->classes[p->class_count++] = (ist_py_class){.name = name, .file = p->u->file};
    return p->u->names[name].class_ = (uint32_t)p->class_count;
}

void ist_py_add_base(ist_py_project *p, uint32_t number, uint32_t base) {
    ist_py_class *c = ist_py_class_at(p, number), *b = ist_py_class_at(p, base);
    if (!c || !b || b == c) return;
    for (uint32_t k = 0; k < c->base_count; k++)
        if (c->bases[k] == base) return;
    if (c->base_count == IST_PY_BASES) return;
    c->bases[c->base_count++] = base;
    if (c->linked) return;
    c->linked = true;
    c->sibling = b->child;
    b->child = number;
}

void ist_py_add_field(ist_py_project *p, uint32_t number, uint32_t name) {
    ist_py_class *c = ist_py_class_at(p, number);
    if (!c || !name) return;
    for (uint32_t k = 0; k < c->field_count; k++)
        if (c->fields[k] == name) return;
    if (c->field_count < IST_PY_FIELDS) c->fields[c->field_count++] = name;
}

typedef struct search {
    const ist_py_project *p;
    const char *text;
    size_t length;
    bool method;
    unsigned visits;
} search;

static bool is_it(const search *s, uint32_t name) {
    const ist_src_name *n = name ? name_at(s->p, name) : NULL;
    if (!n) return false;
    return s->method ? n->function != 0 : n->value.kind || n->value.of || n->value.origin;
}

/* The class, then its bases. */
static uint32_t search_up(search *s, uint32_t number, unsigned depth) {
    const ist_py_class *c = ist_py_class_at(s->p, number);
    if (!c || depth > IST_PY_STEPS || ++s->visits > MOST_VISITS) return 0;
    uint32_t found = find_joined(s->p, c->name, s->text, s->length);
    if (is_it(s, found)) return found;
    for (uint32_t k = 0; k < c->base_count; k++)
        if ((found = search_up(s, c->bases[k], depth + 1))) return found;
    return 0;
}

/* Classes made of it. */
static uint32_t search_down(search *s, uint32_t number, unsigned depth) {
    const ist_py_class *c = ist_py_class_at(s->p, number);
    if (!c || depth > IST_PY_STEPS) return 0;
    for (uint32_t k = c->child; k && ++s->visits <= MOST_VISITS; k = s->p->classes[k - 1].sibling) {
        uint32_t found = find_joined(s->p, s->p->classes[k - 1].name, s->text, s->length);
        if (is_it(s, found) || (found = search_down(s, k, depth + 1))) return found;
    }
    return 0;
}

uint32_t ist_py_method(const ist_py_project *p, uint32_t number, const char *name, size_t length) {
    search s = {.p = p, .text = name, .length = length, .method = true};
    uint32_t found = search_up(&s, number, 0);
    s.visits = 0;
    return found ? found : search_down(&s, number, 0);
}

uint32_t ist_py_member(const ist_py_project *p, uint32_t number, const char *name, size_t length) {
    search s = {.p = p, .text = name, .length = length};
    return search_up(&s, number, 0);
}

static bool is_closed(const ist_py_project *p, uint32_t number, unsigned depth, unsigned *visits) {
    const ist_py_class *c = ist_py_class_at(p, number);
    if (!c || c->open || depth > IST_PY_STEPS || ++*visits > MOST_VISITS) return false;
    for (uint32_t k = 0; k < c->base_count; k++)
        if (!is_closed(p, c->bases[k], depth + 1, visits)) return false;
    return true;
}

bool ist_py_is_closed(const ist_py_project *p, uint32_t number) {
    unsigned visits = 0;
    return is_closed(p, number, 0, &visits);
}

static bool is_made_from(const ist_py_project *p, uint32_t number, uint32_t base, unsigned depth, unsigned *visits) {
    const ist_py_class *c = ist_py_class_at(p, number);
    if (!c || depth > IST_PY_STEPS || ++*visits > MOST_VISITS) return false;
    if (number == base) return true;
    for (uint32_t k = 0; k < c->base_count; k++)
        if (is_made_from(p, c->bases[k], base, depth + 1, visits)) return true;
    return false;
}

bool ist_py_is_made_from(const ist_py_project *p, uint32_t number, uint32_t base) {
    unsigned visits = 0;
    return is_made_from(p, number, base, 0, &visits);
}
