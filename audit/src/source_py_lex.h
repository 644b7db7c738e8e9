/* Logical lines of Python sources: what is between brackets or after a backslash belongs to one line. Comments are not
 * there, strings are single tokens. Any bytes give tokens of some kind. */
#ifndef IST_AUDIT_SOURCE_PY_LEX_H
#define IST_AUDIT_SOURCE_PY_LEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ist_py_kind {
    IST_PY_END,
    IST_PY_NAME,
    IST_PY_NUMBER,
    IST_PY_STRING,
    IST_PY_FORMAT, /* an f-string */
    IST_PY_SIGN
} ist_py_kind;

typedef struct ist_py_token {
    const char *at; /* strings: without prefix and quotes */
    uint32_t length, line;
    uint32_t match; /* opening brackets: index of the closing one, of the end when there is none */
    uint32_t loop;  /* opening brackets: index of the first "for" directly inside, 0: none */
    uint8_t kind;
} ist_py_token;

enum { IST_PY_MOST_TOKENS = 1 << 18 }; /* of a logical line; it ends there if it is longer */

typedef struct ist_py_lexer {
    const char *at, *end;
    uint32_t line;
    uint32_t indent; /* of the logical line: columns, tabs to multiples of 8 */
    ist_py_token *tokens;
    size_t count, cap; /* tokens[count] is the end */
    uint32_t *open;    /* brackets that are open: a stack of token indices */
    size_t open_count, open_cap;
    bool failed; /* out of memory */
} ist_py_lexer;

void ist_py_lexer_init(ist_py_lexer *lexer, const char *text, size_t count, uint32_t line);
/* False at the end. Statements after ";" are lines of their own with the same indent. */
bool ist_py_next_line(ist_py_lexer *lexer);
void ist_py_lexer_free(ist_py_lexer *lexer);

#endif
