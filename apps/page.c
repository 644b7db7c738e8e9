/* The pages that the build embeds: see page.h. */
#include "page.h"

#include "base/sha256.h"
#include "device/sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const ist_source ist_pages[]; /* of the build: apps/NAME.html; ends with a NULL name */

const char *page_text(const char *name) {
    for (const ist_source *p = ist_pages; p->name; p++)
        if (!strcmp(p->name, name)) return p->text;
    return "";
}

void page_put_base64(ist_text *out, const unsigned char *bytes, size_t count) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < count; i += 3) {
        unsigned group = (unsigned)bytes[i] << 16 | (i + 1 < count ? (unsigned)bytes[i + 1] << 8 : 0) |
                         (i + 2 < count ? bytes[i + 2] : 0);
        char text[4] = {digits[group >> 18], digits[group >> 12 & 63], i + 1 < count ? digits[group >> 6 & 63] : '=',
                        i + 2 < count ? digits[group & 63] : '='};
        ist_text_add(out, text, sizeof text);
    }
}

/* The digest of text[0 .. size). */
static ist_status digest(const char *text, size_t size, char out[PAGE_DIGEST], ist_error *err) {
    char hex[IST_SHA256_TEXT], byte[3] = "";
    unsigned char bytes[(IST_SHA256_TEXT - 1) / 2];
    ist_text base64 = {0};
    ist_sha256 sum;
    ist_sha256_start(&sum);
    ist_sha256_add(&sum, text, size);
    ist_sha256_end(&sum, hex);
    for (size_t i = 0; i < sizeof bytes; i++) {
        memcpy(byte, hex + 2 * i, 2);
        bytes[i] = (unsigned char)strtoul(byte, NULL, 16);
    }
    page_put_base64(&base64, bytes, sizeof bytes);
    ist_status status = ist_text_status(&base64, err);
    if (!status) snprintf(out, PAGE_DIGEST, "%s", base64.data);
    ist_text_free(&base64);
    return status;
}

ist_status page_digest(const char *page, const char *name, char out[PAGE_DIGEST], ist_error *err) {
    char begin[16], end[16];
    snprintf(begin, sizeof begin, "<%s>", name);
    snprintf(end, sizeof end, "</%s>", name);
    const char *from = strstr(page, begin), *to = from ? strstr(from, end) : NULL;
    if (!to) return ist_fail(err, IST_E_STATE, "the page has no %s", begin);
    from += strlen(begin);
    return digest(from, (size_t)(to - from), out, err);
}
