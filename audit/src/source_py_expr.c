/* Expressions of Python: precedence climbing over the tokens of one logical line. */
#include "audit/source_py.h"

#include <string.h>

static const ist_py_token *here(const ist_py_reader *r) {
    return &r->tokens[r->at];
}

static bool at_end(const ist_py_reader *r) {
    return r->at >= r->end;
}

static bool sees(const ist_py_reader *r, const char *text) {
    return !at_end(r) && ist_py_is(here(r), text);
}

static bool takes(ist_py_reader *r, const char *text) {
    if (!sees(r, text)) return false;
    r->at++;
    return true;
}

/* False, and nothing more is read up to the end, when expressions nest too deeply. */
static bool enter(ist_py_reader *r) {
    if (r->depth >= IST_PY_DEPTH) {
        r->at = r->end;
        return false;
    }
    r->depth++;
    return true;
}

/* ---- values ---- */

/* `of` means a function for some kinds and a class for others: it comes from one that is like `v`. */
static uint32_t class_of_either(ist_src_value v, ist_src_value a, ist_src_value b) {
    bool named = v.kind >= IST_PY_FUNCTION;
    if (a.of && (named ? a.kind == v.kind : a.kind < IST_PY_FUNCTION)) return a.of;
    if (b.of && (named ? b.kind == v.kind : b.kind < IST_PY_FUNCTION)) return b.of;
    return 0;
}

ist_src_value ist_py_either(ist_src_value a, ist_src_value b) {
    bool other = !a.origin || (b.origin && (a.origin & IST_SRC_HOP_OPEN) && !(b.origin & IST_SRC_HOP_OPEN));
    ist_src_value v = {.origin = other ? b.origin : a.origin};
    bool tensor = a.kind == IST_PY_TENSOR || b.kind == IST_PY_TENSOR;
    v.flags = (uint8_t)((a.flags & b.flags) | ((a.flags | b.flags) & (IST_PY_DERIVED | IST_PY_ARRAY | IST_PY_PLACED)));
    if (a.kind == b.kind)
        v.kind = a.kind;
    else if (tensor)
        v.kind = IST_PY_TENSOR, v.flags &= (uint8_t)~IST_PY_SURE;
    else if (a.kind == IST_PY_DEVICE || b.kind == IST_PY_DEVICE)
        v.kind = IST_PY_DEVICE;
    else if ((a.kind == IST_PY_HOST && b.kind == IST_PY_HOST_TENSOR) ||
             (b.kind == IST_PY_HOST && a.kind == IST_PY_HOST_TENSOR))
        v.kind = IST_PY_HOST_TENSOR;
    v.of = class_of_either(v, a, b);
    return v;
}

ist_src_value ist_py_combine(ist_src_value a, ist_src_value b) {
    ist_src_value v = ist_py_either(a, b);
    bool tensor = a.kind == IST_PY_TENSOR || b.kind == IST_PY_TENSOR;
    if (tensor && ((a.flags | b.flags) & IST_PY_SURE)) v.flags |= IST_PY_SURE;
    if (tensor) v.kind = IST_PY_TENSOR;
    if (v.flags & IST_PY_SURE) v.origin = v.kind == IST_PY_TENSOR ? 0 : v.origin;
    if (v.origin) v.flags |= IST_PY_DERIVED;
    return v;
}

/* ---- comprehensions, brackets ---- */

/* Precedences. */
enum { OR = 1, AND, NOT, COMPARE, BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM, PRODUCT, UNARY, POWER };

static ist_src_value binary(ist_py_reader *r, int least);

/* Whether tokens [first, end) end with the name of a data loader, in brackets of enumerate() and the like or not: what
 * it gives is in host memory. */
static bool is_loader(const ist_py_reader *r, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++) {
        const ist_py_token *t = &r->tokens[i];
        bool last = i + 1 == end || ist_py_is(t + 1, ")") || ist_py_is(t + 1, ",");
        if (last && t->kind == IST_PY_NAME && ist_src_has_word(t->at, t->length, " loader dataloader ")) return true;
    }
    return false;
}

