/* The calls in a C-like file: their arguments, what they move, where the data came from. */
#include "audit/source_c.h"

#include <stdio.h>
#include <string.h>

static bool is(const ist_c_token *t, const char *word) {
    return t->length == strlen(word) && !memcmp(t->at, word, t->length);
}

static bool is_sign(const ist_c_token *t, char sign, size_t length) {
    return t->kind == IST_C_SIGN && t->sign == sign && t->length == length;
}

/* ---- arguments ---- */

typedef struct meaning {
    const char *word;
    uint16_t flags;
} meaning;

static uint16_t flags_of(const ist_c_token *t) {
    static const meaning words[] = {{"CL_TRUE", IST_C_TRUE},
                                    {"true", IST_C_TRUE},
                                    {"CL_BLOCKING", IST_C_TRUE},
                                    {"CL_FALSE", IST_C_FALSE},
                                    {"false", IST_C_FALSE},
                                    {"CL_NON_BLOCKING", IST_C_FALSE},
                                    {"CL_MEM_COPY_HOST_PTR", IST_C_HOST_POINTER},
                                    {"CL_MEM_USE_HOST_PTR", IST_C_HOST_POINTER},
                                    {"CL_MAP_READ", IST_C_FOR_READ},
                                    {"CL_MAP_WRITE", IST_C_FOR_WRITE},
                                    {"CL_MAP_WRITE_INVALIDATE_REGION", IST_C_FOR_WRITE},
                                    {"CL_EVENT_COMMAND_EXECUTION_STATUS", IST_C_STATUS_ASKED},
                                    {"cudaMemcpyHostToDevice", IST_C_UP},
                                    {"cudaMemcpyDeviceToHost", IST_C_DOWN},
                                    {"cudaMemcpyDeviceToDevice", IST_C_ON_DEVICE},
                                    {"cudaMemcpyHostToHost", IST_C_ON_DEVICE},
                                    {"CL_MIGRATE_MEM_OBJECT_HOST", IST_C_DOWN},
                                    {"CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED", IST_C_ON_DEVICE}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is(t, words[i].word)) return words[i].flags;
    return 0;
}

/* Methods that give the memory of their object. */
static bool is_access(const ist_c_token *t) {
    return is(t, "data") || is(t, "begin") || is(t, "end") || is(t, "get") || is(t, "c_str");
}

static void note_name(ist_c_reader *r, ist_c_arg *a) {
    bool member = is_sign(&r->last, '.', 1) || is_sign(&r->last, '>', 2);
    bool call = is_sign(&r->next, '(', 1);
    a->flags |= flags_of(&r->token);
    if (call && is_access(&r->token) && (is(&r->token, "begin") || is(&r->token, "end"))) a->flags |= IST_C_ITERATOR;
    if (a->closed || (call && is_access(&r->token))) return;
    a->base = r->token_name;
    a->flags = (uint16_t)((a->flags & ~IST_C_MEMBER) | (member ? IST_C_MEMBER : 0));
}

void ist_c_note_token(ist_c_reader *r) {
    if (!r->paren_count || r->lost_parens || is_sign(&r->token, ')', 1)) return;
    ist_c_paren *p = &r->parens[r->paren_count - 1];
    if (p->arg_count >= IST_C_ARGS) return;
    ist_c_arg *a = &p->args[p->arg_count];
    if (a->tokens < 255) a->tokens++;
    if (r->token.kind == IST_C_NAME) {
        note_name(r, a);
    } else if (r->token.kind == IST_C_NUMBER) {
        if (is(&r->token, "1")) a->flags |= IST_C_TRUE;
        if (is(&r->token, "0")) a->flags |= IST_C_FALSE;
        if (r->token.length == 1 && strchr("1248", *r->token.at) && a->tokens == 1 && p->rule) a->flags |= IST_C_SIZEOF;
    } else if (is_sign(&r->token, '+', 1) || is_sign(&r->token, '[', 1) || is_sign(&r->token, '-', 1)) {
        a->closed = a->base != 0;
        a->flags |= IST_C_COMPLEX;
    } else if (is_sign(&r->token, '*', 1) || is_sign(&r->token, '/', 1)) {
        a->flags |= IST_C_COMPLEX;
    }
}

/* ---- which call it is ---- */

static bool sounds_like(const ist_c_token *t, ist_c_type type) {
    static const char *const words[] = {[IST_C_QUEUE] = " queue queues q cq stream ",
                                        [IST_C_EVENT] = " event events evt ev e ",
                                        [IST_C_PROGRAM] = " program prog prg ",
                                        [IST_C_MEMORY] = "  ",
                                        [IST_C_SPACE] = "  "};
    return ist_src_has_word(t->at, t->length, words[type]);
}

