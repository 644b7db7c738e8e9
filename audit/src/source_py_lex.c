/* The lexer of Python: prefixes, triple quotes, f-strings with nested quotes, continuation lines, brackets. */
#include "audit/source_py_lex.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void ist_py_lexer_init(ist_py_lexer *l, const char *text, size_t count, uint32_t line) {
    *l = (ist_py_lexer){.at = text, .end = text + count, .line = line};
}

void ist_py_lexer_free(ist_py_lexer *l) {
    free(l->tokens);
    free(l->open);
    *l = (ist_py_lexer){0};
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}
static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static char peek(const ist_py_lexer *l, size_t n) {
    return (size_t)(l->end - l->at) > n ? l->at[n] : '\0';
}

static void step(ist_py_lexer *l) {
    l->line += *l->at == '\n';
    l->at++;
}

static ist_py_token *add(ist_py_lexer *l, ist_py_kind kind) {
    if (!ist_grow((void **)&l->tokens, &l->cap, l->count + 2, sizeof *l->tokens)) {
        l->failed = true;
        l->at = l->end;
        return NULL;
    }
    ist_py_token *t = &l->tokens[l->count++];
    *t = (ist_py_token){.at = l->at, .line = l->line, .kind = (uint8_t)kind};
    return t;
}

static void skip_comment(ist_py_lexer *l) {
    while (l->at < l->end && *l->at != '\n') l->at++;
}

/* ---- strings ---- */

static bool at_quotes(const ist_py_lexer *l, char quote, unsigned quotes) {
    return *l->at == quote && (quotes == 1 || (peek(l, 1) == quote && peek(l, 2) == quote));
}

/* A string inside the braces of an f-string; it ends with its line. */
static void skip_nested(ist_py_lexer *l) {
    char quote = *l->at;
    step(l);
    while (l->at < l->end && *l->at != quote && *l->at != '\n') {
        if (*l->at == '\\' && l->at + 1 < l->end) step(l);
        step(l);
    }
    if (l->at < l->end && *l->at == quote) l->at++;
}

/* From behind the opening quotes to behind the closing ones. */
static size_t string_body(ist_py_lexer *l, char quote, unsigned quotes, bool format) {
    const char *start = l->at;
    unsigned braces = 0;
    while (l->at < l->end) {
        char c = *l->at;
        if (!braces && at_quotes(l, quote, quotes)) break;
        if (quotes == 1 && c == '\n') return (size_t)(l->at - start);
        if (c == '\\' && l->at + 1 < l->end)
            step(l);
        else if (format && (c == '{' || c == '}') && peek(l, 1) == c && !braces)
            l->at++;
        else if (format && c == '{')
            braces++;
        else if (format && c == '}' && braces)
            braces--;
        else if (braces && quotes == 3 && at_quotes(l, quote, quotes))
            break; /* a brace that nothing closes */
        else if (braces && (c == '"' || c == '\'')) {
            skip_nested(l);
            continue;
        }
        step(l);
    }
    size_t length = (size_t)(l->at - start);
    l->at += l->end - l->at < (ptrdiff_t)quotes ? l->end - l->at : (ptrdiff_t)quotes;
    return length;
}

static bool is_prefix(const char *word, size_t n, bool *format) {
    *format = false;
    if (n > 2) return false;
    for (size_t i = 0; i < n; i++) {
        if (!strchr("rRbBuUfFtT", word[i])) return false;
        *format = *format || strchr("fFtT", word[i]);
    }
    return true;
}

static void add_string(ist_py_lexer *l, bool format) {
    ist_py_token *t = add(l, format ? IST_PY_FORMAT : IST_PY_STRING);
    if (!t) return;
    size_t index = l->count - 1;
    char quote = *l->at;
    unsigned quotes = peek(l, 1) == quote && peek(l, 2) == quote ? 3 : 1;
    l->at += quotes;
    t->at = l->at;
    size_t length = string_body(l, quote, quotes, format);
    l->tokens[index].length = (uint32_t)length;
}

/* ---- other tokens ---- */

static void note_bracket_loop(ist_py_lexer *l, const char *word, size_t n) {
    if (!l->open_count || n != 3 || memcmp(word, "for", 3)) return;
    ist_py_token *bracket = &l->tokens[l->open[l->open_count - 1]];
    if (!bracket->loop) bracket->loop = (uint32_t)l->count - 1;
}

