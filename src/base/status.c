#include "base/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct {
    ist_status code;
    const char *text;
} status_texts[] = {
#define X(name, value, text) {name, text},
    IST_STATUS_LIST(X)
#undef X
};

const char *ist_status_text(ist_status code) {
    for (size_t i = 0; i < sizeof status_texts / sizeof *status_texts; i++)
        if (status_texts[i].code == code) return status_texts[i].text;
    return "unknown status";
}

static bool is_inside_character(char c) {
    return ((unsigned char)c & 0xC0) == 0x80;
}

void ist_print_ends_v(char *out, size_t size, const char *fmt, va_list ap) {
    char all[10000]; /* two paths and more; nothing here allocates */
    int n = vsnprintf(all, sizeof all, fmt, ap);
    size_t length = n < 0 ? 0 : (size_t)n < sizeof all ? (size_t)n : sizeof all - 1;
    size_t head = (size - 3) / 2, tail = length - (size - 4 - head);
    all[length] = '\0';
    if (length < size) {
        memcpy(out, all, length + 1);
        return;
    }
    while (head && is_inside_character(all[head])) head--;
    while (is_inside_character(all[tail])) tail++;
    memcpy(out, all, head);
    memcpy(out + head, "...", 3);
    memcpy(out + head + 3, all + tail, length - tail + 1);
}

void ist_print_ends(char *out, size_t size, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    ist_print_ends_v(out, size, fmt, ap);
    va_end(ap);
}

ist_status ist_error_fill(ist_error *err, ist_status code, const char *fmt, ...) {
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        err->code = code;
        ist_print_ends_v(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
    }
    return code;
}

ist_status ist_fail_context(ist_error *err, const char *fmt, ...) {
    if (!err) return IST_OK;
    char old[sizeof err->text], context[sizeof err->text];
    memcpy(old, err->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    ist_print_ends_v(context, sizeof context, fmt, ap);
    va_end(ap);
    ist_print_ends(err->text, sizeof err->text, "%s: %s", context, old);
    return err->code;
}
