/* Tiles of the portable source differ in their sizes only, and PoCL compiles each anew, large ones for seconds: fewer
 * cases of all but one of them are enough. */
#ifndef IST_TESTS_TILES_H
#define IST_TESTS_TILES_H

#include "variants/variant.h"

#include <stdbool.h>
#include <string.h>

/* Whether the variant is such a tile, and not the one of that name. */
static inline bool is_another_tile(const ist_variant *v, const char *one) {
    return v->machine == IST_MACHINE_PORTABLE && v->sources && strstr(v->sources, "portable/conv_tile") &&
           strcmp(v->name, one);
}

#endif
