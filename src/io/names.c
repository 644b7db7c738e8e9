/* Lists of class names from text, JSON or YAML of the simple kind: see labels.h. */
#include "io/labels.h"

#include "io/atomic_file.h"

#include "base/mem.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A model has at most a few thousand classes; more is not a names file. */
#define MAX_NAMES       65536
#define MAX_NAMES_BYTES ((size_t)16 << 20)

typedef struct name_list {
    char **names;
    size_t count, capacity;
    const char *source;
    ist_error *err;
} name_list;

void ist_names_free(char ***names, size_t count) {
    if (!*names) return;
    for (size_t i = 0; i < count; i++) free((*names)[i]);
    free(*names);
    *names = NULL;
}

/* Appends a copy of [begin, end) without surrounding blanks and one pair of quotes. */
static ist_status add_name(name_list *list, const char *begin, const char *end) {
    while (begin < end && isspace((unsigned char)*begin)) begin++;
    while (end > begin && isspace((unsigned char)end[-1])) end--;
    if (end - begin >= 2 && (*begin == '"' || *begin == '\'') && end[-1] == *begin) begin++, end--;
    if (begin == end) return ist_fail(list->err, IST_E_INPUT, "%s: name %zu is empty", list->source, list->count);
    if (list->count >= MAX_NAMES)
        return ist_fail(list->err, IST_E_LIMIT, "%s: more than %d names", list->source, MAX_NAMES);
    size_t n = (size_t)(end - begin);
    char *copy = malloc(n + 1);
    if (!copy || !ist_grow((void **)&list->names, &list->capacity, list->count + 1, sizeof *list->names)) {
        free(copy);
        return ist_fail(list->err, IST_E_MEMORY, "%s: out of memory", list->source);
    }
    memcpy(copy, begin, n);
    copy[n] = '\0';
    list->names[list->count++] = copy;
    return IST_OK;
}

/* A value of YAML: what follows the closing quote, or a blank and '#', is no part of it. */
static ist_status add_value(name_list *list, const char *begin, const char *end) {
    while (begin < end && isspace((unsigned char)*begin)) begin++;
    bool quoted = begin < end && (*begin == '"' || *begin == '\'');
    const char *p = quoted ? memchr(begin + 1, *begin, (size_t)(end - begin - 1)) : begin;
    if (quoted) return add_name(list, begin, p ? p + 1 : end);
    while (p < end && !(*p == '#' && (p == begin || isspace((unsigned char)p[-1])))) p++;
    return add_name(list, begin, p);
}

/* `7: name`, of which the number says no more than that the names are in order. */
static ist_status add_numbered(name_list *list, const char *begin, const char *end) {
    while (begin < end && (isspace((unsigned char)*begin) || *begin == '"' || *begin == '\'')) begin++;
    const char *colon = begin;
    size_t index = 0;
    for (; colon < end && isdigit((unsigned char)*colon) && index <= MAX_NAMES; colon++)
        index = 10 * index + (size_t)(*colon - '0');
    bool number = colon > begin && index == list->count;
    while (colon < end && (*colon == '"' || *colon == '\'')) colon++;
    if (!number || colon == end || *colon != ':')
        return ist_fail(list->err, IST_E_INPUT, "%s: expected '%zu: name'", list->source, list->count);
    return add_value(list, colon + 1, end);
}

static bool is_blank(const char *begin, const char *end) {
    while (begin < end && isspace((unsigned char)*begin)) begin++;
    return begin == end;
}

static ist_status parse_array(name_list *list, const json_t *root) {
    size_t i;
    json_t *item;
    json_array_foreach(root, i, item) {
        const char *name = json_string_value(item);
        if (!name) return ist_fail(list->err, IST_E_INPUT, "%s: element %zu is not a string", list->source, i);
        IST_TRY(add_name(list, name, name + strlen(name)));
    }
    return IST_OK;
}

static ist_status parse_json(name_list *list, const char *text, size_t length) {
    json_error_t error;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!root) return ist_fail(list->err, IST_E_INPUT, "%s: line %d: %s", list->source, error.line, error.text);
    ist_status status = parse_array(list, root);
    json_decref(root);
    return status;
}

/* The keys 0, 1, ... in any order. */
static ist_status parse_object(name_list *list, const json_t *root) {
    for (size_t i = 0; i < json_object_size(root); i++) {
        char key[24];
        snprintf(key, sizeof key, "%zu", i);
        const char *name = json_string_value(json_object_get(root, key));
        if (!name) return ist_fail(list->err, IST_E_INPUT, "%s: expected '%zu: name'", list->source, i);
        IST_TRY(add_name(list, name, name + strlen(name)));
    }
    return IST_OK;
}

