/* The page and its policy: see serve_page.h. Script and style stand in the page, so the policy names them by their
 * digests. */
#include "serve_page.h"

#include "base/sha256.h"
#include "device/sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const ist_source ist_pages[]; /* of the build: apps/serve.html */

const char *serve_page(void) {
    return ist_pages[0].text;
}

enum { DIGEST = 32, BASE64 = (DIGEST + 2) / 3 * 4 + 1 };

/* The digest of text[0 .. size), in base 64. */
static void digest(const char *text, size_t size, char out[BASE64]) {
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
    out[BASE64 - 2] = '=';
    out[BASE64 - 1] = '\0';
}

/* Of what stands between <name> and </name>. */
static ist_status digest_element(const char *name, char out[BASE64], ist_error *err) {
    char begin[16], end[16];
    snprintf(begin, sizeof begin, "<%s>", name);
    snprintf(end, sizeof end, "</%s>", name);
    const char *from = strstr(serve_page(), begin), *to = from ? strstr(from, end) : NULL;
    if (!to) return ist_fail(err, IST_E_STATE, "the page has no %s", begin);
    from += strlen(begin);
    digest(from, (size_t)(to - from), out);
    return IST_OK;
}

ist_status serve_page_policy(char *policy, size_t size, ist_error *err) {
    char script[BASE64], style[BASE64];
    IST_TRY(digest_element("script", script, err));
    IST_TRY(digest_element("style", style, err));
    int n = snprintf(policy, size,
                     "default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; connect-src 'self'; "
                     "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
                     script, style);
    return n < 0 || (size_t)n >= size ? ist_fail(err, IST_E_STATE, "the page's policy is too long") : IST_OK;
}
