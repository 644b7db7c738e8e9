/* Joining programs: see join.h. The scanner below reads just enough OpenCL C to find what a file declares at file scope
 * and which macros it defines. What it misses ends in a failed build, and programs are then built one by one. */
#include "device/join.h"

#include "base/mem.h"
#include "device/sources.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text that grows ---- */

typedef struct text {
    char *data;
    size_t length, capacity;
    bool failed;
} text;

static void put(text *t, const char *s, size_t n) {
    if (t->failed || !ist_grow((void **)&t->data, &t->capacity, t->length + n + 1, 1)) {
        t->failed = true;
        return;
    }
    memcpy(t->data + t->length, s, n);
    t->data[t->length += n] = '\0';
}

IST_PRINTF(2, 3) static void put_line(text *t, const char *fmt, ...) {
    char line[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof line)
        t->failed = true;
    else
        put(t, line, (size_t)n);
}

/* ---- sets of names ---- */

typedef struct name {
    const char *at; /* into the source */
    int length;
} name;

typedef struct name_set {
    name *items;
    size_t count, capacity;
    bool failed;
} name_set;

static bool has(const name_set *s, name n) {
    for (size_t i = 0; i < s->count; i++)
        if (s->items[i].length == n.length && !memcmp(s->items[i].at, n.at, (size_t)n.length)) return true;
    return false;
}

static void add(name_set *s, name n) {
    if (s->failed || has(s, n)) return;
    if (!ist_grow((void **)&s->items, &s->capacity, s->count + 1, sizeof *s->items))
        s->failed = true;
    else
        s->items[s->count++] = n;
}

static bool is(name n, const char *word) {
    return (size_t)n.length == strlen(word) && !memcmp(n.at, word, (size_t)n.length);
}

/* ---- the scanner ---- */

static bool starts_name(char c) {
    return isalpha((unsigned char)c) || c == '_';
}

static name read_name(const char *p) {
    name n = {p, 0};
    while (isalnum((unsigned char)p[n.length]) || p[n.length] == '_') n.length++;
    return n;
}

/* Behind white space and comments. */
static const char *skip_blank(const char *p) {
    for (;;) {
        while (isspace((unsigned char)*p) || (*p == '\\' && p[1] == '\n')) p++;
        if (p[0] == '/' && p[1] == '*') {
            const char *end = strstr(p + 2, "*/");
            p = end ? end + 2 : p + strlen(p);
        } else if (p[0] == '/' && p[1] == '/') {
            p += strcspn(p, "\n");
        } else {
            return p;
        }
    }
}

/* A directive with its continuation lines; the name of a #define is added to `macros`. */
static const char *skip_directive(const char *p, name_set *macros) {
    p++;
    while (*p == ' ' || *p == '\t') p++;
    if (!strncmp(p, "define", 6)) {
        const char *q = p + 6;
        while (*q == ' ' || *q == '\t') q++;
        add(macros, read_name(q));
    }
    for (; *p && *p != '\n'; p++)
        if (*p == '\\' && p[1] == '\n')
            p++;
        else if (p[0] == '/' && p[1] == '*') {
            const char *end = strstr(p + 2, "*/");
            if (end) p = end + 1;
        }
    return p;
}

typedef struct scan {
    int braces, parens;
    bool in_typedef, in_macro; /* between typedef and ';'; in the parentheses of a macro at file scope */
    name last;
} scan;

/* A name outside of all braces: whether it is one that the file declares. */
static void take_name(scan *s, name n, const name_set *macros, name_set *declared) {
    const char *next = skip_blank(n.at + n.length);
    bool tag = is(s->last, "struct") || is(s->last, "union") || is(s->last, "enum");
    if (s->parens) {
        if (s->in_macro) add(declared, n); /* DEFINE_PART(input_part, ...): the first argument is what it declares */
        s->in_macro = false;
    } else if (is(n, "typedef")) {
        s->in_typedef = true;
    } else if (*next == '(' && has(macros, n)) {
        s->in_macro = true;
    } else if (*next == '(' ? !is(n, "__attribute__")
                            : strchr(";=[", *next) || (*next == '{' && tag) ||
                                  (s->in_typedef && !strncmp(next, "__attribute__", 13))) {
        add(declared, n);
    }
    s->last = n;
}