void ist_py_clauses(ist_py_reader *r, uint32_t end) {
    uint32_t outer_end = r->end;
    r->end = end;
    while (!at_end(r)) {
        if (takes(r, "async")) continue;
        if (takes(r, "if")) {
            uint32_t line = here(r)->line;
            ist_py_truth(r, binary(r, OR), line);
        } else if (takes(r, "for")) {
            uint32_t first = r->at;
            while (!at_end(r) && !sees(r, "in")) r->at = here(r)->match > r->at ? here(r)->match : r->at + 1;
            uint32_t last = r->at;
            takes(r, "in");
            r->element_end = UINT32_MAX;
            uint32_t over = r->at;
            ist_src_value v = binary(r, OR);
            if (!v.kind && !v.of && is_loader(r, over, r->at)) {
                v.flags = IST_PY_LOADED;
                r->element_end = UINT32_MAX;
            }
            r->loop = ist_src_loop_begin(r->u, r->loop, r->function);
            ist_py_assign(r, first, last, v);
        } else {
            r->at++;
        }
    }
    r->end = outer_end;
}

/* What a comprehension gives; `open` is its bracket. */
static ist_src_value comprehension(ist_py_reader *r, uint32_t open) {
    uint32_t end = r->tokens[open].match, loop = r->loop, outer_end = r->end, clauses = r->tokens[open].loop;
    r->at = clauses;
    ist_py_clauses(r, end);
    r->at = open + 1;
    r->end = clauses;
    ist_src_value v = ist_py_expression(r);
    if (takes(r, ":")) v = ist_py_expression(r);
    r->loop = loop;
    r->end = outer_end;
    r->at = end < outer_end ? end + 1 : outer_end;
    v.flags &= (uint8_t) ~(IST_PY_SURE | IST_PY_CONST);
    v.hit = 0;
    return v;
}

/* Whether the tokens [first, end) are one plain string. */
static bool is_string(const ist_py_reader *r, uint32_t first, uint32_t end) {
    return end == first + 1 && r->tokens[first].kind == IST_PY_STRING;
}

static void keep_field(ist_py_reader *r, uint32_t record, uint32_t key, uint32_t key_end, ist_src_value v) {
    const ist_py_token *t = &r->tokens[key];
    if (!record) return;
    if (is_string(r, key, key_end) && t->length) ist_py_keep(r, record, t->at, t->length, t->line, v);
    ist_py_keep(r, record, "*", 1, t->line, v);
}

/* Elements up to `end`, joined; the values of a dictionary count, its keys do not. `record`: of a dictionary, or 0. */
static ist_src_value display(ist_py_reader *r, uint32_t end, uint32_t record) {
    ist_src_value all = ist_py_of(IST_PY_HOST, IST_PY_CONST | IST_PY_MADE), kept[IST_PY_ELEMENTS];
    uint32_t outer_end = r->end, count = 0;
    bool comma = false;
    r->end = end < outer_end ? end : outer_end;
    while (!at_end(r)) {
        uint32_t before = r->at;
        if (takes(r, ",")) {
            comma = true;
            continue;
        }
        if (takes(r, "*") || takes(r, "**")) continue;
        ist_src_value v = ist_py_expression(r);
        uint32_t key_end = r->at;
        if (takes(r, ":")) {
            v = ist_py_expression(r);
            keep_field(r, record, before, key_end, v);
        }
        if (r->at == before) r->at++;
        if (count < IST_PY_ELEMENTS) kept[count] = v;
        all = count++ ? ist_py_either(all, v) : v;
    }
    r->end = outer_end;
    if (count > 1 || comma) all.flags &= (uint8_t)~IST_PY_SURE;
    if (count > 1 && count <= IST_PY_ELEMENTS) {
        memcpy(r->elements, kept, count * sizeof *kept);
        r->element_count = count;
    } else {
        r->element_count = 0;
    }
    return all;
}