/* "cl::Buffer(", "cl::Buffer name(", "queue.finish(" */
const ist_c_rule *ist_c_rule_here(const ist_c_reader *r) {
    const ist_c_rule *rule = ist_c_find_rule(r->token.at, r->token.length);
    bool method = is_sign(&r->last, '.', 1) || is_sign(&r->last, '>', 2), space = is_sign(&r->last, ':', 2);
    bool of_cl = space && is(&r->before_last, "cl");
    if (!rule && r->declared == IST_C_MEMORY && !method && r->function) return ist_c_find_rule("Buffer", 6);
    if (!rule) return NULL;
    switch (rule->type) {
    case IST_C_ANY:
        return rule;
    case IST_C_SPACE:
        return of_cl ? rule : NULL;
    case IST_C_MEMORY:
        return of_cl ? rule : NULL;
    default:
        if (!method || !r->opencl || r->before_last.kind != IST_C_NAME) return NULL;
        return r->u->names[r->last_name].alias == rule->type || sounds_like(&r->before_last, (ist_c_type)rule->type)
                   ? rule
                   : NULL;
    }
}

/* ---- where data comes from ---- */

/* The line of the download that filled what `name` refers to; 0: none that is known. */
static uint32_t origin_of(const ist_c_reader *r, uint32_t name, uint32_t line) {
    const ist_src_name *n = &r->u->names[name];
    if (!name || !n->value.origin || n->value.origin >= line) return 0;
    return n->wide || n->value.hit == r->function ? n->value.origin : 0;
}

static bool is_derived(const ist_c_reader *r, uint32_t name) {
    return r->u->names[name].value.flags;
}

static int parameter(const ist_c_reader *r, uint32_t name) {
    const ist_src_function *f = ist_src_function_at(r->u, r->function);
    for (uint32_t i = 0; f && name && i < f->param_count; i++)
        if (f->params[i] == name) return (int)i;
    return -1;
}

/* `hit` of a value is the function that it is known in. */
static void set_origin(ist_c_reader *r, uint32_t name, bool member, uint32_t line) {
    ist_src_name *n = &r->u->names[name];
    if (!name) return;
    n->value = (ist_src_value){.origin = line, .hit = r->function};
    n->wide = n->wide || member;
}

static void note_download(ist_c_reader *r, const ist_c_arg *host, uint32_t line) {
    int p = parameter(r, host->base);
    set_origin(r, host->base, host->flags & IST_C_MEMBER, line);
    if (p >= 0 && !(host->flags & IST_C_MEMBER)) ist_src_function_at(r->u, r->function)->given[p].hit = line;
}

/* Fills in `from`; a parameter has what the callers of this file pass. */
static void note_upload(ist_c_reader *r, const ist_c_arg *host, ist_src_hit *hit) {
    int p = parameter(r, host->base);
    hit->from = origin_of(r, host->base, hit->line);
    if (hit->from && is_derived(r, host->base)) hit->flags |= IST_SRC_DERIVED;
    if (hit->from || p < 0 || (host->flags & IST_C_MEMBER)) return;
    const ist_src_value *given = &ist_src_function_at(r->u, r->function)->given[p];
    hit->from = given->origin;
    if (given->origin && given->flags) hit->flags |= IST_SRC_DERIVED;
}

/* A call of a function of this file: what it reads into its parameters the caller has, and the other way round. */
static void pass_values(ist_c_reader *r, const ist_c_paren *call, uint32_t number) {
    ist_src_function *f = ist_src_function_at(r->u, number);
    for (uint32_t i = 0; i < call->arg_count && i < f->param_count; i++) {
        const ist_c_arg *a = &call->args[i];
        uint32_t origin = origin_of(r, a->base, call->line);
        if (origin && !f->given[i].origin) {
            f->given[i].origin = origin;
            f->given[i].flags = is_derived(r, a->base);
        }
        if (f->given[i].hit) set_origin(r, a->base, a->flags & IST_C_MEMBER, f->given[i].hit);
    }
    if (call->target && f->result.origin) {
        set_origin(r, call->target, false, f->result.origin);
        r->u->names[call->target].value.flags = f->result.flags;
    }
}

/* Functions elsewhere may change what they are given; printing and freeing do not. */
static void note_use(ist_c_reader *r, const ist_c_paren *call) {
    const ist_src_name *n = &r->u->names[call->callee];
    if (ist_src_has_word(r->u->arena + n->text, n->length, " printf fprintf free assert size log sizeof ")) return;
    for (uint32_t i = 0; i < call->arg_count && i < IST_C_ARGS; i++)
        if (call->args[i].base && origin_of(r, call->args[i].base, call->line))
            r->u->names[call->args[i].base].value.flags = 1;
}

