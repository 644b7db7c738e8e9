/* What goes through the functions, classes and dictionaries of a project: values, and the ways of downloaded data.
 *
 * A way within a function may begin with one of its parameters. The function remembers where its parameters are
 * uploaded (`sinks`) and what its result comes from; each call puts the way of its argument in front. Attributes are
 * not told apart by the object: a way out of them that begins with a parameter goes on with what any caller passed. */
#include "audit/source_py_call.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* ---- ways ---- */

static uint32_t add_hop(ist_py_reader *r, ist_src_hop_kind kind, uint32_t before, uint32_t line, ist_src_hop about) {
    about.kind = (uint8_t)kind;
    about.before = before;
    about.file = r->u->file;
    about.line = line;
    return ist_src_hop_add(r->u, about);
}

uint32_t ist_py_downloaded(ist_py_reader *r, uint32_t line) {
    return add_hop(r, IST_SRC_HOP_DOWN, 0, line, (ist_src_hop){0});
}

static bool is_derived(ist_src_value v) {
    return v.flags & IST_PY_DERIVED;
}

uint32_t ist_py_here(const ist_py_reader *r, uint32_t origin) {
    for (unsigned steps = 0; steps < IST_PY_STEPS && origin & IST_SRC_HOP_OPEN; steps++) {
        const ist_src_hop *root = ist_src_hop_root(r->u, origin);
        const ist_src_function *f = ist_src_function_at(r->u, root->function);
        if (root->function == r->function) return origin;
        origin = f && f->given[root->param].origin ? ist_src_hop_join(r->u, f->given[root->param].origin, origin) : 0;
    }
    return origin & IST_SRC_HOP_OPEN ? 0 : origin;
}

/* A way that ends here: of a parameter, or of a download. */
static void reached(ist_py_reader *r, uint32_t hop) {
    ist_src_function *f = ist_src_function_at(r->u, r->function);
    if (!(hop & IST_SRC_HOP_OPEN)) {
        ist_src_add_chain(r->u, hop);
        return;
    }
    const ist_src_hop *root = ist_src_hop_root(r->u, hop);
    uint32_t *sink = f && root->function == r->function ? &f->sinks[root->param] : NULL;
    if (!sink) return;
    bool better = *sink && ist_src_hop_at(r->u, *sink)->kind == IST_SRC_HOP_CALL &&
                  ist_src_hop_at(r->u, hop)->kind == IST_SRC_HOP_UP;
    if (!*sink || better) *sink = hop;
}

void ist_py_uploaded(ist_py_reader *r, uint32_t hit, ist_src_value v) {
    uint32_t origin = ist_py_here(r, v.origin);
    if (hit && origin)
        reached(r,
                add_hop(r, IST_SRC_HOP_UP, origin, r->u->hits[hit - 1].line, (ist_src_hop){.derived = is_derived(v)}));
}

void ist_py_handed(ist_py_reader *r, const ist_py_call *c) {
    for (uint32_t i = 0; i < c->arg_count; i++) {
        ist_src_value v = c->args[i].value;
        uint32_t origin = v.kind <= IST_PY_HOST_TENSOR ? ist_py_here(r, v.origin) : 0;
        if (!origin) continue;
        reached(r, add_hop(r, IST_SRC_HOP_CALL, origin, c->line,
                           (ist_src_hop){.name = c->name_id, .derived = is_derived(v)}));
    }
}

/* ---- calls ---- */

static bool is_device(ist_src_value v) {
    return v.kind == IST_PY_DEVICE || v.kind == IST_PY_HOST_DEVICE;
}

void ist_py_join(ist_src_value *kept, ist_src_value v) {
    v.hit = 0;
    v.flags &= (uint8_t)~IST_PY_CONST;
    if (ist_py_is_nothing(v) && kept->kind) return;
    if ((kept->kind || kept->origin) && !(ist_py_is_nothing(*kept) && v.kind)) {
        bool mixed = kept->kind != v.kind; /* somewhere it is no tensor */
        bool devices = mixed && is_device(*kept) && is_device(v);
        *kept = ist_py_either(*kept, v);
        if (mixed) kept->flags &= (uint8_t)~IST_PY_PLACED;
        if (devices) kept->flags |= IST_PY_OR_HOST;
        return;
    }
    if (v.kind < IST_PY_FUNCTION && kept->of) v.of = kept->of; /* its class is known, no more */
    *kept = v;
}