static ist_src_value bracket(ist_py_reader *r) {
    uint32_t open = r->at, end = here(r)->match;
    bool round = *here(r)->at == '(', single;
    if (r->tokens[open].loop) return comprehension(r, open);
    r->at++;
    bool keys = *r->tokens[open].at == '{' && (end == r->at || is_string(r, r->at, r->at + 1));
    uint32_t record = keys ? ist_py_record(r, &r->tokens[open]) : 0;
    ist_src_value v = display(r, end, record);
    if (record) {
        v.kind = v.kind >= IST_PY_FUNCTION ? IST_PY_UNKNOWN : v.kind;
        v.of = record;
    }
    r->at = end < r->end ? end + 1 : r->end;
    r->element_end = r->at;
    single = round && !r->element_count;
    if (!single) v.flags &= (uint8_t)~IST_PY_SURE, v.hit = 0;
    return v;
}

/* ---- atoms ---- */

/* Expressions in the braces of an f-string, each a line of its own to the lexer. */
static void format_string(ist_py_reader *r, const ist_py_token *t) {
    const char *p = t->at, *end = t->at + t->length;
    while (p < end && enter(r)) {
        const char *open = memchr(p, '{', (size_t)(end - p));
        p = open ? open + 1 : end;
        if (open && p < end && *p == '{') {
            p++;
        } else if (open) {
            ist_py_lexer lexer;
            const ist_py_token *tokens = r->tokens;
            uint32_t at = r->at, stop = r->end;
            const char *close = p;
            for (unsigned braces = 1; close < end && (braces += (*close == '{') - (unsigned)(*close == '}')); close++) {
            }
            ist_py_lexer_init(&lexer, p, (size_t)(close - p), t->line);
            if (ist_py_next_line(&lexer)) {
                r->tokens = lexer.tokens;
                r->at = 0;
                r->end = (uint32_t)lexer.count;
                ist_py_format(r, ist_py_expression(r), t->line, "f-string of a tensor");
            }
            r->u->failed = r->u->failed || lexer.failed;
            r->tokens = tokens;
            r->at = at;
            r->end = stop;
            ist_py_lexer_free(&lexer);
            p = close;
        }
        r->depth--;
    }
}

static bool begins_with(const ist_py_token *t, const char *text) {
    size_t n = strlen(text);
    return t->length >= n && !memcmp(t->at, text, n);
}

static ist_src_value string_value(ist_py_reader *r) {
    const ist_py_token *t = here(r);
    ist_src_value v = ist_py_of(IST_PY_HOST, IST_PY_CONST | IST_PY_STRING_);
    while (!at_end(r) && (here(r)->kind == IST_PY_STRING || here(r)->kind == IST_PY_FORMAT)) {
        r->at++;
        if (r->tokens[r->at - 1].kind == IST_PY_FORMAT) {
            v.flags &= (uint8_t)~IST_PY_CONST;
            format_string(r, &r->tokens[r->at - 1]);
        }
    }
    if (begins_with(t, "cuda") || begins_with(t, "torch.cuda.") || begins_with(t, "xpu") || begins_with(t, "mps"))
        v.kind = IST_PY_DEVICE;
    if (t->length == 3 && begins_with(t, "cpu")) v.kind = IST_PY_HOST_DEVICE;
    return v;
}

static ist_src_value lambda(ist_py_reader *r) {
    while (!at_end(r) && !sees(r, ":")) r->at = here(r)->match > r->at ? here(r)->match : r->at + 1;
    takes(r, ":");
    ist_py_expression(r);
    return ist_py_of(IST_PY_UNKNOWN, 0);
}

/* ---- what follows an atom ---- */

typedef struct chain {
    char path[IST_PY_PATH], label[IST_SRC_LABEL];
    uint32_t base; /* the atom's name while nothing but attributes and subscripts follow, else 0 */
    bool imported, is_path, alone;
} chain;

