/* Statements of Python: blocks, functions and classes, assignments. */
#include "audit/source_py_call.h"

#include <stdio.h>
#include <string.h>

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

/* ---- assignment ---- */

/* have["key"] = value, from the bracket at `open` on. */
static void store_field(ist_py_reader *r, ist_src_value have, uint32_t open, uint32_t end, ist_src_value value) {
    const ist_py_class *c = ist_py_is_instance(have) ? ist_py_class_at(r->p, have.of) : NULL;
    if (!c || !c->is_record || !ist_py_is(token(r, open), "[") || token(r, open)->match != end - 1) return;
    const ist_py_token *key = token(r, open + 1);
    if (end == open + 3 && key->kind == IST_PY_STRING && key->length)
        ist_py_keep(r, have.of, key->at, key->length, key->line, value);
    ist_py_keep(r, have.of, "*", 1, key->line, value);
}

/* have.name[...] = value: what is in the attribute's container. */
static void store_in_attribute(ist_py_reader *r, ist_src_value have, uint32_t name, ist_src_value value) {
    const ist_py_token *t = token(r, name);
    if (!ist_py_is_instance(have) || value.kind > IST_PY_TENSOR) return;
    value.flags &= (uint8_t) ~(IST_PY_SURE | IST_PY_CONST);
    ist_py_keep(r, have.of, t->at, t->length, t->line, value);
}

