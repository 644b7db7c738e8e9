/* Walks through a Python file: blocks, functions and classes, imports, assignments. */
#include "audit/source_py.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PASSES = 3, MOST_BINDINGS = 1 << 20 };

static const ist_py_token *token(const ist_py_reader *r, uint32_t at) {
    return &r->tokens[at];
}

static uint32_t intern(ist_py_reader *r, uint32_t at) {
    const ist_py_token *t = token(r, at);
    return t->kind == IST_PY_NAME ? ist_src_intern(r->u, t->at, t->length) : 0;
}

/* The first of `text` outside of brackets in [first, end); `end` when there is none. */
static uint32_t find(const ist_py_reader *r, uint32_t first, uint32_t end, const char *text) {
    for (uint32_t i = first; i<end; i = token(r, i)->match> i ? token(r, i)->match + 1 : i + 1) {
        if (ist_py_is(token(r, i), text)) return i;
        if (ist_py_is(token(r, i), "lambda")) { /* its ":" and "=" are its own */
            while (i < end && !ist_py_is(token(r, i), ":")) i++;
            if (i == end) break;
        }
    }
    return end;
}

static ist_src_value value_in(ist_py_reader *r, uint32_t first, uint32_t end);

/* ---- names ---- */

ist_src_value ist_py_lookup(const ist_py_reader *r, uint32_t name) {
    uint32_t b = r->u->names[name].binding;
    ist_src_value v = b ? r->bindings[b - 1].value : (ist_src_value){0};
    v.hit = 0;
    if (v.kind || !r->u->names[name].value.hit) return v;
    char key[160];
    int n = snprintf(key, sizeof key, "%u:%s", (unsigned)r->function, ist_src_text(r->u, name));
    if (n < (int)sizeof key && ist_src_is_hinted(r->u, key, (size_t)n)) {
        v.kind = IST_PY_TENSOR;
        v.flags = IST_PY_SURE;
    }
    return v;
}

void ist_py_hint(ist_py_reader *r, uint32_t name) {
    char key[160];
    int n = snprintf(key, sizeof key, "%u:%s", (unsigned)r->function, ist_src_text(r->u, name));
    uint32_t hinted = n < (int)sizeof key ? ist_src_intern(r->u, key, (size_t)n) : 0;
    if (!hinted) return;
    r->u->names[hinted].hint = true;
    r->u->names[name].value.hit = 1; /* some function has a hint for it */
}

void ist_py_bind(ist_py_reader *r, uint32_t name, ist_src_value value) {
    ist_src_name *n = &r->u->names[name];
    if (!name) return;
    value.hit = 0;
    if (n->binding > r->base) {
        r->bindings[n->binding - 1].value = value;
        return;
    }
    if (r->binding_count >= MOST_BINDINGS) return;
    if (!ist_grow((void **)&r->bindings, &r->binding_cap, r->binding_count + 1, sizeof *r->bindings)) {
        r->u->failed = true;
        return;
    }
    r->bindings[r->binding_count++] = (ist_py_binding){name, n->binding, value};
    n->binding = (uint32_t)r->binding_count;
}

static void unbind_to(ist_py_reader *r, size_t count) {
    while (r->binding_count > count) {
        const ist_py_binding *b = &r->bindings[--r->binding_count];
        r->u->names[b->name].binding = b->before;
    }
}

uint32_t ist_py_attribute_name(ist_py_reader *r, const char *name, size_t length) {
    return ist_src_join(r->u, r->owner, name, length);
}

/* An attribute of self holds what any line of the class puts there. */
static void keep_attribute(ist_py_reader *r, const ist_py_token *name, ist_src_value value) {
    uint32_t number = ist_py_attribute_name(r, name->at, name->length);
    ist_src_value *kept = &r->u->names[number].value;
    value.hit = 0;
    value.flags &= (uint8_t)~IST_PY_CONST;
    *kept = kept->kind ? ist_py_either(*kept, value) : value;
}

/* ---- assignment ---- */