static void extend_path(chain *c, const char *text, size_t n) {
    size_t have = strlen(c->path);
    if (!c->is_path || have + n + 2 > sizeof c->path) {
        c->is_path = false;
        c->path[0] = '\0';
        return;
    }
    if (have) c->path[have++] = '.';
    memcpy(c->path + have, text, n);
    c->path[have + n] = '\0';
}

static void read_args(ist_py_reader *r, ist_py_call *call) {
    uint32_t open = r->at, end = here(r)->match, outer_end = r->end;
    if (r->tokens[open].loop) {
        call->args[0] = (ist_py_arg){.first = open + 1, .end = end, .value = comprehension(r, open)};
        call->arg_count = 1;
        return;
    }
    bool star = false;
    r->at = open + 1;
    r->end = end < outer_end ? end : outer_end;
    while (!at_end(r)) {
        ist_py_arg a = {.star = star};
        if (takes(r, ",")) continue;
        star = takes(r, "*") || takes(r, "**");
        if (star) continue;
        a.first = r->at;
        if (here(r)->kind == IST_PY_NAME && r->at + 1 < r->end && ist_py_is(here(r) + 1, "=")) {
            a.keyword = ist_src_intern(r->u, here(r)->at, here(r)->length);
            r->at += 2;
            a.first = r->at;
        }
        a.value = ist_py_expression(r);
        if (r->at == a.first) r->at++;
        a.end = r->at;
        if (call->arg_count < IST_PY_ARGS) call->args[call->arg_count++] = a;
    }
    r->end = outer_end;
    r->at = end < outer_end ? end + 1 : outer_end;
}

/* The call of `on`, or of its attribute `name`, with the arguments at "(". */
static ist_src_value call_here(ist_py_reader *r, chain *c, ist_src_value on, const ist_py_token *name, bool method) {
    const char *dot = strrchr(c->path, '.');
    ist_py_call call = {.path = c->path,
                        .method = method,
                        .imported = c->imported && c->is_path,
                        .on = on,
                        .line = r->tokens[r->at].line,
                        .base = c->base,
                        .alone = c->alone,
                        .chain = c->label};
    if (name) {
        call.name = name->at;
        call.name_length = name->length;
        call.line = name->line;
    } else {
        call.name = dot ? dot + 1 : c->path;
        call.name_length = strlen(call.name);
    }
    call.name_id = ist_src_intern(r->u, call.name, call.name_length);
    read_args(r, &call);
    ist_src_value v = ist_py_apply(r, &call);
    c->is_path = false;
    c->path[0] = '\0';
    c->base = 0;
    return v;
}

/* The field that a dictionary's key names, or what all its fields have in common; false: it is not known. */
static bool field(const ist_py_reader *r, ist_src_value on, uint32_t first, uint32_t end, ist_src_value *v) {
    const ist_py_class *c = ist_py_is_instance(on) ? ist_py_class_at(r->p, on.of) : NULL;
    if (!c || !c->is_record) return false;
    if (is_string(r, first, end)) return ist_py_kept(r, on.of, r->tokens[first].at, r->tokens[first].length, v);
    return ist_py_kept(r, on.of, "*", 1, v) && (v->kind >= IST_PY_FUNCTION || v->of);
}

/* Tensors of this name are of truth values. */
static bool is_mask_name(const ist_py_token *t) {
    return t->kind == IST_PY_NAME && ist_src_has_word(t->at, t->length, " mask ");
}

/* f(x)[1] where f gives a tuple that ended at `parts_end`. */
static bool part(const ist_py_reader *r, uint32_t first, uint32_t end, uint32_t parts_end, ist_src_value *v) {
    const ist_py_token *t = &r->tokens[first];
    if (parts_end + 1 != first || end != first + 1 || t->kind != IST_PY_NUMBER || t->length != 1) return false;
    uint32_t k = (uint32_t)(*t->at - '0');
    if (k >= r->element_count) return false;
    *v = r->elements[k];
    v->hit = 0;
    return true;
}

