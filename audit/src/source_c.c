/* Walks through a C-like file: functions, loops, braces and parentheses. */
#include "audit/source_c.h"

#include <stdlib.h>
#include <string.h>

enum { PASSES = 3 };

static bool is_sign(const ist_c_token *t, char sign, size_t length) {
    return t->kind == IST_C_SIGN && t->sign == sign && t->length == length;
}

static bool is_name(const ist_c_token *t, const char *word) {
    return t->kind == IST_C_NAME && t->length == strlen(word) && !memcmp(t->at, word, t->length);
}

/* Words in front of "(" that call nothing. */
static bool is_keyword(const ist_c_token *t) {
    static const char *const words[] = {
        "if",     "for",        "while",   "switch", "return",   "sizeof",  "catch",    "alignof",
        "typeof", "decltype",   "defined", "case",   "noexcept", "alignas", "_Alignof", "__attribute__",
        "throw",  "__declspec", "else",    "do",     "and",      "or",      "not"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_name(t, words[i])) return true;
    return false;
}

/* ---- loops ---- */

static void open_loop(ist_c_reader *r, bool condition) {
    if (!r->function || r->loop_count == IST_C_LOOPS) return;
    r->loops[r->loop_count++] = (ist_c_loop){.outer = r->loop,
                                             .braces = r->brace_count + r->lost_braces,
                                             .parens = r->paren_count + r->lost_parens,
                                             .condition = condition};
    r->loop = ist_src_loop_begin(r->u, r->loop, r->function);
}

/* A statement has ended: so have the loops whose body it was. */
static void end_statement(ist_c_reader *r) {
    while (r->loop_count) {
        const ist_c_loop *l = &r->loops[r->loop_count - 1];
        if (l->condition || l->braces != r->brace_count + r->lost_braces ||
            l->parens != r->paren_count + r->lost_parens)
            return;
        r->loop = l->outer;
        r->loop_count--;
    }
}

/* ---- functions ---- */

static void drop_header(ist_c_reader *r) {
    r->header = 0;
    r->header_done = r->header_init = false;
}

/* Between a header's ")" and "{" there are qualifiers, a result type, initialisers. */
static void check_header(ist_c_reader *r) {
    const ist_c_token *t = &r->token;
    if (!r->header || !r->header_done || r->paren_count) return;
    if (t->kind == IST_C_SIGN && strchr(";=}~", t->sign) && !r->header_init) drop_header(r);
    if (is_sign(t, ';', 1)) drop_header(r);
    if (is_sign(t, ':', 1)) r->header_init = true;
}

static void begin_function(ist_c_reader *r) {
    r->function = ist_src_function_begin(r->u, r->header, 0);
    ist_src_function *f = ist_src_function_at(r->u, r->function);
    r->loop = r->loop_count = 0;
    if (f) {
        f->param_count = r->header_arg_count < IST_SRC_PARAMS ? r->header_arg_count : IST_SRC_PARAMS;
        for (uint32_t i = 0; i < f->param_count; i++) f->params[i] = r->header_args[i].base;
    }
    drop_header(r);
}

/* ---- braces ---- */

static void open_brace(ist_c_reader *r) {
    ist_c_loop *l = r->loop_count ? &r->loops[r->loop_count - 1] : NULL;
    bool value = r->header_init && (r->last.kind == IST_C_NAME || is_sign(&r->last, '>', 1)); /* member{...} */
    bool of_loop = l && !l->condition && !l->begun && l->braces == r->brace_count + r->lost_braces &&
                   l->parens == r->paren_count + r->lost_parens;
    ist_c_brace b = {.function = r->function,
                     .loop = r->loop,
                     .branch = r->branch,
                     .in_function = r->function != 0,
                     .of_loop = of_loop};
    if (l && of_loop) l->begun = true;
    if (r->brace_count == IST_C_BRACES) {
        r->lost_braces++;
        return;
    }
    r->braces[r->brace_count++] = b;
    r->branch = ++r->branches;
    if (!r->function && r->header && r->header_done && !value && !r->paren_count) begin_function(r);
}

static void close_brace(ist_c_reader *r) {
    if (r->lost_braces) {
        r->lost_braces--;
        return;
    }
    if (!r->brace_count) return;
    const ist_c_brace *b = &r->braces[--r->brace_count];
    r->branch = b->branch;
    if (!b->in_function && r->function) { /* nothing of a function reaches beyond it */
        r->function = r->loop = r->loop_count = r->paren_count = r->lost_parens = 0;
        return;
    }
    while (r->loop_count && r->loops[r->loop_count - 1].braces > r->brace_count) r->loop_count--;
    if (b->function == r->function) r->loop = b->loop;
    if (!is_name(&r->next, "else") && !is_name(&r->next, "catch") && r->function) end_statement(r);
}

