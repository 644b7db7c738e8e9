/* The lexer of C-like languages: comments, strings (raw ones too), preprocessor lines. */
#include "audit/source_c_lex.h"

#include <string.h>

ist_c_lexer ist_c_lexer_make(const char *text, size_t count) {
    return (ist_c_lexer){.at = text, .end = text + count, .line = 1, .fresh = true};
}

static char peek(const ist_c_lexer *l, size_t n) {
    return (size_t)(l->end - l->at) > n ? l->at[n] : '\0';
}

static void step(ist_c_lexer *l) {
    if (*l->at == '\n') {
        l->line++;
        l->fresh = true;
    }
    l->at++;
}

static void skip_block_comment(ist_c_lexer *l) {
    bool fresh = l->fresh;
    l->at += 2;
    while (l->at < l->end && !(*l->at == '*' && peek(l, 1) == '/')) step(l);
    l->at += l->end - l->at < 2 ? l->end - l->at : 2;
    l->fresh = fresh;
}

/* A backslash carries it over the end of the line. */
static void skip_line(ist_c_lexer *l, bool comments) {
    while (l->at < l->end && *l->at != '\n') {
        if (*l->at == '\\' && peek(l, 1) == '\n') {
            step(l);
            step(l);
        } else if (comments && *l->at == '/' && peek(l, 1) == '*') {
            skip_block_comment(l);
        } else if (comments && *l->at == '/' && peek(l, 1) == '/') {
            comments = false;
        } else {
            l->at++;
        }
    }
}

/* The directive that `at` is in front of: "if", "endif"; *rest: what follows. */
static size_t directive(const ist_c_lexer *l, const char **word, const char **rest) {
    const char *p = l->at + 1;
    while (p < l->end && (*p == ' ' || *p == '\t')) p++;
    *word = p;
    while (p < l->end && ist_c_is_letter(*p)) p++;
    size_t n = (size_t)(p - *word);
    while (p < l->end && (*p == ' ' || *p == '\t')) p++;
    *rest = p;
    return n;
}

static bool is_word(const char *word, size_t n, const char *want) {
    return n == strlen(want) && !memcmp(word, want, n);
}

/* From behind "#if 0" to behind the #else, #elif or #endif that ends it. */
static void skip_left_out(ist_c_lexer *l) {
    const char *word, *rest;
    for (unsigned depth = 0; l->at < l->end;) {
        while (l->at < l->end && (*l->at == ' ' || *l->at == '\t' || *l->at == '\n')) step(l);
        if (l->at < l->end && *l->at == '#') {
            size_t n = directive(l, &word, &rest);
            bool ends = is_word(word, n, "endif"), others = is_word(word, n, "else") || is_word(word, n, "elif");
            if (n >= 2 && !memcmp(word, "if", 2)) depth++;
            skip_line(l, false);
            if (!depth && (ends || others)) return;
            depth -= ends;
        } else {
            skip_line(l, false);
        }
    }
}

static void skip_directive(ist_c_lexer *l) {
    const char *word, *rest;
    size_t n = directive(l, &word, &rest);
    bool never = is_word(word, n, "if") && rest < l->end && *rest == '0' &&
                 (rest + 1 == l->end || rest[1] == '\n' || rest[1] == ' ' || rest[1] == '\t' || rest[1] == '/');
    skip_line(l, true);
    if (never)
        skip_left_out(l);
    else if (is_word(word, n, "if") || is_word(word, n, "ifdef") || is_word(word, n, "ifndef"))
        l->conditions++;
    else if (is_word(word, n, "endif") && l->conditions)
        l->conditions--;
}

static void skip_blanks(ist_c_lexer *l) {
    while (l->at < l->end) {
        char c = *l->at;
        if (c == '/' && peek(l, 1) == '/')
            skip_line(l, false);
        else if (c == '/' && peek(l, 1) == '*')
            skip_block_comment(l);
        else if (c == '#' && l->fresh)
            skip_directive(l);
        else if (c == ' ' || (c >= '\t' && c <= '\r'))
            step(l);
        else if (c == '\\' && peek(l, 1) == '\n')
            step(l);
        else
            return;
    }
}