/* The parameter that argument `i` is for; IST_SRC_PARAMS: none that is known. */
static uint32_t parameter_of(const ist_py_call *c, const ist_src_function *f, uint32_t i, uint32_t skip) {
    const ist_py_arg *a = &c->args[i];
    uint32_t k = i + skip;
    if (a->star) return IST_SRC_PARAMS;
    if (a->keyword)
        for (k = 0; k < f->param_count && f->params[k] != a->keyword;) k++;
    return k < f->param_count ? k : IST_SRC_PARAMS;
}

/* What comes out of a function as `origin`, where `ways` went into its parameters. */
static uint32_t carried(ist_py_reader *r, const ist_py_call *c, uint32_t number, uint32_t origin,
                        const uint32_t *ways) {
    if (origin & IST_SRC_HOP_OPEN) {
        const ist_src_hop *root = ist_src_hop_root(r->u, origin);
        origin = root->function == number ? ist_src_hop_join(r->u, ways[root->param], origin) : ist_py_here(r, origin);
    }
    return origin ? add_hop(r, IST_SRC_HOP_RETURN, origin, c->line, (ist_src_hop){.function = number}) : 0;
}

/* What a function gives that works on a parameter, wherever that lies, lies where the argument does. */
static void place_like(ist_py_reader *r, const ist_py_call *c, uint32_t number, uint32_t skip, ist_src_value *v) {
    const ist_src_function *f = ist_src_function_at(r->u, number);
    if (v->kind != IST_PY_TENSOR || (v->flags & IST_PY_PLACED) || !(v->origin & IST_SRC_HOP_OPEN)) return;
    const ist_src_hop *root = ist_src_hop_root(r->u, v->origin);
    for (uint32_t i = 0; i < c->arg_count && root->function == number; i++) {
        uint8_t kind = c->args[i].value.kind;
        if (parameter_of(c, f, i, skip) == root->param && (kind == IST_PY_HOST || kind == IST_PY_HOST_TENSOR))
            v->kind = kind;
    }
}

static void note_call(ist_py_reader *r, const ist_py_call *c, uint32_t number) {
    uint32_t hit = ist_py_hit(r, IST_SRC_CALL, 0, c->line, "");
    if (hit) r->u->hits[hit - 1].from = number;
    ist_src_add_call(r->u, r->function, r->loop, number);
}

ist_src_value ist_py_call_function(ist_py_reader *r, const ist_py_call *c, uint32_t number, uint32_t skip) {
    ist_src_function *f = ist_src_function_at(r->u, number);
    uint32_t ways[IST_SRC_PARAMS] = {0};
    bool stars = false;
    note_call(r, c, number);
    for (uint32_t i = 0; i < c->arg_count; i++) {
        stars = stars || c->args[i].star;
        uint32_t k = stars && !c->args[i].keyword ? IST_SRC_PARAMS : parameter_of(c, f, i, skip);
        if (k == IST_SRC_PARAMS) continue;
        ist_src_value given = c->args[i].value;
        given.origin = ist_py_here(r, given.origin);
        if (given.origin)
            given.origin = ways[k] =
                add_hop(r, IST_SRC_HOP_PASS, given.origin, c->line,
                        (ist_src_hop){.function = number, .param = (uint8_t)k, .derived = is_derived(given)});
        ist_py_join(&f->giving[k], given);
        if (ways[k] && f->sinks[k]) reached(r, ist_src_hop_join(r->u, ways[k], f->sinks[k]));
    }
    ist_src_value v = f->result;
    v.hit = 0;
    place_like(r, c, number, skip, &v);
    v.origin = carried(r, c, number, v.origin, ways);
    for (uint32_t k = 0; k < f->part_count; k++) {
        r->elements[k] = f->parts[k];
        place_like(r, c, number, skip, &r->elements[k]);
        r->elements[k].origin = carried(r, c, number, f->parts[k].origin, ways);
    }
    r->element_count = f->part_count;
    r->element_end = f->part_count ? r->at : UINT32_MAX;
    return v;
}

