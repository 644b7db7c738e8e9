/* Questions about a call of Python, and the hits that calls make. */
#include "audit/source_py_call.h"

#include <stdio.h>
#include <string.h>

bool ist_py_named(const ist_py_call *c, const char *name) {
    return c->name_length == strlen(name) && !memcmp(c->name, name, c->name_length);
}

/* `list` is " word word "; whole names only. */
bool ist_py_in(const char *name, size_t length, const char *list) {
    char key[48];
    if (length + 3 > sizeof key) return false;
    key[0] = ' ';
    memcpy(key + 1, name, length);
    memcpy(key + 1 + length, " ", 2);
    return strstr(list, key) != NULL;
}

bool ist_py_one_of(const ist_py_call *c, const char *list) {
    return ist_py_in(c->name, c->name_length, list);
}

bool ist_py_starts(const char *text, const char *with) {
    return !strncmp(text, with, strlen(with));
}

/* ---- hits ---- */

uint32_t ist_py_hit(ist_py_reader *r, ist_src_op op, unsigned flags, uint32_t line, const char *label) {
    ist_src_hit h = {.line = line,
                     .function = r->function,
                     .loop = r->loop,
                     .branch = r->branch,
                     .op = (uint16_t)op,
                     .flags = (uint16_t)(flags | (r->training ? IST_SRC_TRAINING : 0)),
                     .calls = 1};
    const ist_src_function *f = ist_src_function_at(r->u, r->function);
    if (f && r->module_class && !strcmp(ist_src_text(r->u, f->name), "forward")) h.flags |= IST_SRC_FOLLOWED;
    snprintf(h.label, sizeof h.label, "%s", label);
    return ist_src_add_hit(r->u, &h);
}

void ist_py_truth(ist_py_reader *r, ist_src_value v, uint32_t line) {
    if (ist_py_is_sure(v)) ist_py_hit(r, IST_SRC_IMPLICIT, 0, line, "truth of a tensor");
}

void ist_py_format(ist_py_reader *r, ist_src_value v, uint32_t line, const char *label) {
    bool known = v.kind == IST_PY_TENSOR && (v.flags & (IST_PY_SURE | IST_PY_PLACED));
    if (known) ist_py_hit(r, IST_SRC_IMPLICIT, 0, line, label);
}

/* Adds ".name()" to the calls of the chain that transfer. */
const char *ist_py_chained(const ist_py_call *c, const char *arguments) {
    size_t n = strlen(c->chain);
    if (n + c->name_length + strlen(arguments) + 4 < IST_SRC_LABEL)
        snprintf(c->chain + n, IST_SRC_LABEL - n, ".%.*s(%s)", (int)c->name_length, c->name, arguments);
    return c->chain;
}

static uint16_t calls_in(const char *label) {
    uint16_t n = 0;
    for (; *label; label++) n += *label == '(';
    return n ? n : 1;
}

/* A further step of a download on the same line: one hit, all calls named. */
bool ist_py_extends_hit(ist_py_reader *r, const ist_py_call *c) {
    ist_src_hit *h = c->on.hit && c->on.hit <= r->u->hit_count ? &r->u->hits[c->on.hit - 1] : NULL;
    if (!h || h->line != c->line) return false;
    snprintf(h->label, sizeof h->label, "%s", ist_py_chained(c, ""));
    h->calls = calls_in(h->label);
    return true;
}

/* ---- arguments ---- */

const ist_py_arg *ist_py_keyword(const ist_py_reader *r, const ist_py_call *c, const char *name) {
    for (uint32_t i = 0; i < c->arg_count; i++)
        if (c->args[i].keyword && !strcmp(ist_src_text(r->u, c->args[i].keyword), name)) return &c->args[i];
    return NULL;
}

const ist_py_arg *ist_py_positional(const ist_py_call *c, uint32_t at) {
    return at < c->arg_count && !c->args[at].keyword ? &c->args[at] : NULL;
}