/* ---- parentheses ---- */

static uint8_t kind_of_paren(const ist_c_reader *r, uint32_t *callee) {
    const ist_c_token *t = &r->last;
    *callee = 0;
    if (t->kind != IST_C_NAME) return IST_C_GROUP;
    if (is_name(t, "for") || is_name(t, "while")) return IST_C_CONDITION;
    if (is_name(t, "sizeof")) return IST_C_SIZE;
    if (is_keyword(t)) return IST_C_GROUP;
    *callee = r->last_name;
    if (!r->function) return r->header_init || r->paren_count ? IST_C_GROUP : IST_C_HEADER;
    return IST_C_CALL;
}

static void open_paren(ist_c_reader *r, const ist_c_rule *rule) {
    uint32_t callee;
    uint8_t kind = kind_of_paren(r, &callee);
    if (r->paren_count == IST_C_PARENS || r->lost_parens) {
        r->lost_parens++;
        return;
    }
    ist_c_paren *p = &r->parens[r->paren_count++];
    *p = (ist_c_paren){.kind = kind, .rule = kind == IST_C_CALL ? rule : NULL, .callee = callee, .line = r->last.line};
    if (kind == IST_C_CALL && r->paren_count == 1) p->target = r->target;
}

static void close_header(ist_c_reader *r, const ist_c_paren *p) {
    r->header = p->callee;
    r->header_done = true;
    r->header_init = false;
    r->header_arg_count = p->arg_count;
    memcpy(r->header_args, p->args, sizeof p->args);
}

/* What a closed parenthesis is to the argument around it. */
static void close_inner(ist_c_reader *r, const ist_c_paren *p) {
    if (!r->paren_count) return;
    ist_c_paren *outer = &r->parens[r->paren_count - 1];
    if (outer->arg_count >= IST_C_ARGS) return;
    ist_c_arg *a = &outer->args[outer->arg_count];
    const ist_src_name *n = &r->u->names[p->args[0].base];
    if (p->kind == IST_C_SIZE && ist_c_is_scalar(r->u->arena + n->text, n->length))
        a->flags |= IST_C_SIZEOF;
    else if (p->kind == IST_C_SIZE)
        a->flags |= IST_C_COMPLEX;
    else if (p->kind == IST_C_GROUP && !a->base)
        a->base = p->args[0].base;
}

static void close_paren(ist_c_reader *r) {
    if (r->lost_parens) {
        r->lost_parens--;
        return;
    }
    if (!r->paren_count) return;
    ist_c_paren *p = &r->parens[--r->paren_count];
    if (p->arg_count < IST_C_ARGS && p->args[p->arg_count].tokens) p->arg_count++;
    if (p->kind == IST_C_HEADER) close_header(r, p);
    if (p->kind == IST_C_CALL) ist_c_end_call(r, p);
    close_inner(r, p);
    ist_c_loop *l = r->loop_count ? &r->loops[r->loop_count - 1] : NULL;
    if (p->kind == IST_C_CONDITION && l && l->condition && l->parens == r->paren_count) l->condition = false;
}

static void next_argument(ist_c_reader *r) {
    if (!r->paren_count || r->lost_parens) return;
    ist_c_paren *p = &r->parens[r->paren_count - 1];
    if (p->arg_count < IST_C_ARGS) p->arg_count++;
}

/* ---- tokens ---- */

/* cl::Event done; cl_command_queue *queue; */
static void note_declaration(ist_c_reader *r) {
    const ist_c_token *t = &r->token;
    if (t->kind == IST_C_NAME) {
        ist_c_type type = ist_c_type_of(t->at, t->length);
        if (type)
            r->declared = (uint8_t)type;
        else if (r->declared && !is_name(t, "const")) {
            r->u->names[r->token_name].alias = r->declared;
            if (!is_sign(&r->next, '(', 1)) r->declared = IST_C_ANY;
        }
    } else if (t->kind != IST_C_SIGN || !strchr("&*", t->sign)) {
        r->declared = IST_C_ANY;
    }
}

static void note_file_scope(ist_c_reader *r) {
    if (r->function || r->paren_count || r->brace_count || r->token.kind != IST_C_NAME) return;
    if (r->next.kind == IST_C_SIGN && strchr(";=[,", r->next.sign)) r->u->names[r->token_name].wide = true;
}

