/* The pages that the build embeds, apps/NAME.html. Script and style stand in a page, so that its policy names them by
 * their digests, and nothing that a name in the page smuggles in runs. */
#ifndef PAGE_H
#define PAGE_H

#include "io/text.h"

/* apps/NAME.html, as a static string. */
const char *page_text(const char *name);

/* Bytes in base 64. */
void page_put_base64(ist_text *out, const unsigned char *bytes, size_t count);

enum { PAGE_DIGEST = (32 + 2) / 3 * 4 + 1 };

/* SHA-256 in base 64 of what stands between <element> and </element>, as a Content-Security-Policy wants it. */
ist_status page_digest(const char *page, const char *element, char out[PAGE_DIGEST], ist_error *err);

#endif
