/* TOML files of tables that hold words, numbers, booleans and lists of these; read by the C++ library toml++. */
#ifndef TOML_FILE_H
#define TOML_FILE_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "base/status.h"

typedef enum toml_kind { TOML_STRING, TOML_NUMBER, TOML_BOOLEAN, TOML_OTHER } toml_kind;

typedef struct toml_value {
    toml_kind kind;
    const char *text; /* numbers: the shortest decimal that says the same; booleans: "true" or "false" */
} toml_value;

/* A key of a table, or (table NULL) one outside of all. A table without a key has a NULL name. */
typedef struct toml_key {
    const char *table, *name;
    int line, column; /* from 1 */
    bool list;
    const toml_value *values; /* one, or the list's */
    size_t count;
} toml_key;

/* Called for each key in the order of the file; what `key` points to is gone when it returns. Anything but IST_OK ends
 * the reading. */
typedef ist_status toml_visit(void *arg, const toml_key *key, ist_error *err);

/* IST_E_INPUT with "PATH:LINE: " and a sentence when the bytes are no TOML, IST_E_MEMORY, or what `visit` returns. */
ist_status toml_read(const char *bytes, size_t count, const char *path, toml_visit *visit, void *arg, ist_error *err);

/* Version of the library. */
const char *toml_version(void);

#ifdef __cplusplus
}
#endif

#endif
