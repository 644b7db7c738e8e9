/* Bytes of any kind to text that the lexers can read, or the reason why they are no text. */
#include "audit/source_unit.h"

#include <stdlib.h>
#include <string.h>

typedef enum encoding { PLAIN, UTF16_LE, UTF16_BE, NO_TEXT } encoding;

enum { SAMPLE = 4096 };

/* A mark at the start says it; else text in UTF-16 has a zero in every other byte, nearly. */
static encoding encoding_of(const unsigned char *b, size_t count, size_t *mark) {
    *mark = 0;
    if (count >= 3 && b[0] == 0xEF && b[1] == 0xBB && b[2] == 0xBF) *mark = 3;
    if (count >= 4 && b[0] == 0xFF && b[1] == 0xFE && !b[2] && !b[3]) return NO_TEXT; /* UTF-32 */
    if (count >= 2 && ((b[0] == 0xFF && b[1] == 0xFE) || (b[0] == 0xFE && b[1] == 0xFF))) {
        *mark = 2;
        return b[0] == 0xFF ? UTF16_LE : UTF16_BE;
    }
    size_t n = count < SAMPLE ? count : SAMPLE, zeros[2] = {0, 0};
    for (size_t i = 0; i < n; i++) zeros[i & 1] += !b[i];
    if (zeros[1] > n * 2 / 5 && zeros[0] < n / 50 + 1) return UTF16_LE;
    if (zeros[0] > n * 2 / 5 && zeros[1] < n / 50 + 1) return UTF16_BE;
    return PLAIN;
}

/* Control characters that no editor writes, in the first bytes: not text whatever the name says. */
static bool is_binary(const unsigned char *b, size_t count) {
    size_t n = count < SAMPLE ? count : SAMPLE, odd = 0;
    if (memchr(b, 0, count)) return true;
    for (size_t i = 0; i < n; i++)
        odd += b[i] < 0x20 && !(b[i] >= '\t' && b[i] <= '\r') && b[i] != 0x1B && b[i] != 0x1A;
    return odd > n / 20;
}

/* Characters beyond ASCII become one letter-like byte: only their presence matters. False: a zero character. */
static bool from_utf16(const unsigned char *b, size_t count, bool big, char *out, size_t *length) {
    size_t n = 0;
    for (size_t i = 0; i + 1 < count; i += 2) {
        unsigned c = big ? (unsigned)b[i] << 8 | b[i + 1] : (unsigned)b[i + 1] << 8 | b[i];
        if (!c) return false;
        out[n++] = (char)(c < 0x80 ? c : 0xFF);
    }
    *length = n;
    return true;
}

/* "\r\n" and "\r" become "\n". */
static void unify_line_ends(char *text, size_t *length) {
    size_t n = 0;
    for (size_t i = 0; i < *length; i++) {
        if (text[i] == '\r' && i + 1 < *length && text[i + 1] == '\n') continue;
        text[n++] = text[i] == '\r' ? '\n' : text[i];
    }
    text[n] = '\0';
    *length = n;
}

bool ist_src_decode(const char *bytes, size_t count, char **text, size_t *length, const char **reason) {
    size_t mark;
    encoding e = encoding_of((const unsigned char *)bytes, count, &mark);
    const char *body = bytes + mark;
    *text = NULL;
    *reason = NULL;
    *length = count - mark;
    if (e == NO_TEXT || (e == PLAIN && is_binary((const unsigned char *)body, *length))) {
        *reason = "binary, not text";
        return true;
    }
    *text = malloc(*length + 1);
    if (!*text) return false;
    if (e == PLAIN) {
        memcpy(*text, body, *length);
    } else if (!from_utf16((const unsigned char *)body, *length, e == UTF16_BE, *text, length)) {
        free(*text);
        *text = NULL;
        *reason = "binary, not text";
        return true;
    }
    unify_line_ends(*text, length);
    return true;
}
