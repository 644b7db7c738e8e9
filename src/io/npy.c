/* NumPy files: see npy.h. The header is the text of a Python dictionary; only what NumPy itself writes is understood.
 */
#include "io/npy.h"

#include "io/atomic_file.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC = 6, VERSION = 2, MOST_HEADER = 4096 };

static ist_status bad(const char *source, const char *sentence, ist_error *err) {
    return ist_fail(err, IST_E_INPUT, "%s: %s", source, sentence);
}

/* What stands behind 'KEY': in the header; NULL when the key is not there. */
static const char *value_of(const char *header, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *at = strstr(header, quoted);
    if (!at) return NULL;
    at += strlen(quoted);
    at += strspn(at, " ");
    if (*at != ':') return NULL;
    return at + 1 + strspn(at + 1, " ");
}

/* "(1, 256, 256)" */
static bool read_shape(const char *text, int *height, int *width) {
    long sides[3];
    int count = 0;
    if (*text++ != '(') return false;
    while (count < 3 && *text != ')') {
        char *end;
        text += strspn(text, " ");
        if (*text < '0' || *text > '9') return false;
        sides[count] = strtol(text, &end, 10);
        if (sides[count] < 1 || sides[count] > IST_NPY_SIDE) return false;
        count++;
        text = end + strspn(end, " ");
        if (*text == ',')
            text++;
        else if (*text != ')')
            return false;
        text += strspn(text, " ");
    }
    if (*text != ')' || count < 2 || (count == 3 && sides[0] != 1)) return false;
    *height = (int)sides[count - 2];
    *width = (int)sides[count - 1];
    return true;
}

static ist_status read_header(const char *header, const char *source, ist_npy *map, ist_error *err) {
    const char *type = value_of(header, "descr"), *order = value_of(header, "fortran_order");
    const char *shape = value_of(header, "shape");
    if (!type || !order || !shape) return bad(source, "its NumPy header lacks descr, fortran_order or shape", err);
    if (strncmp(type, "'<f4'", 5)) return bad(source, "its values are not float32 ('<f4')", err);
    if (strncmp(order, "False", 5)) return bad(source, "it is stored in Fortran order", err);
    if (!read_shape(shape, &map->height, &map->width))
        return ist_fail(err, IST_E_INPUT, "%s: its shape is not (h, w) or (1, h, w) with sides of 1 to %d", source,
                        IST_NPY_SIDE);
    return IST_OK;
}

/* Bytes before the header's text, and of it; false when the file ends before. */
static bool find_header(const unsigned char *b, size_t count, size_t *first, size_t *length) {
    if (count < MAGIC + VERSION + 4 || b[MAGIC] < 1 || b[MAGIC] > 3) return false;
    const unsigned char *size = b + MAGIC + VERSION;
    *length = (size_t)size[0] | (size_t)size[1] << 8;
    *first = MAGIC + VERSION + 2;
    if (b[MAGIC] > 1) {
        *length |= (size_t)size[2] << 16 | (size_t)size[3] << 24;
        *first += 2;
    }
    return *length <= MOST_HEADER && *length <= count - *first;
}

ist_status ist_npy_parse(const void *bytes, size_t count, const char *source, ist_npy *map, ist_error *err) {
    char header[MOST_HEADER + 1];
    size_t first, length;
    *map = (ist_npy){0};
    if (count < MAGIC || memcmp(bytes, "\x93NUMPY", MAGIC)) return bad(source, "is no NumPy file (.npy)", err);
    if (!find_header(bytes, count, &first, &length)) return bad(source, "its NumPy header is damaged", err);
    memcpy(header, (const char *)bytes + first, length);
    header[length] = '\0';
    ist_npy found = {0};
    IST_TRY(read_header(header, source, &found, err));
    size_t values = (size_t)found.width * (size_t)found.height, have = count - first - length;
    if (have != values * sizeof(float))
        return ist_fail(err, IST_E_INPUT, "%s: %zu bytes of values, %d x %d need %zu", source, have, found.height,
                        found.width, values * sizeof(float));
    if (!(found.values = malloc(have))) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", source);
    memcpy(found.values, (const char *)bytes + first + length, have);
    *map = found;
    return IST_OK;
}

ist_status ist_npy_read(const char *path, ist_npy *map, ist_error *err) {
    char *bytes = NULL;
    size_t count = 0;
    *map = (ist_npy){0};
    IST_TRY(ist_read_file(path, sizeof(float) * IST_NPY_SIDE * IST_NPY_SIDE + 2 * MOST_HEADER, &bytes, &count, err));
    ist_status status = ist_npy_parse(bytes, count, path, map, err);
    free(bytes);
    return status;
}

void ist_npy_free(ist_npy *map) {
    free(map->values);
    *map = (ist_npy){0};
}
