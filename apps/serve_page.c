/* The page and its policy: see serve_page.h. */
#include "serve_page.h"

#include "page.h"

#include <stdio.h>

const char *serve_page(void) {
    return page_text("serve");
}

ist_status serve_page_policy(char *policy, size_t size, ist_error *err) {
    char script[PAGE_DIGEST], style[PAGE_DIGEST];
    IST_TRY(page_digest(serve_page(), "script", script, err));
    IST_TRY(page_digest(serve_page(), "style", style, err));
    int n = snprintf(policy, size,
                     "default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; connect-src 'self'; "
                     "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
                     script, style);
    return n < 0 || (size_t)n >= size ? ist_fail(err, IST_E_STATE, "the page's policy is too long") : IST_OK;
}
