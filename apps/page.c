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

enum { DIGEST = 32 };

/* The digest of text[0 .. size), in base 64. */
static void digest(const char *text, size_t size, char out[PAGE_DIGEST]) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char hex[IST_SHA256_TEXT], byte[3] = "";
    uint32_t bytes[DIGEST + 1] = {0};
    ist_sha256 sum;
    ist_sha256_start(&sum);
    ist_sha256_add(&sum, text, size);
    ist_sha256_end(&sum, hex);
    for (int i = 0; i < DIGEST; i++) {
        memcpy(byte, hex + 2 * i, 2);
        bytes[i] = (uint32_t)strtoul(byte, NULL, 16);
    }
    for (int i = 0, n = 0; i < DIGEST; i += 3) { /* the last group has two bytes */
        uint32_t group = bytes[i] << 16 | bytes[i + 1] << 8 | (i + 2 < DIGEST ? bytes[i + 2] : 0);
        for (int k = 3; k >= 0; k--) out[n++] = digits[group >> 6 * k & 63];
    }
    out[PAGE_DIGEST - 2] = '=';
    out[PAGE_DIGEST - 1] = '\0';
}

ist_status page_digest(const char *page, const char *name, char out[PAGE_DIGEST], ist_error *err) {
    char begin[16], end[16];
    snprintf(begin, sizeof begin, "<%s>", name);
    snprintf(end, sizeof end, "</%s>", name);
    const char *from = strstr(page, begin), *to = from ? strstr(from, end) : NULL;
    if (!to) return ist_fail(err, IST_E_STATE, "the page has no %s", begin);
    from += strlen(begin);
    digest(from, (size_t)(to - from), out);
    return IST_OK;
}