static void assign_one(ist_py_reader *r, uint32_t first, uint32_t end, ist_src_value value) {
    while (first < end && ist_py_is(token(r, first), "*")) first++;
    if (first >= end || token(r, first)->kind != IST_PY_NAME) return;
    const ist_py_token *last = token(r, end - 1);
    if (value.kind == IST_PY_TENSOR && last->kind == IST_PY_NAME &&
        ist_py_in(last->at, last->length, " model net network ")) /* something.to(device) */
        value = (ist_src_value){.kind = IST_PY_MODULE, .of = value.of, .flags = value.flags & IST_PY_PLACED};
    if (end == first + 1) {
        ist_py_bind(r, intern(r, first), value);
        const ist_py_token *t = token(r, first); /* of a class body: an attribute too */
        if (r->class_ && !r->function) ist_py_keep(r, r->class_, t->at, t->length, t->line, value);
    } else if (end == first + 3 && ist_py_is(token(r, first + 1), ".")) {
        const ist_py_token *t = token(r, first + 2);
        ist_src_value on = ist_py_lookup(r, intern(r, first));
        if (ist_py_is_instance(on)) ist_py_keep(r, on.of, t->at, t->length, t->line, value);
    } else if (ist_py_is(token(r, end - 1), "]") || ist_py_is(token(r, end - 1), "}")) { /* data["x"] = value */
        uint32_t name = intern(r, first);
        ist_src_value have = ist_py_lookup(r, name);
        r->stored = value;
        value_in(r, first, end);
        store_field(r, have, first + 1, end, value);
        if (end > first + 4 && ist_py_is(token(r, first + 1), ".") && ist_py_is(token(r, first + 3), "[") &&
            token(r, first + 3)->match == end - 1)
            store_in_attribute(r, have, first + 2, value);
        if (!value.kind && have.kind == IST_PY_HOST && !(have.flags & IST_PY_CONST)) return;
        if (first + 1 < end && token(r, first + 1)->match != end - 1) return; /* a part of what it holds */
        if (have.kind == IST_PY_HOST_TENSOR || have.kind == IST_PY_TENSOR || !r->u->names[name].binding) return;
        value.flags &= (uint8_t) ~(IST_PY_SURE | IST_PY_CONST);
        if (value.kind >= IST_PY_FUNCTION) value.kind = IST_PY_UNKNOWN, value.of = 0;
        if (ist_py_is_instance(have)) value.of = have.of;
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

/* ---- functions and classes ---- */

static bool mentions(const ist_py_reader *r, uint32_t first, uint32_t end, const char *word) {
    for (uint32_t i = first; i < end; i++)
        if (ist_py_is(token(r, i), word)) return true;
    return false;
}

/* A class of the project that an annotation names, in quotes or not; 0: none. */
static uint32_t annotated_class(ist_py_reader *r, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++) {
        const ist_py_token *t = token(r, i);
        if (t->kind != IST_PY_NAME && t->kind != IST_PY_STRING) continue;
        uint32_t name = t->length ? ist_src_find_name(r->u, t->at, t->length) : 0;
        ist_src_value v = name ? ist_py_global(r, name) : (ist_src_value){0};
        if (v.kind == IST_PY_CLASS) return v.of;
    }
    return 0;
}

/* Where the type of what an annotated dictionary holds begins; else `first`. */
static uint32_t values_of(const ist_py_reader *r, uint32_t first, uint32_t end) {
    if (first + 1 >= end || token(r, first)->kind != IST_PY_NAME || !ist_py_is(token(r, first + 1), "[")) return first;
    if (!ist_src_has_word(token(r, first)->at, token(r, first)->length, " dict mapping ")) return first;
    uint32_t comma = find(r, first + 2, end, ",");
    return comma < end ? comma + 1 : first;
}

/* What an annotation says. */
static ist_src_value annotated(ist_py_reader *r, uint32_t first, uint32_t end) {
    static const char *const plain[] = {"int", "float", "str", "bool", "ndarray", "Path"};
    first = values_of(r, first, end);
    bool tensor = mentions(r, first, end, "Tensor"), single = end == first + 1 ||
                                                              (end > first && ist_py_is(token(r, first + 1), ".")) ||
                                                              mentions(r, first, end, "Optional");
    if (tensor) return ist_py_of(r->u->host_data ? IST_PY_HOST_TENSOR : IST_PY_TENSOR, single ? IST_PY_SURE : 0);
    uint32_t class_ = annotated_class(r, first, end);
    if (class_)
        return (ist_src_value){.kind = ist_py_class_at(r->p, class_)->is_module ? IST_PY_MODULE : IST_PY_UNKNOWN,
                               .of = class_};
    if (mentions(r, first, end, "Module")) return ist_py_of(IST_PY_MODULE, 0);
    for (size_t k = 0; k < sizeof plain / sizeof *plain; k++)
        if (mentions(r, first, end, plain[k]) && !mentions(r, first, end, "Any")) return ist_py_of(IST_PY_HOST, 0);
    return (ist_src_value){0};
}

/* device="cuda": unless callers say otherwise, and device="cpu": when they do not. */
static ist_src_value with_default(const ist_py_reader *r, ist_src_value v, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++) {
        const ist_py_token *t = token(r, i);
        bool device = v.kind == IST_PY_DEVICE || v.kind == IST_PY_HOST_DEVICE;
        if (t->kind != IST_PY_STRING) continue;
        if ((device || !v.kind) && t->length >= 4 && !memcmp(t->at, "cuda", 4)) {
            if (v.kind == IST_PY_HOST_DEVICE) v.flags |= IST_PY_OR_HOST;
            v.kind = IST_PY_DEVICE;
        } else if (device && t->length == 3 && !memcmp(t->at, "cpu", 3)) {
            v.flags |= IST_PY_OR_HOST;
        }
    }
    return v;
}