static void assign_one(ist_py_reader *r, uint32_t first, uint32_t end, ist_src_value value) {
    while (first < end && ist_py_is(token(r, first), "*")) first++;
    if (first >= end || token(r, first)->kind != IST_PY_NAME) return;
    if (end == first + 1) {
        ist_py_bind(r, intern(r, first), value);
    } else if (end == first + 3 && ist_py_is(token(r, first), "self") && ist_py_is(token(r, first + 1), ".")) {
        keep_attribute(r, token(r, first + 2), value);
    } else if (ist_py_is(token(r, end - 1), "]") || ist_py_is(token(r, end - 1), "}")) { /* data["x"] = value */
        uint32_t name = intern(r, first);
        ist_src_value have = ist_py_lookup(r, name);
        r->stored = value;
        value_in(r, first, end);
        if (!value.kind && have.kind == IST_PY_HOST && !(have.flags & IST_PY_CONST)) return;
        if (have.kind == IST_PY_HOST_TENSOR || have.kind == IST_PY_TENSOR || !r->u->names[name].binding) return;
        value.flags &= (uint8_t) ~(IST_PY_SURE | IST_PY_CONST);
        ist_py_bind(r, name, have.flags & IST_PY_CONST ? value : ist_py_either(have, value));
    }
}

/* Targets may be nested: (a, (b, c)). */
static void assign_list(ist_py_reader *r, uint32_t first, uint32_t end, ist_src_value value, const ist_src_value *each,
                        uint32_t count, unsigned depth) {
    uint32_t targets = 0, comma;
    while (first + 1 < end && (ist_py_is(token(r, first), "(") || ist_py_is(token(r, first), "[")) &&
           token(r, first)->match == end - 1)
        first++, end--;
    comma = find(r, first, end, ",");
    if (comma == end || depth > 8) {
        assign_one(r, first, end, value);
        return;
    }
    for (uint32_t i = first; i < end; i = find(r, i, end, ",") + 1) targets++;
    for (uint32_t i = first, k = 0; i < end; k++) {
        uint32_t stop = find(r, i, end, ",");
        ist_src_value v = value;
        v.flags &= (uint8_t)~IST_PY_CONST;
        assign_list(r, i, stop, targets == count ? each[k] : v, NULL, 0, depth + 1);
        i = stop + 1;
    }
}

void ist_py_assign(ist_py_reader *r, uint32_t first, uint32_t end, ist_src_value value) {
    ist_src_value each[IST_PY_ELEMENTS];
    uint32_t count = r->element_end == r->at ? r->element_count : 0;
    memcpy(each, r->elements, sizeof each);
    assign_list(r, first, end, value, each, count, 0);
}

/* ---- blocks ---- */

/* A name goes back to what it held, unless something else was assigned. */
static void widen(ist_py_reader *r, uint32_t name, ist_src_value before) {
    if (name && ist_py_is_sure(ist_py_lookup(r, name))) ist_py_bind(r, name, before);
}

static void leave_blocks(ist_py_reader *r, uint32_t indent) {
    while (r->block_count && r->blocks[r->block_count - 1].indent >= indent) {
        const ist_py_block *b = &r->blocks[--r->block_count];
        widen(r, b->narrowed, b->before_narrowing);
        if (b->kind == IST_PY_FUNCTION_BLOCK) {
            unbind_to(r, b->bindings);
            r->base = b->base;
        }
        r->function = b->function;
        r->loop = b->loop;
        r->owner = b->owner;
        r->module_class = b->module_class;
        r->training = b->training;
        r->branch = b->branch;
    }
}

/* Remembers what holds now, to be gone back to behind the block. */
static void enter_block(ist_py_reader *r, uint32_t indent, ist_py_block_kind kind) {
    if (r->block_count == IST_PY_BLOCKS) return;
    r->blocks[r->block_count++] = (ist_py_block){.indent = indent,
                                                 .function = r->function,
                                                 .loop = r->loop,
                                                 .owner = r->owner,
                                                 .bindings = r->binding_count,
                                                 .base = r->base,
                                                 .kind = (uint8_t)kind,
                                                 .module_class = r->module_class,
                                                 .branch = r->branch,
                                                 .training = r->training};
    r->branch = ++r->branches;
}

/* ---- functions and classes ---- */

static bool mentions(const ist_py_reader *r, uint32_t first, uint32_t end, const char *word) {
    for (uint32_t i = first; i < end; i++)
        if (ist_py_is(token(r, i), word)) return true;
    return false;
}

/* What an annotation says. */
static ist_src_value annotated(const ist_py_reader *r, uint32_t first, uint32_t end) {
    static const char *const plain[] = {"int", "float", "str", "bool", "ndarray", "Path"};
    bool tensor = mentions(r, first, end, "Tensor"), single = end == first + 1 ||
                                                              (end > first && ist_py_is(token(r, first + 1), ".")) ||
                                                              mentions(r, first, end, "Optional");
    if (tensor) return ist_py_of(r->u->host_data ? IST_PY_HOST_TENSOR : IST_PY_TENSOR, single ? IST_PY_SURE : 0);
    if (mentions(r, first, end, "Module")) return ist_py_of(IST_PY_MODULE, 0);
    for (size_t k = 0; k < sizeof plain / sizeof *plain; k++)
        if (mentions(r, first, end, plain[k])) return ist_py_of(IST_PY_HOST, 0);
    return (ist_src_value){0};
}

