/* Reading JSON in tests. */
#ifndef IST_TESTS_JSON_H
#define IST_TESTS_JSON_H

#include <criterion/criterion.h>
#include <jansson.h>

/* A JSON file; the caller releases it. */
static inline json_t *load_json(const char *path) {
    json_error_t at;
    json_t *root = json_load_file(path, 0, &at);
    cr_assert_not_null(root, "%s: %s", path, at.text);
    return root;
}

/* The text under a key, "" where there is none. */
static inline const char *text_at(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

#endif