/* What a parameter holds: as it is annotated, as callers pass, as its name says. Its way begins with itself. */
static ist_src_value parameter_value(ist_py_reader *r, const ist_src_function *f, uint32_t first, uint32_t end,
                                     uint32_t equals) {
    uint32_t colon = find(r, first, end, ":"), k = f->param_count;
    bool forward = r->module_class && !strcmp(ist_src_text(r->u, f->name), "forward");
    ist_src_value v = colon < equals ? annotated(r, colon + 1, equals) : (ist_src_value){0};
    if (!v.kind) {
        uint32_t class_ = v.of;
        v = f->given[k];
        if (class_) v.kind = v.kind < IST_PY_FUNCTION ? v.kind : IST_PY_UNKNOWN, v.of = class_;
    }
    if (k == 0 && f->bound) v = (ist_src_value){.of = r->class_};
    if (ist_py_is_nothing(v)) v = (ist_src_value){0}; /* others pass something */
    if (forward && k && !v.of && (v.kind == IST_PY_UNKNOWN || v.kind == IST_PY_HOST_TENSOR))
        v = ist_py_of(IST_PY_TENSOR, 0);
    if (forward && k && ist_py_is_instance(v)) v.flags |= IST_PY_PLACED; /* its tensors are where the model is */
    if (v.kind != IST_PY_DEVICE) v.flags &= (uint8_t)~IST_PY_DERIVED;
    v = with_default(r, v, equals + 1, end);
    const ist_py_token *t = token(r, first);
    if (equals < end && v.kind == IST_PY_HOST_DEVICE && ist_src_has_word(t->at, t->length, " device "))
        v.kind = IST_PY_DEVICE, v.flags |= IST_PY_OR_HOST; /* to be chosen */
    bool open_kind = !v.kind || v.kind == IST_PY_HOST;     /* HOST: some caller has None for it */
    if (open_kind && ist_py_is_model_name(t->at, t->length)) v.kind = IST_PY_MODULE, v.flags |= IST_PY_PLACED;
    v.origin = ist_src_hop_add(
        r->u,
        (ist_src_hop){.kind = IST_SRC_HOP_PARAM, .file = r->u->file, .function = r->function, .param = (uint8_t)k});
    return v;
}

static void bind_parameter(ist_py_reader *r, ist_src_function *f, uint32_t first, uint32_t end) {
    bool star = false;
    while (first < end && (ist_py_is(token(r, first), "*") || ist_py_is(token(r, first), "**"))) first++, star = true;
    if (first >= end || token(r, first)->kind != IST_PY_NAME || f->param_count >= IST_SRC_PARAMS) return;
    const ist_py_token *t = token(r, first);
    uint32_t equals = find(r, first, end, "="), name = intern(r, first);
    bool own = f->param_count == 0 && f->owner && (ist_py_is(t, "self") || ist_py_is(t, "cls"));
    if (own) f->bound = 1;
    ist_src_value v = parameter_value(r, f, first, end, equals);
    if (own && ist_py_is(t, "cls")) v.kind = IST_PY_CLASS;
    f->params[f->param_count++] = star ? 0 : name;
    ist_py_bind(r, name, v);
}

/* The full name means the function from now on; one inside another has a name only there. */
static void name_function(ist_py_reader *r, uint32_t name, uint32_t number) {
    const ist_py_class *c = ist_py_class_at(r->p, r->class_);
    if (r->function) {
        ist_py_bind(r, name, (ist_src_value){.kind = IST_PY_FUNCTION, .of = number});
        return;
    }
    uint32_t in = c ? c->name : r->module ? r->p->modules[r->module - 1].name : 0;
    uint32_t full = in ? ist_src_join(r->u, in, ist_src_text(r->u, name), r->u->names[name].length) : 0;
    if (full) r->u->names[full].function = number;
}