static void add_name(ist_py_lexer *l) {
    const char *start = l->at, *p = l->at;
    bool format;
    while (p < l->end && (is_letter(*p) || is_digit(*p))) p++;
    if (p < l->end && (*p == '"' || *p == '\'') && is_prefix(start, (size_t)(p - start), &format)) {
        l->at = p;
        add_string(l, format);
        return;
    }
    ist_py_token *t = add(l, IST_PY_NAME);
    if (!t) return;
    t->length = (uint32_t)(p - start);
    l->at = p;
    note_bracket_loop(l, start, t->length);
}

static void add_number(ist_py_lexer *l) {
    ist_py_token *t = add(l, IST_PY_NUMBER);
    if (!t) return;
    const char *start = l->at;
    while (l->at < l->end) {
        char c = *l->at, before = l->at > start ? l->at[-1] : '\0';
        bool exponent = (c == '+' || c == '-') && (before == 'e' || before == 'E') && start[0] != '0';
        bool dot = c == '.' && (is_digit(peek(l, 1)) || !is_letter(peek(l, 1)));
        if (!is_digit(c) && !is_letter(c) && !dot && !exponent) break;
        l->at++;
    }
    t->length = (uint32_t)(l->at - start);
}

static void close_bracket(ist_py_lexer *l) {
    if (l->open_count) l->tokens[l->open[--l->open_count]].match = (uint32_t)l->count - 1;
}

static void open_bracket(ist_py_lexer *l) {
    if (!ist_grow((void **)&l->open, &l->open_cap, l->open_count + 1, sizeof *l->open))
        l->failed = true;
    else
        l->open[l->open_count++] = (uint32_t)l->count - 1;
}

static void add_sign(ist_py_lexer *l) {
    static const char *const longer[] = {"**=", "//=", ">>=", "<<=", "...", "**", "//", ">>", "<<", "<=", ">=", "==",
                                         "!=",  "->",  ":=",  "+=",  "-=",  "*=", "/=", "%=", "&=", "|=", "^=", "@="};
    ist_py_token *t = add(l, IST_PY_SIGN);
    if (!t) return;
    char c = *l->at;
    t->length = 1;
    for (size_t i = 0; i < sizeof longer / sizeof *longer; i++) {
        size_t n = strlen(longer[i]);
        if ((size_t)(l->end - l->at) >= n && !memcmp(l->at, longer[i], n)) {
            t->length = (uint32_t)n;
            break;
        }
    }
    l->at += t->length;
    if (t->length > 1) return;
    if (c == '(' || c == '[' || c == '{') open_bracket(l);
    if (c == ')' || c == ']' || c == '}') close_bracket(l);
}

/* ---- lines ---- */

/* To the first token of a line that has one; its indent. */
static bool find_line(ist_py_lexer *l) {
    for (l->indent = 0; l->at < l->end;) {
        char c = *l->at;
        if (c == '#')
            skip_comment(l);
        else if (c == ' ')
            l->indent++, l->at++;
        else if (c == '\t')
            l->indent = (l->indent / 8 + 1) * 8, l->at++;
        else if (c == '\n')
            l->indent = 0, step(l);
        else if (c == '\f' || c == '\v' || c == ';')
            l->at++;
        else if (c == '\\' && peek(l, 1) == '\n')
            step(l), step(l);
        else
            return true;
    }
    return false;
}

/* Tokens up to the end of the logical line. */
static void read_line(ist_py_lexer *l) {
    while (l->at < l->end && l->count < IST_PY_MOST_TOKENS && !l->failed) {
        char c = *l->at;
        if (c == '\n' && !l->open_count) {
            step(l);
            return;
        }
        if (c == ';' && !l->open_count) return;
        if (c == '#')
            skip_comment(l);
        else if (c == '\\' && peek(l, 1) == '\n')
            step(l), step(l);
        else if (c == ' ' || (c >= '\t' && c <= '\r'))
            step(l);
        else if (is_letter(c))
            add_name(l);
        else if (is_digit(c) || (c == '.' && is_digit(peek(l, 1))))
            add_number(l);
        else if (c == '"' || c == '\'')
            add_string(l, false);
        else
            add_sign(l);
    }
}

bool ist_py_next_line(ist_py_lexer *l) {
    uint32_t indent = l->indent;
    bool same = l->at < l->end && *l->at == ';' && l->count;
    l->count = l->open_count = 0;
    if (l->failed || !find_line(l)) return false;
    if (same) l->indent = indent;
    read_line(l);
    if (l->failed || !l->tokens) return false;
    for (size_t i = 0; i < l->open_count; i++) l->tokens[l->open[i]].match = (uint32_t)l->count;
    l->tokens[l->count] = (ist_py_token){.at = l->end, .line = l->line};
    return true;
}