static void bind_parameter(ist_py_reader *r, ist_src_function *f, uint32_t first, uint32_t end) {
    while (first < end && (ist_py_is(token(r, first), "*") || ist_py_is(token(r, first), "**"))) first++;
    if (first >= end || token(r, first)->kind != IST_PY_NAME || f->param_count >= IST_SRC_PARAMS) return;
    uint32_t colon = find(r, first, end, ":"), equals = find(r, first, end, "="), name = intern(r, first);
    bool forward = r->module_class && !strcmp(ist_src_text(r->u, f->name), "forward");
    ist_src_value v = colon < equals ? annotated(r, colon + 1, equals) : (ist_src_value){0};
    if (!v.kind) v = f->given[f->param_count];
    if (!v.kind && forward && f->param_count) v = ist_py_of(IST_PY_TENSOR, 0);
    if (!v.kind && ist_py_is_model_name(token(r, first)->at, token(r, first)->length)) v.kind = IST_PY_MODULE;
    f->params[f->param_count++] = name;
    ist_py_bind(r, name, v);
}

static uint32_t define_function(ist_py_reader *r, uint32_t at, uint32_t end, uint32_t indent) {
    uint32_t name = intern(r, at), open = at + 1 < end ? at + 1 : at, owner = r->function ? 0 : r->owner;
    uint32_t close = token(r, open)->match;
    if (!name || !ist_py_is(token(r, open), "(")) return end;
    enter_block(r, indent, IST_PY_FUNCTION_BLOCK);
    r->function = ist_src_function_begin(r->u, name, owner);
    r->loop = 0;
    r->base = r->binding_count; /* too deep a block ends with the one around it */
    ist_src_function *f = ist_src_function_at(r->u, r->function);
    if (owner && !strcmp(ist_src_text(r->u, name), "forward")) r->u->names[owner].wide = true;
    if (f) {
        f->param_count = 0;
        if (r->cached) f->role = IST_SRC_SETUP, f->constructor = true; /* its body runs once, whoever calls it */
        r->cached = false;
        for (uint32_t i = open + 1; i < close && i < end;) {
            uint32_t stop = find(r, i, close < end ? close : end, ",");
            bind_parameter(r, f, i, stop);
            i = stop + 1;
        }
    }
    return find(r, close < end ? close : end, end, ":") + 1;
}

/* wide: the class is an nn.Module, by its bases or because it has a forward. */
static uint32_t define_class(ist_py_reader *r, uint32_t at, uint32_t end, uint32_t indent) {
    uint32_t name = intern(r, at), colon = find(r, at, end, ":");
    enter_block(r, indent, IST_PY_CLASS_BLOCK);
    for (uint32_t i = at + 1; i < colon && name; i++) {
        const ist_py_token *t = token(r, i);
        uint32_t base = intern(r, i);
        if (t->kind == IST_PY_NAME && (ist_py_is(t, "Module") || r->u->names[base].wide)) r->u->names[name].wide = true;
    }
    r->owner = name;
    r->function = r->loop = 0;
    r->module_class = r->u->names[name].wide;
    return colon + 1;
}

/* ---- imports ---- */

static void import_as(ist_py_reader *r, uint32_t name, const char *path, size_t length) {
    uint32_t alias = ist_src_intern(r->u, path, length);
    if (!name) return;
    r->u->names[name].alias = alias;
    r->torch = r->torch || !strncmp(path, "torch", 5);
    r->numpy = r->numpy || !strncmp(path, "numpy", 5);
    r->cupy = r->cupy || !strncmp(path, "cupy", 4);
    r->opencl = r->opencl || !strncmp(path, "pyopencl", 8);
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
        snprintf(path, sizeof path, "%s%s", prefix, *prefix ? "." : "");
        at = dotted(r, at, end, path, sizeof path);
        uint32_t name = intern(r, first);
        size_t length = strlen(path);
        if (at + 1 < end && ist_py_is(token(r, at), "as")) {
            name = intern(r, at + 1);
            at += 2;
        } else if (!*prefix) {
            length = strcspn(path, "."); /* "import a.b" binds a */
        }
        import_as(r, name, path, length);
        at = at > first ? at : first + 1;
        while (at < end && (ist_py_is(token(r, at), ",") || ist_py_is(token(r, at), ")"))) at++;
    }
}

