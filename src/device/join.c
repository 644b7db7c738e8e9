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

static const ist_source *source_of(name n) {
    for (const ist_source *s = ist_sources; s->name; s++)
        if (is(n, s->name)) return s;
    return NULL;
}

/* The sources of a part, isa's ("a+b") first; 0: one of them is not there, or they are too many. */
enum { MOST_SOURCES = 6 };
static int sources_of(const ist_program_part *part, const ist_source *sources[MOST_SOURCES]) {
    int count = 0;
    for (const char *isa = part->isa ? part->isa : ""; *isa; isa += strcspn(isa, "+"), isa += *isa == '+') {
        if (count == MOST_SOURCES - 1) return 0;
        sources[count++] = source_of((name){isa, (int)strcspn(isa, "+")});
    }
    sources[count++] = source_of((name){part->op, (int)strlen(part->op)});
    for (int i = 0; i < count; i++)
        if (!sources[i]) return 0;
    return count;
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

/* Whether the structs of codes/args have a member of this name, or an enumerator: what a part declares must not, since
 * renaming it would rename the member where it is used. */
static bool in_args(name n) {
    for (const char *p = source_of((name){"codes/args", 10})->text; *(p = skip_blank(p));) {
        name word = read_name(p);
        if (word.length == n.length && !memcmp(word.at, n.at, (size_t)n.length)) return true;
        p += word.length ? word.length : 1;
    }
    return false;
}

static void put_part(text *out, const ist_program_part *part, int number, bool *bad) {
    const ist_source *sources[MOST_SOURCES];
    const int count = sources_of(part, sources);
    name_set macros = {0}, declared = {0};
    name key, value;
    for (const char *o = part->defines; next_define(&o, &key, &value, bad);) {
        if (is(key, "IST_HALF")) continue;
        put_line(out, "\n#define %.*s %.*s", key.length, key.at, value.length, value.at);
        add(&macros, key);
    }
    if (!count) *bad = true;
    for (int i = 0; i < count && !*bad; i++) scan_source(sources[i]->text, &macros, &declared);
    for (size_t i = 0; i < declared.count; i++)
        if (in_args(declared.items[i])) *bad = true;
    for (size_t i = 0; i < declared.count; i++)
        put_line(out, "\n#define %.*s %.*s_%d", declared.items[i].length, declared.items[i].at,
                 declared.items[i].length, declared.items[i].at, number);
    for (int i = 0; i < count && !*bad; i++) {
        put_line(out, "\n#line 1 \"%s.cl\"\n", sources[i]->name);
        put(out, sources[i]->text, strlen(sources[i]->text));
    }
    for (size_t i = 0; i < declared.count; i++)
        put_line(out, "\n#undef %.*s", declared.items[i].length, declared.items[i].at);
    for (size_t i = 0; i < macros.count; i++)
        put_line(out, "\n#undef %.*s", macros.items[i].length, macros.items[i].at);
    if (macros.failed || declared.failed) out->failed = true;
    free(macros.items);
    free(declared.items);
}

/* The prelude for programs with these options. */
static void put_prelude(text *out, bool half) {
    static const char *const sources[] = {"codes/act", "codes/args", "prelude"};
    if (half) put_line(out, "#define IST_HALF 1\n");
    for (int i = 0; i < 3; i++) {
        const char *source = source_of((name){sources[i], (int)strlen(sources[i])})->text;
        put(out, source, strlen(source));
    }
}

/* What there is, if it is whole. */
static char *text_of(text *out, bool bad) {
    put(out, "\n", 1);
    if (!bad && !out->failed) return out->data;
    free(out->data);
    return NULL;
}

char *ist_join_text(const ist_program_part *parts, int count) {
    text out = {0};
    bool bad = false, half = count > 0 && half_storage(parts[0].defines);
    put_prelude(&out, half);
    for (int i = 0; i < count && !bad; i++) {
        bad = half_storage(parts[i].defines) != half;
        put_part(&out, &parts[i], i, &bad);
    }
    return text_of(&out, bad);
}

void ist_join_kernel(const char *kernel, int part, char out[IST_JOIN_NAME]) {
    snprintf(out, IST_JOIN_NAME, "%s_%d", kernel, part);
}

/* ---- series ---- */

int ist_series_words(const ist_series_part *part, char kind) {
    return kind == 's' ? part->type_words : kind == 'p' ? 2 : kind == '8' ? 8 : kind == '4' || kind == 'v' ? 4 : 1;
}

/* The call of part i with what the tape has from t[1] on. */
static void put_call(text *out, const ist_series_part *part, int i) {
    char function[IST_JOIN_NAME];
    ist_join_kernel(part->kernel, i, function);
    put_line(out, "        case %d: %s(", i, function);
    int at = 1;
    for (const char *k = part->kinds; *k; at += ist_series_words(part, *k++)) {
        if (*k == 's') {
            put_line(out, "%s*(__global const %s *)(t + %d)", at > 1 ? ", " : "", part->type, at);
            continue;
        }
        const char *form = *k == 'p'   ? "PLACE"
                           : *k == 'i' ? "INT1"
                           : *k == 'f' ? "FLOAT1"
                           : *k == '4' ? "INT4"
                           : *k == '8' ? "INT8"
                                       : "FLOAT4";
        put_line(out, "%s%s(%d)", at > 1 ? ", " : "", form, at);
    }
    put_line(out, "); break;\n");
}

/* The kernel: each group takes all steps, and the last to leave clears the counters. */
static void put_series(text *out, const ist_series_part *parts, int count, int words, int bases) {
    put_line(out, "\n#define PLACE(i) ((__global void *)(base[t[i]] + (size_t)(uint)t[(i) + 1]))\n");
    put_line(out, "#define INT1(i) t[i]\n#define INT4(i) vload4(0, t + (i))\n#define INT8(i) vload8(0, t + (i))\n");
    put_line(out, "#define FLOAT1(i) as_float(t[i])\n#define FLOAT4(i) as_float4(vload4(0, t + (i)))\n");
    put_line(out, "__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void series(__global const int *tape");
    for (int i = 0; i < bases; i++) put_line(out, ", __global float *b%d", i);
    put_line(out, ") {\n    __global float *base[%d] = {", bases + 1);
    for (int i = 0; i < bases; i++) put_line(out, "b%d, ", i);
    put_line(out, "0};\n    __global const int *t = tape + %d;\n", IST_SERIES_HEAD);
    put_line(out, "    for (int i = 0; i < tape[0]; i++, t += %d)\n        switch (t[0]) {\n", words);
    for (int i = 0; i < count; i++) put_call(out, &parts[i], i);
    put_line(out, "        }\n    if (tape[0] == 0) return;\n    t = tape;\n");
    put_line(out, "    volatile __global int *counters = PLACE(1);\n    const int last = tape[3] - 1;\n");
    put_line(out, "    if (atomic_inc(counters + last) + 1 < (int)get_num_groups(0)) return;\n");
    put_line(out, "    for (int i = 0; i <= last; i++) counters[i] = 0;\n}\n");
}

char *ist_series_text(const ist_series_part *parts, int count, int words, int bases) {
    text out = {0};
    bool bad = false, half = count > 0 && half_storage(parts[0].part.defines);
    put_line(&out, "#define IST_SERIES 1\n");
    put_prelude(&out, half);
    /* kernels become functions, whose attribute is empty */
    put_line(&out, "\n#define __kernel static inline\n#define reqd_work_group_size(x, y, z)\n");
    for (int i = 0; i < count && !bad; i++) {
        bad = half_storage(parts[i].part.defines) != half;
        put_part(&out, &parts[i].part, i, &bad);
    }
    put_line(&out, "\n#undef __kernel\n#undef reqd_work_group_size\n");
    put_series(&out, parts, count, words, bases);
    return text_of(&out, bad);
}