static void scan_source(const char *p, name_set *macros, name_set *declared) {
    scan s = {.last = {"", 0}};
    while (*(p = skip_blank(p))) {
        if (*p == '#') {
            p = skip_directive(p, macros);
            continue;
        }
        if (starts_name(*p)) {
            name n = read_name(p);
            if (!s.braces) take_name(&s, n, macros, declared);
            p += n.length;
            continue;
        }
        if (isdigit((unsigned char)*p)) {
            while (isalnum((unsigned char)*p) || *p == '.' || *p == '_') p++;
            continue;
        }
        s.braces += (*p == '{') - (*p == '}');
        s.parens += (*p == '(') - (*p == ')');
        if (*p == ')' || *p == ',') s.in_macro = false;
        if (*p == ';' && !s.braces) s.in_typedef = false;
        p++;
    }
}

/* ---- parts ---- */

static const char *source_text(const char *source) {
    for (const ist_source *s = ist_sources; s->name; s++)
        if (!strcmp(s->name, source)) return s->text;
    return NULL;
}

/* The next -D option of *options as name and value, in either spelling; false at the end, or (with *bad) at anything
 * else. */
static bool next_define(const char **options, name *key, name *value, bool *bad) {
    const char *p = *options + strspn(*options, " ");
    if (!*p) return false;
    *bad = strncmp(p, "-D", 2) != 0;
    if (*bad) return false;
    p += 2 + strspn(p + 2, " ");
    *key = read_name(p);
    p += key->length;
    *value = (name){"1", 1};
    if (*p == '=') *value = (name){p + 1, (int)strcspn(p + 1, " ")}, p += 1 + value->length;
    *bad = !key->length || (*p && *p != ' ');
    *options = p;
    return !*bad;
}

/* The one option that the prelude looks at. */
static bool half_storage(const char *options) {
    name key, value;
    bool bad = false;
    while (next_define(&options, &key, &value, &bad))
        if (is(key, "IST_HALF")) return true;
    return false;
}

static void put_part(text *out, const ist_program_part *part, int number, bool *bad) {
    const char *sources[2] = {part->isa, part->op};
    name_set macros = {0}, declared = {0};
    name key, value;
    for (const char *o = part->defines; next_define(&o, &key, &value, bad);) {
        if (is(key, "IST_HALF")) continue;
        put_line(out, "\n#define %.*s %.*s", key.length, key.at, value.length, value.at);
        add(&macros, key);
    }
    for (int i = 0; i < 2 && !*bad; i++) {
        const char *source = sources[i] ? source_text(sources[i]) : "";
        *bad = !source;
        if (source) scan_source(source, &macros, &declared);
    }
    for (size_t i = 0; i < declared.count; i++)
        put_line(out, "\n#define %.*s %.*s_%d", declared.items[i].length, declared.items[i].at,
                 declared.items[i].length, declared.items[i].at, number);
    for (int i = 0; i < 2 && !*bad; i++) {
        if (!sources[i]) continue;
        put_line(out, "\n#line 1 \"%s.cl\"\n", sources[i]);
        put(out, source_text(sources[i]), strlen(source_text(sources[i])));
    }
    for (size_t i = 0; i < declared.count; i++)
        put_line(out, "\n#undef %.*s", declared.items[i].length, declared.items[i].at);
    for (size_t i = 0; i < macros.count; i++)
        put_line(out, "\n#undef %.*s", macros.items[i].length, macros.items[i].at);
    if (macros.failed || declared.failed) out->failed = true;
    free(macros.items);
    free(declared.items);
}

char *ist_join_text(const ist_program_part *parts, int count) {
    text out = {0};
    bool bad = false, half = count > 0 && half_storage(parts[0].defines);
    const char *prelude = source_text("prelude");
    if (half) put_line(&out, "#define IST_HALF 1\n");
    put(&out, prelude, strlen(prelude));
    for (int i = 0; i < count && !bad; i++) {
        bad = half_storage(parts[i].defines) != half;
        put_part(&out, &parts[i], i, &bad);
    }
    if (bad || out.failed) {
        free(out.data);
        return NULL;
    }
    put(&out, "\n", 1);
    return out.data;
}

void ist_join_kernel(const char *kernel, int part, char out[IST_JOIN_NAME]) {
    snprintf(out, IST_JOIN_NAME, "%s_%d", kernel, part);
}