static void import(ist_py_reader *r, uint32_t at, uint32_t end) {
    char prefix[IST_PY_PATH] = "";
    if (ist_py_is(token(r, at), "import")) {
        import_names(r, at + 1, end, prefix);
        return;
    }
    at = dotted(r, at + 1, end, prefix, sizeof prefix) + 1;
    if (at < end && ist_py_is(token(r, at), "(")) at++;
    if (*prefix != '.') import_names(r, at, end, prefix);
}

/* ---- statements ---- */

static ist_src_value value_in(ist_py_reader *r, uint32_t first, uint32_t end) {
    r->at = first;
    r->end = end;
    r->element_count = 0;
    r->element_end = UINT32_MAX;
    ist_src_value v = ist_py_expression_list(r);
    while (r->at < end) { /* what is no expression: the rest may still be one */
        uint32_t before = r->at;
        r->element_count = 0;
        ist_py_expression(r);
        if (r->at == before) r->at++;
    }
    return v;
}

/* for, while, if, with and so on: the header; the index behind its ":". */
static uint32_t compound(ist_py_reader *r, uint32_t at, uint32_t end, uint32_t indent) {
    uint32_t colon = find(r, at, end, ":"), line = token(r, at)->line;
    const ist_py_token *word = token(r, at);
    bool loop = ist_py_is(word, "for") || ist_py_is(word, "while");
    enter_block(r, indent, IST_PY_PLAIN_BLOCK);
    if (ist_py_is(word, "for")) {
        r->at = at;
        r->end = colon;
        ist_py_clauses(r, colon);
        return colon + 1;
    }
    if (loop) r->loop = ist_src_loop_begin(r->u, r->loop, r->function);
    if (ist_py_is(word, "with")) {
        for (uint32_t i = at + 1; i < colon;) {
            uint32_t stop = find(r, i, colon, ","), as = find(r, i, stop, "as");
            ist_src_value v = value_in(r, i, as);
            if (as < stop) assign_one(r, as + 1, stop, v);
            i = stop + 1;
        }
        return colon + 1;
    }
    if (at + 1 < colon && !ist_py_is(word, "except") && !ist_py_is(word, "case")) {
        ist_src_value v = value_in(r, at + 1, colon);
        if (!ist_py_is(word, "match")) ist_py_truth(r, v, line);
        if (ist_py_is(word, "if") && ist_py_is(token(r, colon - 1), "training") && !mentions(r, at, colon, "not"))
            r->training = true;
    }
    return colon + 1;
}

static bool is_compound(const ist_py_reader *r, uint32_t at, uint32_t end) {
    static const char *const words[] = {"for", "while", "if", "elif", "else", "with", "try", "except", "finally"};
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        if (ist_py_is(token(r, at), words[k])) return true;
    return (ist_py_is(token(r, at), "match") || ist_py_is(token(r, at), "case")) && end > at + 2 &&
           ist_py_is(token(r, end - 1), ":") && !ist_py_is(token(r, at + 1), "=");
}

static void give_back(ist_py_reader *r, ist_src_value v) {
    ist_src_function *f = ist_src_function_at(r->u, r->function);
    if (!f) return;
    v.hit = 0;
    v.flags &= (uint8_t)~IST_PY_CONST;
    f->result = f->result.kind || f->result.origin ? ist_py_either(f->result, v) : v;
}

static bool is_augmented(const ist_py_token *t) {
    return t->kind == IST_PY_SIGN && t->length >= 2 && t->at[t->length - 1] == '=' && !strchr("=!<>:", *t->at);
}

/* a = b = value; a: type = value; a += value */
static bool assignment(ist_py_reader *r, uint32_t at, uint32_t end) {
    uint32_t equals = find(r, at, end, "="), first = at, last = equals;
    for (uint32_t i = at; i<equals; i = token(r, i)->match> i ? token(r, i)->match + 1 : i + 1) {
        if (!is_augmented(token(r, i))) continue;
        ist_src_value v = ist_py_combine(value_in(r, at, i), value_in(r, i + 1, end));
        assign_list(r, at, i, v, NULL, 0, 0);
        return true;
    }
    if (equals >= end) return false;
    for (uint32_t next; (next = find(r, last + 1, end, "=")) < end;) last = next;
    ist_src_value v = value_in(r, last + 1, end);
    ist_src_value each[IST_PY_ELEMENTS];
    uint32_t count = r->element_end == r->at ? r->element_count : 0;
    memcpy(each, r->elements, sizeof each);
    while (first < last) {
        uint32_t stop = find(r, first, last, "="), colon = find(r, first, stop, ":");
        if (colon < stop && !v.kind) v = annotated(r, colon + 1, stop);
        assign_list(r, first, colon, v, each, count, 0);
        first = stop + 1;
    }
    return true;
}