ist_src_value ist_py_value_of(const ist_py_arg *a) {
    return a ? a->value : (ist_src_value){0};
}

/* What all arguments by position have in common, and those of torch.stack([..]). */
ist_src_value ist_py_all_args(const ist_py_call *c) {
    ist_src_value v = {0};
    bool first = true;
    for (uint32_t i = 0; i < c->arg_count; i++) {
        uint8_t kind = c->args[i].value.kind;
        if (kind == IST_PY_DEVICE || kind == IST_PY_HOST_DEVICE || kind == IST_PY_DTYPE) continue;
        v = first ? c->args[i].value : ist_py_combine(v, c->args[i].value);
        first = false;
    }
    v.hit = 0;
    return v;
}

bool ist_py_is_number(const ist_py_reader *r, const ist_py_arg *a) {
    return a->end == a->first + 1 && r->tokens[a->first].kind == IST_PY_NUMBER;
}

/* DEVICE, HOST_DEVICE, DTYPE or UNKNOWN. */
uint8_t ist_py_target_of(const ist_py_reader *r, const ist_py_arg *a) {
    if (!a) return IST_PY_UNKNOWN;
    uint8_t kind = a->value.kind;
    const ist_py_token *last = &r->tokens[a->end > a->first ? a->end - 1 : a->first];
    if (kind == IST_PY_DEVICE || kind == IST_PY_HOST_DEVICE || kind == IST_PY_DTYPE) return kind;
    if (ist_py_is_number(r, a)) return IST_PY_DEVICE;                                            /* .to(0) */
    if (ist_py_is(last, "]") && a->end > a->first + 2 && last[-1].kind == IST_PY_STRING) last--; /* state["device"] */
    const ist_py_token *name = &r->tokens[a->first];
    if (ist_py_is(last, "]") && name->kind == IST_PY_NAME && name[1].match == a->end - 1) last = name; /* devices[0] */
    if (last->kind != IST_PY_NAME && last->kind != IST_PY_STRING) return IST_PY_UNKNOWN;
    if (ist_src_has_word(last->at, last->length, " dtype ")) return IST_PY_DTYPE;
    return ist_src_has_word(last->at, last->length, " device devices dev gpu gpus rank ") ? IST_PY_DEVICE
                                                                                          : IST_PY_UNKNOWN;
}

/* ---- what happens ---- */

bool ist_py_is_capital(const ist_py_call *c) {
    return c->name_length && *c->name >= 'A' && *c->name <= 'Z';
}

/* A function whose result's size depends on data. */
ist_src_value ist_py_dynamic(ist_py_reader *r, const ist_py_call *c, ist_src_value on, const char *label) {
    if (on.kind == IST_PY_HOST || on.kind == IST_PY_HOST_TENSOR) return on;
    ist_py_hit(r, IST_SRC_DYNAMIC, 0, c->line, label);
    return ist_py_of(IST_PY_TENSOR, IST_PY_SURE | (on.flags & IST_PY_ARRAY));
}

void ist_py_launch(ist_py_reader *r, const ist_py_call *c, bool model) {
    ist_py_hit(r, IST_SRC_LAUNCH, model ? IST_SRC_MODEL : 0, c->line, "");
}

ist_src_value ist_py_download(ist_py_reader *r, const ist_py_call *c, const char *label, unsigned flags,
                              unsigned kind) {
    uint32_t hit = ist_py_hit(r, IST_SRC_DOWN, IST_SRC_BLOCKING | flags, c->line, label);
    if (hit) r->u->hits[hit - 1].calls = calls_in(label);
    return (ist_src_value){.kind = (uint8_t)kind,
                           .flags = kind == IST_PY_HOST_TENSOR ? IST_PY_SURE | (c->on.flags & IST_PY_MASK) : 0,
                           .origin = ist_py_downloaded(r, c->line),
                           .hit = hit};
}