static ist_src_value subscript(ist_py_reader *r, ist_src_value on) {
    uint32_t end = here(r)->match, outer_end = r->end, line = here(r)->line, first = r->at + 1;
    uint32_t parts_end = r->element_end;
    r->at++;
    r->end = end < outer_end ? end : outer_end;
    ist_src_value index = {0};
    bool mask = false, sure = false;
    bool only_torch = r->torch && !r->numpy && !r->u->host_data; /* nothing else has masks */
    while (!at_end(r)) {
        uint32_t before = r->at;
        if (takes(r, ":") || takes(r, ",")) continue;
        index = ist_py_expression(r);
        if (r->at == before) r->at++;
        bool compared = index.flags & IST_PY_MASK;
        bool named = r->at == before + 1 && is_mask_name(&r->tokens[before]) && !(index.flags & IST_PY_INDICES);
        if (index.kind == IST_PY_TENSOR && named) compared = true;
        mask = mask || (compared && (index.kind == IST_PY_TENSOR || (index.kind == IST_PY_UNKNOWN && only_torch)));
        sure = sure || (mask && (ist_py_is_sure(index) || only_torch));
    }
    r->end = outer_end;
    r->at = end < outer_end ? end + 1 : outer_end;
    bool stored = ist_py_is(here(r), "=") && r->at == r->end;
    ist_src_value known;
    if (!stored && part(r, first, end < outer_end ? end : outer_end, parts_end, &known)) return known;
    if (!stored && field(r, on, first, end < outer_end ? end : outer_end, &known) && ist_py_is_known(known))
        return known;
    const ist_py_class *record = ist_py_is_instance(on) ? ist_py_class_at(r->p, on.of) : NULL;
    if (record && record->is_record) on.of = 0;
    if (mask && (!stored || ist_py_is_sure(r->stored)) &&
        (on.kind == IST_PY_TENSOR || (sure && on.kind == IST_PY_UNKNOWN))) {
        ist_py_hit(r, IST_SRC_DYNAMIC, 0, line, stored ? "[mask] =" : "[mask]");
        on = ist_py_of(IST_PY_TENSOR, IST_PY_SURE | (on.flags & IST_PY_ARRAY));
    }
    on.hit = 0;
    if (index.origin && on.kind <= IST_PY_HOST && !on.origin) { /* looked up by what was read */
        on.origin = index.origin;
        on.flags |= IST_PY_DERIVED;
    }
    return on.kind >= IST_PY_QUEUE && on.kind < IST_PY_FUNCTION ? (ist_src_value){0} : on; /* [f, g][0] is a function */
}

static ist_src_value follow(ist_py_reader *r, chain *c, ist_src_value v) {
    for (;;) {
        bool used = sees(r, ".") || sees(r, "[");
        if (used && !c->alone && ist_py_is_nothing(v)) v = (ist_src_value){.of = v.of}; /* by now it is something */
        if (sees(r, ".") && r->at + 1 < r->end && here(r)[1].kind == IST_PY_NAME) {
            const ist_py_token *name = here(r) + 1;
            extend_path(c, name->at, name->length);
            r->at += 2;
            if (sees(r, "("))
                v = call_here(r, c, v, name, true);
            else
                v = ist_py_attribute(r, v, c->imported && c->is_path, c->path, name), c->label[0] = '\0';
        } else if (sees(r, "(")) {
            v = call_here(r, c, v, NULL, false);
        } else if (sees(r, "[")) {
            v = subscript(r, v);
            c->is_path = false;
            c->path[0] = c->label[0] = '\0';
        } else {
            return v;
        }
    }
}