static uint32_t define_function(ist_py_reader *r, uint32_t at, uint32_t end, uint32_t indent) {
    uint32_t name = intern(r, at), open = at + 1 < end ? at + 1 : at, owner = r->function ? 0 : r->owner;
    uint32_t close = token(r, open)->match;
    if (!name || !ist_py_is(token(r, open), "(")) return end;
    uint32_t number = ist_src_function_begin(r->u, name, owner);
    name_function(r, name, number);
    ist_py_enter_block(r, indent, IST_PY_FUNCTION_BLOCK);
    r->function = number;
    r->loop = 0;
    r->base = r->binding_count; /* too deep a block ends with the one around it */
    ist_src_function *f = ist_src_function_at(r->u, r->function);
    ist_py_class *c = owner ? ist_py_class_at(r->p, r->class_) : NULL;
    if (c && !strcmp(ist_src_text(r->u, name), "forward")) c->is_module = true;
    uint32_t body = find(r, close < end ? close : end, end, ":");
    if (f) {
        f->param_count = f->part_count = 0;
        f->result = (ist_src_value){0};
        memset(f->sinks, 0, sizeof f->sinks);
        memset(f->parts, 0, sizeof f->parts);
        if (r->cached) f->role = IST_SRC_SETUP, f->constructor = true; /* its body runs once, whoever calls it */
        f->property = r->property;
        for (uint32_t i = open + 1; i < close && i < end;) {
            uint32_t stop = find(r, i, close < end ? close : end, ",");
            bind_parameter(r, f, i, stop);
            i = stop + 1;
        }
        if (close + 1 < body) f->result.of = annotated_class(r, close + 1, body);
    }
    r->cached = r->property = false;
    return body + 1;
}

/* What "a.b.Base" means that ends at `last`. */
static ist_src_value base_path(ist_py_reader *r, uint32_t last) {
    char path[IST_PY_PATH];
    uint32_t first = last;
    while (first >= 2 && ist_py_is(token(r, first - 1), ".") && token(r, first - 2)->kind == IST_PY_NAME) first -= 2;
    uint32_t name = intern(r, first), alias = r->u->names[name].alias;
    size_t used = (size_t)snprintf(path, sizeof path, "%s", ist_src_text(r->u, alias));
    for (uint32_t i = first + 2; i <= last && used + token(r, i)->length + 2 < sizeof path; i += 2)
        used += (size_t)snprintf(path + used, sizeof path - used, ".%.*s", (int)token(r, i)->length, token(r, i)->at);
    return alias ? ist_py_global_path(r, path) : (ist_src_value){0};
}

/* Full name of a class that begins here; those inside functions are told apart by their module only. */
static uint32_t class_name(ist_py_reader *r, uint32_t name) {
    const ist_py_class *outer = r->function ? NULL : ist_py_class_at(r->p, r->class_);
    uint32_t in = outer ? outer->name : r->module ? r->p->modules[r->module - 1].name : 0;
    return in && name ? ist_src_join(r->u, in, ist_src_text(r->u, name), r->u->names[name].length) : 0;
}

/* Base classes between the brackets of [first, end). A class is an nn.Module by its bases or because it has a forward.
 */
static void read_bases(ist_py_reader *r, uint32_t number, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++) {
        const ist_py_token *t = token(r, i);
        bool goes_on = ist_py_is(t + 1, ".") || ist_py_is(t + 1, "="), value = ist_py_is(t - 1, "=");
        if (t->kind != IST_PY_NAME || goes_on || value) continue;
        ist_src_value base = ist_py_is(t - 1, ".") ? base_path(r, i) : ist_py_global(r, intern(r, i));
        uint32_t of = base.kind == IST_PY_CLASS ? base.of : 0;
        ist_py_class *c = ist_py_class_at(r->p, number);
        const ist_py_class *b = ist_py_class_at(r->p, of);
        if (of) ist_py_add_base(r->p, number, of);
        c->is_module = c->is_module || ist_py_is(t, "Module") || (b && b->is_module);
        c->data = c->data || ist_py_is(t, "NamedTuple") || (b && b->data);
        c->open = !b && !ist_py_is(t, "object") && !ist_py_is(t, "ABC") && !ist_py_is(t, "NamedTuple");
    }
}

