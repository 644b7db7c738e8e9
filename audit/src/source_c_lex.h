/* Tokens of C, C++ and CUDA sources, one at a time. Comments, preprocessor lines and what "#if 0" leaves out are not
 * there. Any bytes are tokens of some kind; the end comes back for ever. */
#ifndef IST_AUDIT_SOURCE_C_LEX_H
#define IST_AUDIT_SOURCE_C_LEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ist_c_kind { IST_C_END, IST_C_NAME, IST_C_NUMBER, IST_C_STRING, IST_C_SIGN } ist_c_kind;

typedef struct ist_c_token {
    ist_c_kind kind;
    const char *at; /* strings: without quotes */
    size_t length;
    uint32_t line;
    char sign; /* of a SIGN; ':' for "::", '>' for "->" with length 2, '<' for "<<<" with length 3, '=' only for "=" */
} ist_c_token;

typedef struct ist_c_lexer {
    const char *at, *end;
    uint32_t line;
    bool fresh;          /* nothing but blanks before, on this line */
    unsigned conditions; /* #if and #ifdef around `at`, but for "#if 0" */
} ist_c_lexer;

ist_c_lexer ist_c_lexer_make(const char *text, size_t count);
ist_c_token ist_c_next(ist_c_lexer *lexer);

static inline bool ist_c_is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || (unsigned char)c >= 0x80;
}
static inline bool ist_c_is_digit(char c) {
    return c >= '0' && c <= '9';
}

#endif