void ist_c_assign(ist_c_reader *r) {
    if (r->last.kind == IST_C_NAME && is_sign(&r->token, '=', 1)) {
        r->target = r->last_name;
        r->u->names[r->last_name].value = (ist_src_value){0};
    } else if (is_sign(&r->last, ']', 1) && r->indexed) {
        r->u->names[r->indexed].value.flags = 1;
    }
}

void ist_c_return(ist_c_reader *r, uint32_t name) {
    ist_src_function *f = ist_src_function_at(r->u, r->function);
    uint32_t origin = origin_of(r, name, UINT32_MAX);
    if (f && origin) f->result = (ist_src_value){.origin = origin, .flags = is_derived(r, name)};
}

/* ---- judging a call ---- */

static const ist_c_arg *arg(const ist_c_paren *call, int at) {
    static const ist_c_arg none;
    return at >= 0 && (uint32_t)at < call->arg_count ? &call->args[at] : &none;
}

/* False: this call is no hit after all. */
static bool take_form(const ist_c_rule *rule, const ist_c_paren *call, ist_src_hit *h) {
    uint16_t options = arg(call, rule->options)->flags;
    switch (rule->form) {
    case IST_C_MAP:
        if ((options & IST_C_FOR_WRITE) && !(options & IST_C_FOR_READ)) {
            h->op = h->flags & IST_SRC_BLOCKING ? IST_SRC_WAIT : IST_SRC_COPY;
            h->flags &= (uint16_t)~IST_SRC_BLOCKING;
        }
        return true;
    case IST_C_POINTER:
        if (options & IST_C_HOST_POINTER) h->flags |= IST_SRC_HOST_POINTER;
        return call->arg_count > 1;
    case IST_C_STATUS:
        return options & IST_C_STATUS_ASKED;
    case IST_C_KIND:
        if (options & IST_C_DOWN) h->op = IST_SRC_DOWN;
        if (options & IST_C_ON_DEVICE) h->op = IST_SRC_COPY;
        return true;
    case IST_C_RANGE:
        if (!(arg(call, 0)->flags & IST_C_ITERATOR) && !(arg(call, 1)->flags & IST_C_ITERATOR)) return true;
        h->op = IST_SRC_UP;
        return true;
    default:
        return true;
    }
}

/* cudaMemcpy has its host memory on the side that its direction says. */
static const ist_c_arg *host_of(const ist_c_rule *rule, const ist_c_paren *call, const ist_src_hit *h) {
    bool from_second = rule->form == IST_C_KIND && rule->host >= 0 && h->op == IST_SRC_UP;
    return arg(call, from_second ? rule->host + (rule->options == 6 ? 2 : 1) : rule->host);
}

static void judge_call(ist_c_reader *r, const ist_c_paren *call) {
    const ist_c_rule *rule = call->rule;
    ist_src_hit h = {.line = call->line,
                     .function = r->function,
                     .loop = r->loop,
                     .branch = r->branch,
                     .op = rule->op,
                     .flags = rule->flags,
                     .calls = 1};
    if (arg(call, rule->blocking)->flags & IST_C_TRUE) h.flags |= IST_SRC_BLOCKING;
    if (!take_form(rule, call, &h)) return;
    const ist_c_arg *size = arg(call, rule->size), *host = host_of(rule, call, &h);
    if ((size->flags & IST_C_SIZEOF) && !(size->flags & IST_C_COMPLEX)) h.flags |= IST_SRC_SCALAR;
    snprintf(h.label, sizeof h.label, "%s%s", rule->type == IST_C_MEMORY || rule->type == IST_C_SPACE ? "cl::" : "",
             rule->name);
    if (h.op == IST_SRC_UP || (h.flags & IST_SRC_HOST_POINTER)) note_upload(r, host, &h);
    ist_src_add_hit(r->u, &h);
    if (h.op == IST_SRC_DOWN && rule->form != IST_C_MAP) note_download(r, host, call->line);
}

void ist_c_end_call(ist_c_reader *r, const ist_c_paren *call) {
    uint32_t number = r->u->names[call->callee].function;
    if (!r->function) return;
    if (call->rule) {
        judge_call(r, call);
    } else if (call->kind == IST_C_CALL && number) {
        ist_src_add_call(r->u, r->function, r->loop, number);
        pass_values(r, call, number);
    } else if (call->kind == IST_C_CALL) {
        note_use(r, call);
    }
}