static const char *line_end(const char *p, const char *end) {
    const char *newline = memchr(p, '\n', (size_t)(end - p));
    return newline ? newline : end;
}

/* `[a, 'b', "c"]` or `{0: a, 1: 'b'}`; commas inside of quotes do not separate, one before the end adds nothing. */
static ist_status parse_inline(name_list *list, const char *p, const char *end) {
    ist_status (*add)(name_list *, const char *, const char *) = *p == '{' ? add_numbered : add_value;
    const char close = *p == '{' ? '}' : ']', *begin = ++p;
    char quote = 0;
    for (; p < end; p++) {
        if (quote ? *p == quote : *p == '"' || *p == '\'') {
            quote = quote ? 0 : *p;
        } else if (!quote && (*p == ',' || *p == close)) {
            if (*p == close && is_blank(begin, p)) return IST_OK;
            IST_TRY(add(list, begin, p));
            begin = p + 1;
            if (*p == close) return IST_OK;
        }
    }
    return ist_fail(list->err, IST_E_INPUT, "%s: the list of names has no end", list->source);
}

/* `- name` or `7: name`, in order from 0, until a line that is not indented and not dashed. */
static ist_status parse_block_list(name_list *list, const char *p, const char *end) {
    for (; p < end; p = line_end(p, end) + 1) {
        const char *stop = line_end(p, end), *q = p;
        while (q < stop && isspace((unsigned char)*q)) q++;
        if (q == stop || *q == '#') continue;
        const char *key = *q == '"' || *q == '\'' ? q + 1 : q;
        if (*q == '-') {
            IST_TRY(add_value(list, q + 1, stop));
        } else if (q > p && key < stop && isdigit((unsigned char)*key)) {
            IST_TRY(add_numbered(list, q, stop));
        } else {
            break;
        }
    }
    return IST_OK;
}

static ist_status parse_lines(name_list *list, const char *p, const char *end) {
    while (end > p && isspace((unsigned char)end[-1])) end--;
    for (; p < end; p = line_end(p, end) + 1) IST_TRY(add_name(list, p, line_end(p, end)));
    return IST_OK;
}

/* Where the value of a top-level `names:` begins, or NULL. */
static const char *find_names_key(const char *p, const char *end) {
    for (; p < end; p = line_end(p, end) + 1)
        if (end - p >= 6 && !memcmp(p, "names:", 6)) return p + 6;
    return NULL;
}

/* A file that begins with '{', at `p`: JSON, of which `names` is what counts if it is there, or YAML, which needs no
 * quotes. */
static ist_status parse_mapping(name_list *list, const char *text, const char *p, const char *end) {
    json_t *root = json_loadb(text, (size_t)(end - text), JSON_REJECT_DUPLICATES, NULL);
    if (!root) return parse_inline(list, p, end);
    const json_t *inner = json_object_get(root, "names"), *names = inner ? inner : root;
    ist_status status = json_is_array(names) ? parse_array(list, names) : parse_object(list, names);
    json_decref(root);
    return status;
}

static ist_status parse_any(name_list *list, const char *text, size_t length) {
    static const char mark[] = "\xEF\xBB\xBF"; /* of UTF-8, which some editors put in front */
    if (length >= 3 && !memcmp(text, mark, 3)) text += 3, length -= 3;
    const char *end = text + length, *p = text, *value = find_names_key(text, end);
    if (memchr(text, '\0', length)) return ist_fail(list->err, IST_E_INPUT, "%s: is not a text file", list->source);
    while (p < end && isspace((unsigned char)*p)) p++;
    if (p < end && *p == '[') return parse_json(list, text, length);
    if (p < end && *p == '{') return parse_mapping(list, text, p, end);
    if (!value) return parse_lines(list, text, end);
    while (value < end && (*value == ' ' || *value == '\t')) value++;
    if (value < end && (*value == '[' || *value == '{')) return parse_inline(list, value, end);
    return parse_block_list(list, line_end(value, end), end);
}

ist_status ist_names_parse(const char *text, size_t length, const char *source, char ***names, size_t *count,
                           ist_error *err) {
    name_list list = {.source = source, .err = err};
    *names = NULL;
    *count = 0;
    ist_status status = parse_any(&list, text, length);
    if (!status && !list.count) status = ist_fail(err, IST_E_INPUT, "%s: there are no names in it", source);
    if (status) {
        ist_names_free(&list.names, list.count);
        return status;
    }
    *names = list.names;
    *count = list.count;
    return IST_OK;
}

ist_status ist_names_read(const char *path, char ***names, size_t *count, ist_error *err) {
    char *text = NULL;
    size_t length = 0;
    IST_TRY(ist_read_file(path, MAX_NAMES_BYTES, &text, &length, err));
    ist_status status = ist_names_parse(text, length, path, names, count, err);
    free(text);
    return status;
}