static uint32_t define_class(ist_py_reader *r, uint32_t at, uint32_t end, uint32_t indent) {
    uint32_t name = intern(r, at), colon = find(r, at, end, ":"), number = ist_py_class_of(r->p, class_name(r, name));
    ist_py_enter_block(r, indent, IST_PY_CLASS_BLOCK);
    if (number) read_bases(r, number, at + 1, colon);
    ist_py_class *c = ist_py_class_at(r->p, number);
    if (c) c->data = c->data || r->data;
    r->data = false;
    r->owner = name;
    r->class_ = number;
    r->function = r->loop = 0;
    r->module_class = c && c->is_module;
    return colon + 1;
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
    uint32_t blocks = (uint32_t)r->block_count;
    ist_py_enter_block(r, indent, IST_PY_PLAIN_BLOCK);
    if (r->goes_on && r->excluded.name) ist_py_exclude(r, &r->excluded);
    if (blocks < r->block_count) r->blocks[blocks].is_except = ist_py_is(word, "except");
    if (blocks < r->block_count && (r->goes_on || ist_py_is(word, "if"))) {
        ist_py_block *b = &r->blocks[blocks];
        b->branch_of_if = true;
        b->is_else = ist_py_is(word, "else");
        b->asked = r->goes_on ? r->asked : (ist_py_asked){0};
        for (uint32_t i = at + 1; i < colon && b->asked.count < IST_PY_ASKED; i++)
            if (token(r, i)->kind == IST_PY_NAME && !ist_py_is(token(r, i - 1), "."))
                b->asked.names[b->asked.count++] = intern(r, i);
        if (r->branch_changes != UINT32_MAX) r->blocks[blocks].changes = r->branch_changes;
    }
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
        bool only = ist_py_is(word, "if") && ist_py_is(token(r, at + 1), "isinstance");
        r->narrowed.exact = only && r->narrowed.tensor && token(r, at + 2)->match + 1 == colon;
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

/* A result; where it is a tuple of as many parts as before, each of them. */
static void give_back(ist_py_reader *r, ist_src_value v) {
    ist_src_function *f = ist_src_function_at(r->u, r->function);
    uint32_t count = r->element_end == r->at ? r->element_count : 0;
    if (!f) return;
    v.origin = ist_py_here(r, v.origin);
    ist_py_join(&f->result, v);
    if (!count || count > IST_SRC_PARTS || (f->part_count && f->part_count != count)) return;
    f->part_count = count;
    for (uint32_t k = 0; k < count; k++) {
        ist_src_value part = r->elements[k];
        part.origin = ist_py_here(r, part.origin);
        ist_py_join(&f->parts[k], part);
    }
}

static bool is_augmented(const ist_py_token *t) {
    return t->kind == IST_PY_SIGN && t->length >= 2 && t->at[t->length - 1] == '=' && !strchr("=!<>:", *t->at);
}

/* a = b = value; a: type = value; a += value */
static bool assignment(ist_py_reader *r, uint32_t at, uint32_t end) {
    uint32_t equals = find(r, at, end, "="), first = at, last = equals;
    for (uint32_t i = at; i<equals; i = token(r, i)->match> i ? token(r, i)->match + 1 : i + 1) {
        if (!is_augmented(token(r, i))) continue;
        ist_src_value have = value_in(r, at, i), more = value_in(r, i + 1, end), v = ist_py_combine(have, more);
        bool array = have.kind == IST_PY_HOST && !(have.flags & IST_PY_CONST); /* stays one in place */
        if (array && more.kind == IST_PY_UNKNOWN) v.kind = IST_PY_HOST;
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

/* "name: type" or "name: type = value" in the body of a class; false: it is no such line, or has a value. */
static bool field_of_class(ist_py_reader *r, uint32_t at, uint32_t end) {
    const ist_py_token *t = token(r, at);
    if (!r->class_ || r->function || end < at + 3 || t->kind != IST_PY_NAME || !ist_py_is(t + 1, ":")) return false;
    uint32_t equals = find(r, at + 2, end, "=");
    ist_py_add_field(r->p, r->class_, intern(r, at));
    ist_py_keep(r, r->class_, t->at, t->length, t->line, annotated(r, at + 2, equals));
    return equals == end;
}

static void simple_statement(ist_py_reader *r, uint32_t at, uint32_t end) {
    static const char *const skipped[] = {"global", "nonlocal", "pass", "break", "continue", "del"};
    const ist_py_token *t = token(r, at);
    if (at >= end) return;
    bool leaves = ist_py_is(t, "return") || ist_py_is(t, "raise") || ist_py_is(t, "continue") || ist_py_is(t, "break");
    if (leaves && r->block_count) r->blocks[r->block_count - 1].ended = true;
    for (size_t k = 0; k < sizeof skipped / sizeof *skipped; k++)
        if (ist_py_is(t, skipped[k])) return;
    if (ist_py_is(t, "import") || ist_py_is(t, "from")) {
        ist_py_import_statement(r, at, end);
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
    } else if (!field_of_class(r, at, end) && !assignment(r, at, end)) {
        r->line_start = at;
        value_in(r, at, end);
    }
}

void ist_py_statement(ist_py_reader *r, const ist_py_lexer *l) {
    uint32_t at = 0, end = (uint32_t)l->count;
    r->tokens = l->tokens;
    r->depth = 0;
    r->line_start = UINT32_MAX;
    r->branch_changes = UINT32_MAX;
    r->excluded = (ist_py_narrowing){0};
    r->goes_on = ist_py_is(token(r, at), "elif") || ist_py_is(token(r, at), "else");
    ist_py_leave_blocks(r, l->indent);
    size_t blocks = r->block_count;
    r->narrowed = (ist_py_narrowing){0};
    if (ist_py_is(token(r, at), "@")) { /* a decorator */
        for (uint32_t i = at + 1; i < end; i++) {
            const ist_py_token *t = token(r, i);
            r->cached = r->cached || ist_src_has_word(t->at, t->length, " cache cached memoize memo ");
            r->property = r->property || ist_src_has_word(t->at, t->length, " property ");
            r->data = r->data || ist_py_is(t, "dataclass") || ist_py_is(t, "attrs") || ist_py_is(t, "define");
        }
        return;
    }
    if (ist_py_is(token(r, at), "async")) at++;
    if (ist_py_is(token(r, at), "def"))
        at = define_function(r, at + 1, end, l->indent);
    else if (ist_py_is(token(r, at), "class"))
        at = define_class(r, at + 1, end, l->indent);
    else if (is_compound(r, at, end))
        at = compound(r, at, end, l->indent);
    if (r->narrowed.name && blocks < r->block_count) { /* for as long as the block */
        r->blocks[r->block_count - 1].narrowed = r->narrowed;
        r->narrowed = (ist_py_narrowing){0};
    }
    if (at < end) simple_statement(r, at, end);
    ist_py_widen(r, &r->narrowed);
}

/* Variables of the module, for those that import them. */
static void keep_globals(ist_py_reader *r) {
    uint32_t module = r->module ? r->p->modules[r->module - 1].name : 0;
    for (size_t i = 0; i < r->binding_count && module; i++) {
        const ist_py_binding *b = &r->bindings[i];
        const ist_py_class *c = b->value.kind == IST_PY_CLASS ? ist_py_class_at(r->p, b->value.of) : NULL;
        if (!ist_py_is_known(b->value) || (b->value.kind >= IST_PY_FUNCTION && !c)) continue;
        const ist_src_name *n = &r->u->names[b->name];
        uint32_t full = ist_src_join(r->u, module, ist_src_text(r->u, b->name), n->length);
        if (full && c && full != c->name) r->u->names[full].alias = c->name; /* another name of it */
        if (full && !c) r->u->names[full].value = b->value;
    }
}

void ist_py_end_file(ist_py_reader *r) {
    r->goes_on = false;
    ist_py_leave_blocks(r, 0);
    keep_globals(r);
    ist_py_unbind(r, 0);
    while (r->import_count) r->u->names[r->imports[--r->import_count]].alias = 0;
}
