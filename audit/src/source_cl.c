/* Kernels in OpenCL C. They move nothing between host and device themselves; what they can do to the host is print. */
#include "audit/source_c_lex.h"
#include "audit/source_unit.h"

#include <string.h>

typedef struct reader {
    ist_src_unit *u;
    ist_c_lexer lexer;
    uint32_t function, name; /* name: of the function whose body may follow */
    unsigned braces, brackets;
} reader;

static bool is_name(const ist_c_token *t, const char *text) {
    return t->kind == IST_C_NAME && t->length == strlen(text) && !memcmp(t->at, text, t->length);
}

static void note_print(const reader *r, const ist_c_token *t) {
    ist_src_hit h = {.line = t->line, .function = r->function, .op = IST_SRC_PRINT, .calls = 1, .label = "printf"};
    if (r->lexer.conditions) h.flags = IST_SRC_OPTIONAL;
    ist_src_add_hit(r->u, &h);
}

/* Outside of functions: the name in front of the brackets that a body follows. */
static void read_outside(reader *r, const ist_c_token *t, const ist_c_token *last) {
    bool opens = t->kind == IST_C_SIGN && t->sign == '(';
    if (is_name(t, "kernel") || is_name(t, "__kernel")) r->u->kernels++;
    if (opens && !r->brackets && last->kind == IST_C_NAME && !is_name(last, "__attribute__"))
        r->name = ist_src_intern(r->u, last->at, last->length);
    if (t->kind == IST_C_SIGN && t->sign == '{') r->function = r->name ? ist_src_function_begin(r->u, r->name, 0) : 0;
}

void ist_src_read_cl(ist_src_unit *u) {
    reader r = {.u = u, .lexer = ist_c_lexer_make(u->files[0].text, u->files[0].length)};
    ist_c_token last = {.kind = IST_C_END};
    for (ist_c_token t = ist_c_next(&r.lexer); t.kind != IST_C_END && !u->failed; last = t, t = ist_c_next(&r.lexer)) {
        char sign = t.kind == IST_C_SIGN ? t.sign : '\0';
        if (!r.braces) read_outside(&r, &t, &last);
        if (r.braces && sign == '(' && is_name(&last, "printf")) note_print(&r, &last);
        if (sign == '{') r.braces++;
        if (sign == '}' && r.braces && !--r.braces) r.function = r.name = 0;
        if (sign == '(') r.brackets++;
        if (sign == ')' && r.brackets) r.brackets--;
        if (!r.braces && (sign == ';' || sign == '}')) r.brackets = 0;
    }
    u->lines = r.lexer.line;
}