ist_src_value ist_py_construct(ist_py_reader *r, const ist_py_call *c, uint32_t number) {
    const ist_py_class *class_ = ist_py_class_at(r->p, number);
    ist_src_value v = {.kind = class_->is_module ? IST_PY_MODULE : IST_PY_UNKNOWN, .of = number};
    uint32_t init = ist_py_method(r->p, number, "__init__", 8);
    uint32_t function = init ? r->u->names[init].function : 0;
    if (function) {
        ist_py_call_function(r, c, function, ist_src_function_at(r->u, function)->bound);
        r->element_count = 0;
        return v;
    }
    for (uint32_t i = 0; i < c->arg_count && !c->args[i].star; i++) {
        uint32_t name = c->args[i].keyword ? c->args[i].keyword : i < class_->field_count ? class_->fields[i] : 0;
        if (!name) continue;
        ist_py_keep(r, number, ist_src_text(r->u, name), r->u->names[name].length, c->line, c->args[i].value);
        class_ = ist_py_class_at(r->p, number);
    }
    return v;
}

/* ---- attributes and fields ---- */

void ist_py_keep(ist_py_reader *r, uint32_t number, const char *name, size_t length, uint32_t line, ist_src_value v) {
    const ist_py_class *c = ist_py_class_at(r->p, number);
    uint32_t key = c ? ist_src_intern(r->u, name, length) : 0;
    uint32_t full = key ? ist_src_join(r->u, c->name, ist_src_text(r->u, key), length) : 0;
    if (!full) return;
    v.origin = ist_py_here(r, v.origin);
    if (v.origin)
        v.origin = add_hop(r, IST_SRC_HOP_KEEP, v.origin, line, (ist_src_hop){.name = key, .derived = is_derived(v)});
    ist_py_join(&r->u->names[full].value, v);
}

bool ist_py_kept(const ist_py_reader *r, uint32_t number, const char *name, size_t length, ist_src_value *v) {
    uint32_t full = ist_py_member(r->p, number, name, length);
    if (!full) return false;
    *v = r->u->names[full].value;
    v->hit = 0;
    v->origin = ist_py_here(r, v->origin);
    return true;
}

uint32_t ist_py_record(ist_py_reader *r, const ist_py_token *t) {
    char text[64];
    size_t column = (size_t)(t->at - r->u->files[r->u->file].text);
    int n = snprintf(text, sizeof text, "{%u:%u:%zu}", (unsigned)r->u->file, (unsigned)t->line, column);
    uint32_t number = ist_py_class_of(r->p, ist_src_intern(r->u, text, (size_t)n));
    if (number) ist_py_class_at(r->p, number)->is_record = true;
    return number;
}

/* ---- what names mean ---- */

static ist_src_value meaning(const ist_py_reader *r, uint32_t symbol) {
    const ist_src_name *n = &r->u->names[symbol];
    if (!symbol) return (ist_src_value){0};
    if (n->function) return (ist_src_value){.kind = IST_PY_FUNCTION, .of = n->function};
    if (n->class_) return (ist_src_value){.kind = IST_PY_CLASS, .of = n->class_};
    ist_src_value v = n->value;
    v.hit = 0;
    v.origin = ist_py_here(r, v.origin);
    return v;
}

ist_src_value ist_py_global(ist_py_reader *r, uint32_t name) {
    ist_src_name *n = &r->u->names[name];
    if (!name) return (ist_src_value){0};
    if (n->stamp != r->stamp) {
        n->symbol = n->alias ? ist_py_symbol_of(r->p, ist_src_text(r->u, n->alias))
                             : ist_py_symbol_in(r->p, r->module, ist_src_text(r->u, name), n->length);
        n->stamp = n->symbol || r->stamp > r->u->file_count ? r->stamp : 0; /* the first pass learns of more */
    }
    return meaning(r, n->symbol);
}

ist_src_value ist_py_global_path(const ist_py_reader *r, const char *path) {
    return meaning(r, ist_py_symbol_of(r->p, path));
}