static ist_src_value atom(ist_py_reader *r) {
    const ist_py_token *t = here(r);
    chain c = {.is_path = false, .alone = r->at == r->line_start};
    ist_src_value v = {0};
    if (at_end(r)) return v;
    if (t->kind == IST_PY_STRING || t->kind == IST_PY_FORMAT) {
        v = string_value(r);
    } else if (t->kind == IST_PY_NUMBER) {
        r->at++;
        return ist_py_of(IST_PY_HOST, IST_PY_CONST);
    } else if (ist_py_is(t, "(") || ist_py_is(t, "[") || ist_py_is(t, "{")) {
        v = bracket(r);
    } else if (ist_py_is(t, "lambda")) {
        return lambda(r);
    } else if (t->kind == IST_PY_NAME) {
        uint32_t name = ist_src_intern(r->u, t->at, t->length);
        r->at++;
        if (ist_py_is(t, "None")) return ist_py_of(IST_PY_HOST, IST_PY_CONST | IST_PY_MADE);
        if (ist_py_is(t, "True") || ist_py_is(t, "False")) return ist_py_of(IST_PY_HOST, IST_PY_CONST);
        bool bound = r->u->names[name].binding;
        v = bound ? ist_py_lookup(r, name) : ist_py_global(r, name);
        if (!bound && !ist_py_is_known(v)) v = ist_py_lookup(r, name);
        c.is_path = true;
        c.base = name;
        c.imported = r->u->names[name].alias && !bound;
        name = c.imported ? r->u->names[name].alias : name;
        extend_path(&c, ist_src_text(r->u, name), r->u->names[name].length);
    } else {
        return v; /* the caller goes on behind it */
    }
    return follow(r, &c, v);
}

/* ---- operators ---- */

