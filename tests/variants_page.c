/* Prints docs/variants.md: the table of kernel variants, with the kernel sources and the test of each. Fails when a
 * variant has no line here, a line is for no variant, or a file that is named does not exist. */
#include "variants/variant.h"

#include <stdio.h>
#include <string.h>

#define PARTS "" /* made of smaller nodes, or constants only */

/* The sources in cl/ of variants of a machine and kind whose names begin with `name`: the first line that fits. */
typedef struct source_line {
    ist_machine machine;
    const char *kind, *name, *sources;
} source_line;

static const source_line sources[] = {
#define P(kind, name, files) {IST_MACHINE_PORTABLE, kind, name, files},
#define C(kind, name, files) {IST_MACHINE_CPU, kind, name, files},
#define N(kind, name, files) {IST_MACHINE_NVIDIA, kind, name, files},
#define M(kind, name, files) {IST_MACHINE_MATRIX, kind, name, files},
#include "variants_page.inc"
#undef P
#undef C
#undef N
#undef M
};

/* The test of each kind: tests/NAME.c. */
static const struct { const char *kind, *test; } tests[] = {
#define T(kind, test) {kind, test},
#include "variants_tests.inc"
#undef T
};

enum { SOURCES = sizeof sources / sizeof *sources, TESTS = sizeof tests / sizeof *tests };

static int complain(const char *what, const char *a, const char *b) {
    fprintf(stderr, "variants_page: %s: %s %s\n", what, a, b);
    return 1;
}

static int check_file(const char *folder, const char *name, size_t length, const char *extension) {
    char path[500];
    snprintf(path, sizeof path, "%s/%s/%.*s.%s", IST_SOURCE_DIR, folder, (int)length, name, extension);
    FILE *f = fopen(path, "r");
    if (!f) return complain("no such file", folder, name);
    fclose(f);
    return 0;
}

/* "cpu/conv cpu/tile": all of them exist. */
static int check_sources(const char *list) {
    int bad = 0;
    for (const char *p = list; *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        bad |= check_file("cl", p, n, "cl");
        p += n;
    }
    return bad;
}

static int source_of(const ist_variant *v) {
    const char *kind = ist_kind_of(v->kind)->name;
    for (int i = 0; i < SOURCES; i++)
        if (sources[i].machine == v->machine && !strcmp(sources[i].kind, kind) &&
            !strncmp(v->name, sources[i].name, strlen(sources[i].name)))
            return i;
    return -1;
}

static int test_of(ist_node_kind kind) {
    for (int i = 0; i < TESTS; i++)
        if (!strcmp(tests[i].kind, ist_kind_of(kind)->name)) return i;
    return -1;
}

static int check(void) {
    bool used[SOURCES] = {false}, tested[TESTS] = {false};
    int bad = 0;
    for (int i = 0; i < ist_variant_count(); i++) {
        const ist_variant *v = ist_variant_at(i);
        int s = source_of(v), t = test_of(v->kind);
        if (s < 0) bad |= complain("no kernel sources for", ist_kind_of(v->kind)->name, v->name);
        if (t < 0) bad |= complain("no test for", ist_kind_of(v->kind)->name, "");
        if (s >= 0) used[s] = true;
        if (t >= 0) tested[t] = true;
    }
    for (int i = 0; i < SOURCES; i++) {
        if (!used[i]) bad |= complain("sources of no variant", sources[i].kind, sources[i].name);
        bad |= check_sources(sources[i].sources);
    }
    for (int i = 0; i < TESTS; i++) {
        if (!tested[i]) bad |= complain("test of no kind", tests[i].kind, "");
        bad |= check_file("tests", tests[i].test, strlen(tests[i].test), "c");
    }
    return bad;
}

static void print_caps(const char *before, unsigned caps) {
    for (int bit = 0; bit < IST_CAP_COUNT; bit++)
        if (caps >> bit & 1) printf("%s%s ", before, ist_cap_name(bit));
}

static void print_variant(const ist_variant *v) {
    static const char *const storage[] = {"any", "half", "float", "float, exact", "bf16 products"};
    const char *list = sources[source_of(v)].sources;
    printf("| %s | %s | ", ist_machine_name(v->machine), v->name);
    print_caps("", v->needs);
    print_caps("no:", v->without);
    printf("| %s | %s |\n", storage[v->storage], *list ? list : "its parts");
}

int main(void) {
    if (check()) return 1;
    printf("# Kernel variants\n\nWritten by `variants_page` from `src/variants/table.inc`; change that, not this. "
           "Variants of a kind in the order\nof the table: where costs are equal the first that a device can run is taken. "
           "Sources are files `.cl` in `cl/`.\n");
    for (int i = 0; i < ist_variant_count(); i++) {
        const ist_variant *v = ist_variant_at(i);
        if (!i || ist_variant_at(i - 1)->kind != v->kind)
            printf("\n## %s%s\n\nTest: `tests/%s.c`\n\n| machine | variant | needs | storage | sources |\n"
                   "|---|---|---|---|---|\n",
                   ist_kind_of(v->kind)->name, v->kind > IST_NODE_LAST ? " (span)" : "", tests[test_of(v->kind)].test);
        print_variant(v);
    }
    return 0;
}
