/* Input as a text that is exactly as long as it claims, so that the address sanitizer sees a read behind it. */
#ifndef EXACT_TEXT_H
#define EXACT_TEXT_H

#include <stdlib.h>
#include <string.h>

/* malloc'd; NULL without memory. */
static inline char *exact_text(const void *data, size_t size) {
    char *text = malloc(size ? size : 1);
    if (text && size) memcpy(text, data, size);
    return text;
}

#endif
