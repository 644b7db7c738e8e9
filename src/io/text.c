/* Growing strings and JSON scalars: see text.h. */
#include "io/text.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(ist_text *text, size_t more) {
    size_t need;
    if (text->failed) return false;
    if (!ist_add_size(text->length, more, &need) || !ist_add_size(need, 1, &need) ||
        (need > text->capacity && !ist_grow((void **)&text->data, &text->capacity, need, 1)))
        text->failed = true;
    return !text->failed;
}

void ist_text_add(ist_text *text, const char *bytes, size_t count) {
    if (!reserve(text, count)) return;
    memcpy(text->data + text->length, bytes, count);
    text->length += count;
    text->data[text->length] = '\0';
}

void ist_text_put(ist_text *text, const char *string) {
    ist_text_add(text, string, strlen(string));
}

char *ist_text_room(ist_text *text, size_t count) {
    ist_text_clear(text);
    if (!reserve(text, count)) return NULL;
    text->length = count;
    text->data[count] = '\0';
    return text->data;
}

void ist_text_printf(ist_text *text, const char *fmt, ...) {
    char small[256];
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(small, sizeof small, fmt, args);
    va_end(args);
    if (n < 0) {
        text->failed = true;
    } else if ((size_t)n < sizeof small) {
        ist_text_add(text, small, (size_t)n);
    } else if (reserve(text, (size_t)n)) {
        vsnprintf(text->data + text->length, (size_t)n + 1, fmt, again);
        text->length += (size_t)n;
    }
    va_end(again);
}

/* Length of the well-formed UTF-8 sequence at s (no overlong forms, surrogates or values past U+10FFFF), or 0. */
static int utf8_length(const unsigned char *s) {
    unsigned char c = s[0], low = 0x80, high = 0xBF;
    int n;
    if (c < 0x80) return 1;
    if (c >= 0xC2 && c <= 0xDF)
        n = 2;
    else if (c >= 0xE0 && c <= 0xEF)
        n = 3;
    else if (c >= 0xF0 && c <= 0xF4)
        n = 4;
    else
        return 0;
    if (c == 0xE0) low = 0xA0;
    if (c == 0xED) high = 0x9F;
    if (c == 0xF0) low = 0x90;
    if (c == 0xF4) high = 0x8F;
    if (s[1] < low || s[1] > high) return 0;
    for (int i = 2; i < n; i++)
        if (s[i] < 0x80 || s[i] > 0xBF) return 0;
    return n;
}

void ist_text_utf8(ist_text *text, const char *string) {
    for (const unsigned char *s = (const unsigned char *)string; *s;) {
        int n = utf8_length(s);
        if (n)
            ist_text_add(text, (const char *)s, (size_t)n);
        else
            ist_text_put(text, "\xEF\xBF\xBD");
        s += n ? n : 1;
    }
}

bool ist_text_is_utf8(const char *string) {
    const unsigned char *s = (const unsigned char *)string;
    int n = 1;
    while (*s && (n = utf8_length(s))) s += n;
    return n != 0;
}

static const char hex_digits[] = "0123456789abcdef";

void ist_text_hex(ist_text *text, const char *string) {
    for (const unsigned char *s = (const unsigned char *)string; *s; s++)
        ist_text_add(text, (const char[]){hex_digits[*s >> 4], hex_digits[*s & 15]}, 2);
}

char *ist_text_from_hex(const char *hex) {
    size_t length = strlen(hex);
    char *string = length % 2 || strspn(hex, hex_digits) != length ? NULL : malloc(length / 2 + 1);
    if (!string) return NULL;
    for (size_t i = 0; i < length / 2; i++)
        string[i] = (char)((strchr(hex_digits, hex[2 * i]) - hex_digits) << 4 |
                           (strchr(hex_digits, hex[2 * i + 1]) - hex_digits));
    string[length / 2] = '\0';
    return string;
}

/* Printable ASCII stands for itself in JSON, but for the quote and the backslash. */
static size_t plain_length(const unsigned char *s) {
    size_t n = 0;
    while (s[n] >= 0x20 && s[n] < 0x7F && s[n] != '"' && s[n] != '\\') n++;
    return n;
}

void ist_text_json_string(ist_text *text, const char *string) {
    ist_text_put(text, "\"");
    for (const unsigned char *s = (const unsigned char *)string;;) {
        size_t plain = plain_length(s);
        ist_text_add(text, (const char *)s, plain);
        s += plain;
        if (!*s) break;
        int n = utf8_length(s);
        if (*s == '"' || *s == '\\')
            ist_text_printf(text, "\\%c", *s);
        else if (*s == '\n')
            ist_text_put(text, "\\n");
        else if (*s == '\t')
            ist_text_put(text, "\\t");
        else if (*s < 0x20 || *s == 0x7F)
            ist_text_printf(text, "\\u%04x", (unsigned)*s);
        else if (n)
            ist_text_add(text, (const char *)s, (size_t)n);
        else
            ist_text_put(text, "\xEF\xBF\xBD");
        s += n ? n : 1;
    }
    ist_text_put(text, "\"");
}

void ist_text_json_float(ist_text *text, float value) {
    char digits[32];
    if (!isfinite(value)) {
        ist_text_put(text, "null");
        return;
    }
    /* nine significant digits always identify a float; fewer usually do */
    for (int precision = 1; precision <= 9; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, (double)value);
        if (strtof(digits, NULL) == value) break;
    }
    if (strchr(digits, 'e')) { /* 1e+02 reads worse than 100 */
        char plain[64];
        int n = snprintf(plain, sizeof plain, "%.0f", (double)value);
        if (n > 0 && n < 10 && strtof(plain, NULL) == value) memcpy(digits, plain, (size_t)n + 1);
    }
    ist_text_put(text, digits);
}

ist_status ist_text_status(const ist_text *text, ist_error *err) {
    if (text->failed) return ist_fail(err, IST_E_MEMORY, "out of memory after %zu bytes of text", text->length);
    return IST_OK;
}

void ist_text_clear(ist_text *text) {
    text->length = 0;
    text->failed = false;
    if (text->data) text->data[0] = '\0';
}

void ist_text_free(ist_text *text) {
    free(text->data);
    *text = (ist_text){0};
}
