#include "base/status.h"

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

ist_status ist_error_fill(ist_error *err, ist_status code, const char *fmt, ...) {
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        err->code = code;
        vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
    }
    return code;
}

ist_status ist_fail_context(ist_error *err, const char *fmt, ...) {
    if (!err) return IST_OK;
    char old[sizeof err->text];
    memcpy(old, err->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    if (n < 0) n = 0;
    if ((size_t)n < sizeof err->text) snprintf(err->text + n, sizeof err->text - (size_t)n, ": %s", old);
    return err->code;
}