static void take_name(ist_c_reader *r) {
    const ist_c_token *t = &r->token;
    if (t->length > 3 && (!memcmp(t->at, "cl_", 3) || !memcmp(t->at, "CL_", 3))) r->opencl = true;
    if (t->length == 2 && !memcmp(t->at, "cl", 2) && is_sign(&r->next, ':', 2)) r->opencl = true;
    note_file_scope(r);
    if (is_name(t, "for") || is_name(t, "while")) open_loop(r, true);
    if (is_name(t, "do")) open_loop(r, false);
    if (is_name(t, "return")) r->in_return = true;
    if (r->in_return && is_name(&r->last, "return") && is_sign(&r->next, ';', 1)) ist_c_return(r, r->token_name);
    bool asks = is_name(t, "CL_EVENT_COMMAND_EXECUTION_STATUS"), as_template = is_sign(&r->last, '<', 1);
    if (r->function && asks && as_template) {
        ist_src_hit h = {.line = t->line,
                         .function = r->function,
                         .loop = r->loop,
                         .branch = r->branch,
                         .op = IST_SRC_POLL,
                         .calls = 1,
                         .label = "getInfo<CL_EVENT_COMMAND_EXECUTION_STATUS>"};
        ist_src_add_hit(r->u, &h);
    }
}

static void take_sign(ist_c_reader *r, const ist_c_rule *rule) {
    const ist_c_token *t = &r->token;
    if (is_sign(t, '(', 1)) {
        open_paren(r, rule);
    } else if (is_sign(t, ')', 1)) {
        close_paren(r);
    } else if (is_sign(t, ',', 1)) {
        next_argument(r);
    } else if (is_sign(t, '{', 1)) {
        open_brace(r);
    } else if (is_sign(t, '}', 1)) {
        close_brace(r);
        r->target = 0;
    } else if (is_sign(t, ';', 1)) {
        r->target = r->indexed = 0;
        r->in_return = false;
        if (!r->function && !r->brace_count) r->paren_count = r->lost_parens = 0; /* nothing is open there */
        if (!is_name(&r->next, "else")) end_statement(r);
    } else if (is_sign(t, '[', 1)) {
        r->indexed = r->last.kind == IST_C_NAME ? r->last_name : 0;
    } else if (is_sign(t, '<', 3) && r->function) {
        ist_src_hit h = {.line = t->line,
                         .function = r->function,
                         .loop = r->loop,
                         .branch = r->branch,
                         .op = IST_SRC_LAUNCH,
                         .flags = IST_SRC_MODEL,
                         .calls = 1};
        ist_src_add_hit(r->u, &h);
    } else if (t->length <= 2 && strchr("=+-*/|&^", t->sign) && (t->sign == '=' || t->length == 2)) {
        ist_c_assign(r);
    }
}

static void read_tokens(ist_c_reader *r, const char *text, size_t count) {
    const ist_c_rule *rule = NULL;
    r->lexer = ist_c_lexer_make(text, count);
    r->next = ist_c_next(&r->lexer);
    while (r->next.kind != IST_C_END && !r->u->failed) {
        r->before_last = r->last;
        r->last = r->token;
        r->token = r->next;
        r->next = ist_c_next(&r->lexer);
        bool name = r->token.kind == IST_C_NAME;
        if (r->last.kind == IST_C_NAME) r->last_name = r->token_name;
        if (name) r->token_name = ist_src_intern(r->u, r->token.at, r->token.length);
        check_header(r);
        ist_c_note_token(r);
        if (name && is_sign(&r->next, '(', 1)) rule = ist_c_rule_here(r);
        if (name) take_name(r);
        note_declaration(r);
        if (r->token.kind == IST_C_SIGN) take_sign(r, rule);
    }
    r->u->lines = r->lexer.line;
}

/* What the judge follows, of uploads that know the line of their download. */
static void add_chains(ist_src_unit *u) {
    for (size_t i = 0; i < u->hit_count && !u->failed; i++) {
        const ist_src_hit *h = &u->hits[i];
        if (!h->from) continue;
        uint32_t down = ist_src_hop_add(u, (ist_src_hop){.kind = IST_SRC_HOP_DOWN, .line = h->from});
        ist_src_add_chain(u, ist_src_hop_add(u, (ist_src_hop){.before = down,
                                                              .kind = IST_SRC_HOP_UP,
                                                              .line = h->line,
                                                              .derived = h->flags & IST_SRC_DERIVED}));
    }
}

void ist_src_read_c(ist_src_unit *unit) {
    ist_c_reader *r = malloc(sizeof *r);
    bool opencl = false;
    for (int pass = 1; r && pass <= PASSES && !unit->failed; pass++) {
        memset(r, 0, sizeof *r);
        r->u = unit;
        r->opencl = opencl;
        ist_src_begin_pass(unit);
        read_tokens(r, unit->files[0].text, unit->files[0].length);
        opencl = r->opencl;
        if (!unit->hit_count && !opencl) break; /* nothing to learn about */
    }
    if (!r) unit->failed = true;
    free(r);
    add_chains(unit);
}
