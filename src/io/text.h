/* A growing string, and JSON values appended to it.
 *
 * Out of memory is sticky: appending goes on doing nothing and `failed` is checked once at the end. Numbers are the
 * shortest text that reads back as the same float; what is not a number never becomes one (null). Strings are always
 * valid UTF-8: a byte that is not becomes U+FFFD. */
#ifndef IST_IO_TEXT_H
#define IST_IO_TEXT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Zero-initialised is empty; `data` ends with a zero byte once something was appended. */
typedef struct ist_text {
    char *data;
    size_t length, capacity;
    bool failed;
} ist_text;

void ist_text_add(ist_text *text, const char *bytes, size_t count);
void ist_text_put(ist_text *text, const char *string);

/* Replaces the contents by `count` bytes for the caller to fill in, and the zero byte behind them; NULL when out of
 * memory. */
char *ist_text_room(ist_text *text, size_t count);

void ist_text_printf(ist_text *text, const char *fmt, ...) IST_PRINTF(2, 3);

/* Bytes as valid UTF-8, unquoted and unescaped. */
void ist_text_utf8(ist_text *text, const char *string);

/* Whether a string is valid UTF-8, which JSON keeps as it is. */
bool ist_text_is_utf8(const char *string);

/* The bytes of a string, two lower-case digits each. */
void ist_text_hex(ist_text *text, const char *string);

/* The string whose bytes `hex` says, malloc'd; NULL when it does not say any, or when out of memory. */
char *ist_text_from_hex(const char *hex);

/* A quoted and escaped JSON string. */
void ist_text_json_string(ist_text *text, const char *string);

/* The shortest decimal that reads back as `value`; null when it is not finite. */
void ist_text_json_float(ist_text *text, float value);

/* IST_E_MEMORY when an append failed. */
ist_status ist_text_status(const ist_text *text, ist_error *err);

/* Forgets the contents and keeps the room. */
void ist_text_clear(ist_text *text);

void ist_text_free(ist_text *text);

#endif
