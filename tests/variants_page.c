/* Prints docs/variants.md: the table of kernel variants, with the kernel sources and the test of each. Fails when a kind
 * has no test, a test is of no kind, or a file that is named does not exist. */
#include "variants/variant.h"

#include <stdio.h>
#include <string.h>

/* The test of each kind: tests/NAME.c. */
static const struct { const char *kind, *test; } tests[] = {
#define T(kind, test) {kind, test},
#include "variants_tests.inc"
#undef T
};

enum { TESTS = sizeof tests / sizeof *tests };

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

static int test_of(ist_node_kind kind) {
    for (int i = 0; i < TESTS; i++)
        if (!strcmp(tests[i].kind, ist_kind_of(kind)->name)) return i;
    return -1;
}

static int check(void) {
    bool tested[TESTS] = {false};
    int bad = 0;
    for (int i = 0; i < ist_variant_count(); i++) {
        const ist_variant *v = ist_variant_at(i);
        int t = test_of(v->kind);
        if (t < 0) bad |= complain("no test for", ist_kind_of(v->kind)->name, "");
        if (v->sources) bad |= check_sources(v->sources);
        if (t >= 0) tested[t] = true;
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
    printf("| %s | %s | ", ist_machine_name(v->machine), v->name);
    print_caps("", v->needs);
    print_caps("no:", v->without);
    printf("| %s | %s |\n", storage[v->storage], v->sources ? v->sources : "its parts");
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