/* A string ends with its line when nothing else ends it. */
static ist_c_token quoted(ist_c_lexer *l, char quote) {
    ist_c_token t = {.kind = IST_C_STRING, .at = l->at + 1, .line = l->line};
    l->at++;
    while (l->at < l->end && *l->at != quote && *l->at != '\n') {
        if (*l->at == '\\' && l->at + 1 < l->end) step(l);
        step(l);
    }
    t.length = (size_t)(l->at - t.at);
    if (l->at < l->end && *l->at == quote) l->at++;
    l->fresh = false;
    return t;
}

/* R"mark( ... )mark", at the quote; a mark has at most 16 characters. */
static ist_c_token raw_string(ist_c_lexer *l) {
    ist_c_token t = {.kind = IST_C_STRING, .line = l->line};
    const char *mark = l->at + 1;
    size_t n = 0;
    while (n <= 16 && mark + n < l->end && mark[n] != '(' && mark[n] != '"' && mark[n] != '\n') n++;
    if (n > 16 || mark + n >= l->end || mark[n] != '(') return quoted(l, '"');
    l->at = t.at = mark + n + 1;
    while (l->at < l->end &&
           !(*l->at == ')' && (size_t)(l->end - l->at) > n + 1 && !memcmp(l->at + 1, mark, n) && l->at[n + 1] == '"'))
        step(l);
    t.length = (size_t)(l->at - t.at);
    l->at += (size_t)(l->end - l->at) > n + 1 ? n + 2 : (size_t)(l->end - l->at);
    l->fresh = false;
    return t;
}

static bool is_string_prefix(const char *word, size_t n, bool *raw) {
    *raw = word[n - 1] == 'R';
    size_t m = *raw ? n - 1 : n;
    return m == 0 || (m == 1 && (*word == 'L' || *word == 'u' || *word == 'U')) ||
           (m == 2 && word[0] == 'u' && word[1] == '8');
}

static ist_c_token name_or_string(ist_c_lexer *l) {
    ist_c_token t = {.kind = IST_C_NAME, .at = l->at, .line = l->line};
    bool raw;
    while (l->at < l->end && (ist_c_is_letter(*l->at) || ist_c_is_digit(*l->at))) l->at++;
    t.length = (size_t)(l->at - t.at);
    if (l->at < l->end && (*l->at == '"' || *l->at == '\'') && is_string_prefix(t.at, t.length, &raw))
        return raw && *l->at == '"' ? raw_string(l) : quoted(l, *l->at);
    return t;
}

static ist_c_token number(ist_c_lexer *l) {
    ist_c_token t = {.kind = IST_C_NUMBER, .at = l->at, .line = l->line};
    while (l->at < l->end) {
        char c = *l->at, before = l->at > t.at ? l->at[-1] : '\0';
        bool exponent = (c == '+' || c == '-') && (before == 'e' || before == 'E' || before == 'p' || before == 'P');
        bool separator = c == '\'' && (ist_c_is_digit(peek(l, 1)) || ist_c_is_letter(peek(l, 1)));
        if (!ist_c_is_digit(c) && !ist_c_is_letter(c) && c != '.' && !exponent && !separator) break;
        l->at++;
    }
    t.length = (size_t)(l->at - t.at);
    return t;
}

static ist_c_token sign(ist_c_lexer *l) {
    ist_c_token t = {.kind = IST_C_SIGN, .at = l->at, .line = l->line, .length = 1, .sign = *l->at};
    char next = peek(l, 1);
    if (*l->at == ':' && next == ':')
        t.length = 2;
    else if (*l->at == '-' && next == '>')
        t.length = 2, t.sign = '>';
    else if (*l->at == '<' && next == '<' && peek(l, 2) == '<')
        t.length = 3;
    else if (next == '=' && strchr("=!<>+-*/%&|^", *l->at) && *l->at)
        t.length = 2, t.sign = *l->at == '=' ? '~' : *l->at; /* "==" is no assignment */
    l->at += t.length;
    return t;
}

ist_c_token ist_c_next(ist_c_lexer *l) {
    skip_blanks(l);
    if (l->at >= l->end) return (ist_c_token){.kind = IST_C_END, .at = l->end, .line = l->line};
    l->fresh = false;
    char c = *l->at;
    if (ist_c_is_letter(c)) return name_or_string(l);
    if (ist_c_is_digit(c) || (c == '.' && ist_c_is_digit(peek(l, 1)))) return number(l);
    if (c == '"' || c == '\'') return quoted(l, c);
    return sign(l);
}