/* Its precedence, 0: none; *length: in tokens. */
static int operator_here(const ist_py_reader *r, uint32_t *length) {
    static const struct {
        const char *text;
        int precedence;
    } all[] = {{"or", OR},      {"and", AND},    {"<", COMPARE},  {">", COMPARE},  {"<=", COMPARE}, {">=", COMPARE},
               {"==", COMPARE}, {"!=", COMPARE}, {"in", COMPARE}, {"is", COMPARE}, {"|", BIT_OR},   {"^", BIT_XOR},
               {"&", BIT_AND},  {"<<", SHIFT},   {">>", SHIFT},   {"+", SUM},      {"-", SUM},      {"*", PRODUCT},
               {"/", PRODUCT},  {"//", PRODUCT}, {"%", PRODUCT},  {"@", PRODUCT},  {"**", POWER}};
    *length = 1;
    if (at_end(r) || (here(r)->kind != IST_PY_SIGN && here(r)->kind != IST_PY_NAME)) return 0;
    if (sees(r, "not") && r->at + 1 < r->end && ist_py_is(here(r) + 1, "in")) {
        *length = 2;
        return COMPARE;
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (ist_py_is(here(r), all[i].text)) {
            if (all[i].precedence == COMPARE && sees(r, "is") && r->at + 1 < r->end && ist_py_is(here(r) + 1, "not"))
                *length = 2;
            return all[i].precedence;
        }
    return 0;
}

/* "is" and "in" give a plain truth value, comparisons of tensors give tensors. */
static ist_src_value compare(const ist_py_token *op, ist_src_value a, ist_src_value b) {
    ist_src_value v = ist_py_combine(a, b);
    if (op->kind == IST_PY_NAME || a.kind >= IST_PY_QUEUE || b.kind >= IST_PY_QUEUE) return ist_py_of(IST_PY_HOST, 0);
    if (v.kind == IST_PY_HOST) return (ist_src_value){.kind = IST_PY_HOST, .origin = v.origin, .flags = IST_PY_DERIVED};
    if ((ist_py_is_text(a) || ist_py_is_text(b)) && !(ist_py_is_sure(a) || ist_py_is_sure(b)))
        return ist_py_of(IST_PY_HOST, 0);
    v.flags |= IST_PY_MASK;
    if (v.kind == IST_PY_TENSOR) v.flags &= (uint8_t)~IST_PY_INDICES;
    return v;
}

static ist_src_value unary(ist_py_reader *r) {
    ist_src_value v = {0};
    uint32_t line = here(r)->line;
    if (!enter(r)) return v;
    if (takes(r, "not")) {
        v = binary(r, COMPARE);
        ist_py_truth(r, v, line);
        v = ist_py_of(IST_PY_HOST, 0);
    } else if (takes(r, "-") || takes(r, "+") || takes(r, "~")) {
        v = binary(r, UNARY);
        v.hit = 0;
    } else if (takes(r, "await") || takes(r, "yield") || takes(r, "from") || takes(r, "*") || takes(r, "**")) {
        v = binary(r, OR);
    } else {
        v = atom(r);
    }
    r->depth--;
    return v;
}

static ist_src_value binary(ist_py_reader *r, int least) {
    ist_src_value left = {0};
    uint32_t length;
    if (at_end(r) || !enter(r)) return left;
    left = unary(r);
    for (int p; (p = operator_here(r, &length)) >= least && p;) {
        const ist_py_token *op = here(r);
        r->at += length;
        if (p == OR || p == AND) ist_py_truth(r, left, op->line);
        ist_src_value right = binary(r, p == POWER ? UNARY : p + 1);
        if (p == COMPARE)
            left = compare(op, left, right);
        else if (p == OR || p == AND)
            left = ist_py_either(left, right);
        else if (ist_py_is(op, "%") && ist_py_is_text(left))
            ist_py_format(r, right, op->line, "formatting of a tensor"), left = ist_py_of(IST_PY_HOST, IST_PY_STRING_);
        else {
            bool masks = (left.flags & right.flags & IST_PY_MASK) && p >= BIT_OR && p <= BIT_AND;
            left = ist_py_combine(left, right);
            left.flags = (uint8_t)((left.flags & ~IST_PY_MASK) | (masks ? IST_PY_MASK : 0));
        }
        left.hit = 0;
    }
    r->depth--;
    return left;
}

/* Behind "else", where the name that the condition says to be a tensor is none, or the other way round; afterwards it
 * is what it was. */
static ist_src_value otherwise(ist_py_reader *r) {
    ist_py_narrowing n = r->narrowed;
    ist_src_value other = n.before;
    if (n.tensor) other = (ist_src_value){.origin = other.origin}; /* but what it holds may be one */
    ist_py_bind(r, n.name, other);
    ist_src_value v = ist_py_expression(r);
    ist_py_bind(r, n.name, n.before);
    r->narrowed = (ist_py_narrowing){0};
    return v;
}

ist_src_value ist_py_expression(ist_py_reader *r) {
    ist_src_value v = {0};
    if (at_end(r) || !enter(r)) return v;
    if (here(r)->kind == IST_PY_NAME && r->at + 1 < r->end && ist_py_is(here(r) + 1, ":=")) {
        uint32_t name = ist_src_intern(r->u, here(r)->at, here(r)->length);
        r->at += 2;
        v = ist_py_expression(r);
        ist_py_bind(r, name, v);
    } else {
        uint32_t line = here(r)->line;
        v = binary(r, OR);
        bool narrowed = r->narrowed.name;
        if (takes(r, "if")) {
            ist_py_truth(r, binary(r, OR), line);
            bool narrows = !narrowed && r->narrowed.name;
            if (takes(r, "else")) v = ist_py_either(v, narrows ? otherwise(r) : ist_py_expression(r));
        }
    }
    r->depth--;
    return v;
}

ist_src_value ist_py_expression_list(ist_py_reader *r) {
    uint32_t start = r->at, end = r->end, next;
    for (next = start; next < end && !ist_py_is(&r->tokens[next], ",");)
        next = r->tokens[next].match > next ? r->tokens[next].match + 1 : next + 1;
    if (next >= end) {
        ist_src_value v = ist_py_expression(r);
        if (r->element_end != r->at) r->element_count = 0;
        return v;
    }
    ist_src_value v = display(r, end, 0);
    r->element_end = r->at;
    return v;
}