static void simple_statement(ist_py_reader *r, uint32_t at, uint32_t end) {
    static const char *const skipped[] = {"global", "nonlocal", "pass", "break", "continue", "del"};
    const ist_py_token *t = token(r, at);
    if (at >= end) return;
    for (size_t k = 0; k < sizeof skipped / sizeof *skipped; k++)
        if (ist_py_is(t, skipped[k])) return;
    if (ist_py_is(t, "import") || ist_py_is(t, "from")) {
        import(r, at, end);
    } else if (ist_py_is(t, "return")) {
        if (at + 1 < end) give_back(r, value_in(r, at + 1, end));
    } else if (ist_py_is(t, "yield")) {
        give_back(r, value_in(r, at + 1, end));
    } else if (ist_py_is(t, "assert")) {
        uint32_t comma = find(r, at + 1, end, ",");
        ist_py_truth(r, value_in(r, at + 1, comma), t->line);
        if (comma + 1 < end) value_in(r, comma + 1, end);
    } else if (ist_py_is(t, "raise")) {
        value_in(r, at + 1, end);
    } else if (!assignment(r, at, end)) {
        r->line_start = at;
        value_in(r, at, end);
    }
}

static void statement(ist_py_reader *r, const ist_py_lexer *l) {
    uint32_t at = 0, end = (uint32_t)l->count;
    r->tokens = l->tokens;
    r->depth = 0;
    r->line_start = UINT32_MAX;
    leave_blocks(r, l->indent);
    size_t blocks = r->block_count;
    r->narrowed = 0;
    if (ist_py_is(token(r, at), "@")) { /* a decorator */
        for (uint32_t i = at + 1; i < end; i++)
            r->cached =
                r->cached || ist_src_has_word(token(r, i)->at, token(r, i)->length, " cache cached memoize memo ");
        return;
    }
    if (ist_py_is(token(r, at), "async")) at++;
    if (ist_py_is(token(r, at), "def"))
        at = define_function(r, at + 1, end, l->indent);
    else if (ist_py_is(token(r, at), "class"))
        at = define_class(r, at + 1, end, l->indent);
    else if (is_compound(r, at, end))
        at = compound(r, at, end, l->indent);
    if (r->narrowed && blocks < r->block_count) { /* for as long as the block */
        r->blocks[r->block_count - 1].narrowed = r->narrowed;
        r->blocks[r->block_count - 1].before_narrowing = r->before_narrowing;
        r->narrowed = 0;
    }
    if (at < end) simple_statement(r, at, end);
    widen(r, r->narrowed, r->before_narrowing);
}

static void read_lines(ist_py_reader *r, const char *text, size_t count) {
    ist_py_lexer lexer;
    ist_py_lexer_init(&lexer, text, count, 1);
    while (!r->u->failed && ist_py_next_line(&lexer)) statement(r, &lexer);
    r->u->failed = r->u->failed || lexer.failed;
    r->u->lines = lexer.line;
    leave_blocks(r, 0);
    unbind_to(r, 0);
    ist_py_lexer_free(&lexer);
}

void ist_src_read_python(ist_src_unit *unit, const char *text, size_t count) {
    ist_py_reader *r = calloc(1, sizeof *r);
    for (int pass = 1; r && pass <= PASSES && !unit->failed; pass++) {
        ist_py_binding *bindings = r->bindings;
        size_t cap = r->binding_cap;
        bool torch = r->torch, numpy = r->numpy, cupy = r->cupy, opencl = r->opencl;
        *r = (ist_py_reader){.u = unit,
                             .bindings = bindings,
                             .binding_cap = cap,
                             .torch = torch,
                             .numpy = numpy,
                             .cupy = cupy,
                             .opencl = opencl};
        ist_src_begin_pass(unit);
        read_lines(r, text, count);
        if (!unit->hit_count && !r->torch && !r->cupy && !r->opencl) break; /* nothing to learn about */
    }
    if (r)
        free(r->bindings);
    else
        unit->failed = true;
    free(r);
}
