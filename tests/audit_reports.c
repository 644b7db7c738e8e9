/* The writers: what a reader, a script, a review tool and a trace viewer get. */
#include "audit/report.h"
#include "support/made_up_log.h"

#include <jansson.h>
#include <stdlib.h>

typedef struct bench {
    ist_audit_log log;
    ist_audit_report report;
    ist_audit_verdict verdict;
} bench;

/* Three frames with a chain (lines 12, 13), a blocking write (line 10) and names that try to break out of JSON. */
static bench *make_bench(void) {
    bench *p = calloc(1, sizeof *p); /* the report points into it */
    cr_assert_not_null(p);
    p->log = made_log();
    ist_audit_budget budget;
    p->log.program = malloc(32);
    strcpy(p->log.program, "a \"program\"\n\x1b[31m\xff");
    for (uint64_t i = 0; i < 3; i++) {
        MADE_ADD(&p->log, WRITE, 10, .bytes = 100, .object = 1, .hash = 10 + i, .flags = IST_AUDIT_BLOCKING,
                 .wait_ms = 1.5);
        MADE_LAUNCH(&p->log, 11, "kernel\"1\"");
        MADE_ADD(&p->log, READ, 12, .bytes = 2048, .hash = 50 + i, .flags = IST_AUDIT_BLOCKING, .wait_ms = 2,
                 .move_ms = 0.25);
        MADE_ADD(&p->log, WRITE, 13, .bytes = 2048, .hash = 50 + i);
        MADE_ADD(&p->log, READ, 14, .bytes = 8, .hash = 99 + i, .flags = IST_AUDIT_BLOCKING);
    }
    p->report = made_judge(&p->log, NULL);
    p->verdict.text = "reads=1";
    cr_assert_eq(ist_audit_parse_budget(p->verdict.text, &budget, NULL), IST_OK);
    cr_assert_eq(ist_audit_check_budget(&p->report, &budget, &p->verdict.breach, NULL), IST_OK);
    return p;
}

static void free_bench(bench *b) {
    ist_audit_report_free(&b->report);
    ist_audit_log_free(&b->log);
    free(b);
}

typedef ist_status writer(const ist_audit_report *, const ist_audit_verdict *, FILE *, ist_error *);

static char *text_of(const bench *b, writer *write) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (write)
        cr_assert_eq(write(&b->report, &b->verdict, f, NULL), IST_OK);
    else
        ist_audit_write_text(&b->report, &b->verdict, f);
    cr_assert_eq(fclose(f), 0);
    return text;
}

static json_t *json_of(const bench *b, writer *write) {
    char *text = text_of(b, write);
    json_error_t at;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &at);
    cr_assert_not_null(root, "%s, line %d: %s", at.text, at.line, text);
    free(text);
    return root;
}

/* The value at a path such as "findings.0.line". */
static json_t *at(json_t *root, const char *path) {
    char key[64];
    while (root && *path) {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        root = json_is_array(root) ? json_array_get(root, (size_t)atoi(key)) : json_object_get(root, key);
        path += n + (path[n] == '.');
    }
    return root;
}

static void expect_string(json_t *root, const char *path, const char *want) {
    const char *have = json_string_value(at(root, path));
    cr_assert_not_null(have, "%s", path);
    cr_expect_str_eq(have, want, "%s is '%s', want '%s'", path, have, want);
}

static void expect_number(json_t *root, const char *path, double want) {
    cr_expect(json_is_number(at(root, path)), "%s is no number", path);
    cr_expect_float_eq(json_number_value(at(root, path)), want, 1e-9, "%s is %g, want %g", path,
                       json_number_value(at(root, path)), want);
}

Test(text, summary_first_then_the_worst_then_all) {
    bench *b = make_bench();
    char *text = text_of(b, NULL);
    const char *summary = strstr(text, "1 critical, 1 medium, 0 minor, 1 necessary");
    const char *worst = strstr(text, "\nworst\n"), *all = strstr(text, "\nall\n");
    cr_assert(summary && worst && all, "%s", text);
    cr_expect(summary < worst && worst < all);
    cr_expect_not_null(strstr(worst, "critical  read_write_chain: call_read at made.c:12 in step"));
    cr_expect_not_null(strstr(worst, "goes up again with call_write at made.c:13 in step"));
    const char *again = strstr(text, "goes up again");
    cr_expect_null(strstr(again + 1, "goes up again"), "said of other findings");
    cr_expect_not_null(strstr(text, "3 (pattern)"));
    cr_expect_not_null(
        strstr(text, "budget     broken: frame 1 has 2 reads, the budget allows 1: call_read at made.c:14"));
    cr_expect_null(strchr(text, 0x1b), "the terminal can be steered");
    free(text);
    free_bench(b);
}

Test(json, schema) {
    bench *b = make_bench();
    json_t *root = json_of(b, ist_audit_write_json);
    expect_number(root, "schema", 1);
    expect_string(root, "tool", "isthmus audit");
    expect_string(root, "frames.source", "pattern");
    expect_number(root, "frames.count", 3);
    expect_number(root, "frames.most.reads", 2);
    expect_number(root, "frames.most.waits", 3);
    expect_number(root, "total.h2d_bytes", 3 * (100 + 2048));
    expect_number(root, "severities.critical", 1);
    expect_number(root, "wait_ms", 10.5);
    expect_number(root, "dropped", 0);
    cr_expect(json_is_false(at(root, "budget.holds")));
    expect_number(root, "budget.line", 14);
    expect_string(root, "budget.what", "reads");
    expect_string(root, "findings.0.category", "read_write_chain");
    expect_string(root, "findings.0.severity", "critical");
    expect_string(root, "findings.0.file", "made.c");
    expect_number(root, "findings.0.line", 12);
    expect_string(root, "findings.0.entry", "call_read");
    expect_string(root, "findings.0.function", "step");
    expect_number(root, "findings.0.count", 3);
    expect_number(root, "findings.0.bytes", 3 * 4096);
    expect_number(root, "findings.0.move_ms", 0.75);
    expect_number(root, "findings.0.first_frame", 1);
    expect_number(root, "findings.0.chain.1.line", 13);
    cr_expect_eq(json_array_size(at(root, "findings")), 3);
    cr_expect_eq(json_array_size(at(root, "findings.1.chain")), 0);
    json_decref(root);
    free_bench(b);
}

Test(sarif, results_with_levels_and_places) {
    bench *b = make_bench();
    json_t *root = json_of(b, ist_audit_write_sarif);
    expect_string(root, "version", "2.1.0");
    expect_string(root, "runs.0.tool.driver.name", "isthmus audit");
    cr_expect_eq(json_array_size(at(root, "runs.0.results")), 3, "two findings and the budget");
    expect_string(root, "runs.0.results.0.ruleId", "read_write_chain");
    expect_string(root, "runs.0.results.0.level", "error");
    expect_string(root, "runs.0.results.0.locations.0.physicalLocation.artifactLocation.uri", "made.c");
    expect_number(root, "runs.0.results.0.locations.0.physicalLocation.region.startLine", 12);
    expect_number(root, "runs.0.results.0.relatedLocations.0.physicalLocation.region.startLine", 13);
    expect_string(root, "runs.0.results.1.level", "warning");
    expect_string(root, "runs.0.results.2.ruleId", "budget");
    size_t k, r;
    json_t *result, *rule;
    json_array_foreach(at(root, "runs.0.results"), k, result) {
        bool known = false;
        json_array_foreach(at(root, "runs.0.tool.driver.rules"), r, rule) known =
            known || json_equal(json_object_get(rule, "id"), json_object_get(result, "ruleId"));
        cr_expect(known, "result %zu has a rule that is not described", k);
    }
    json_decref(root);
    free_bench(b);
}

static ist_status write_trace(const ist_audit_report *r, const ist_audit_verdict *v, FILE *out, ist_error *err) {
    (void)v;
    return ist_audit_write_trace(r, out, err);
}

Test(trace, one_event_per_call_and_a_row_of_frames) {
    bench *b = make_bench();
    json_t *root = json_of(b, write_trace), *events = at(root, "traceEvents"), *e;
    size_t k, frames = 0, calls = 0;
    json_array_foreach(events, k, e) {
        if (strcmp(json_string_value(at(e, "ph")), "X")) continue;
        frames += json_integer_value(at(e, "tid")) == 0;
        calls += json_integer_value(at(e, "tid")) == 1;
    }
    cr_expect_eq(frames, 3);
    cr_expect_eq(calls, b->log.event_count);
    expect_string(root, "traceEvents.4.name", "call_write");
    expect_string(root, "traceEvents.4.cname", "bad");
    expect_number(root, "traceEvents.4.dur", 1500);
    expect_string(root, "traceEvents.5.args.what", "kernel\"1\"");
    json_decref(root);
    free_bench(b);
}

static void compare(const bench *b, const char *old, size_t want_added, size_t want_gone, const char *says) {
    size_t added = 99, gone = 99, size = 0;
    char *text = NULL;
    FILE *f = open_memstream(&text, &size);
    cr_assert_eq(ist_audit_compare(&b->report, old, strlen(old), f, &added, &gone, NULL), IST_OK);
    fclose(f);
    cr_expect_eq(added, want_added, "%zu new", added);
    cr_expect_eq(gone, want_gone, "%zu gone", gone);
    cr_expect_not_null(strstr(text, says), "%s", text);
    free(text);
}

Test(baseline, what_is_new_and_what_is_gone) {
    bench *b = make_bench(), *moved = make_bench(), *empty = calloc(1, sizeof *empty);
    cr_assert_not_null(empty);
    empty->log = made_log();
    char *old = text_of(b, ist_audit_write_json);
    for (size_t i = 0; i < moved->log.site_count; i++) moved->log.sites[i].line += 7;
    compare(moved, old, 0, 0, "nothing is new");
    empty->report = made_judge(&empty->log, NULL);
    compare(empty, old, 0, 2, "gone  read_write_chain call_read made.c step call_write made.c step");
    free(old);
    old = text_of(empty, ist_audit_write_json);
    compare(b, old, 2, 0, "new   blocking_transfer");
    free(old);
    free_bench(b);
    free_bench(moved);
    free_bench(empty);
}

Test(baseline, refuses_other_files) {
    static const char *const wrong[] = {"",    "{", "[]", "{}", "{\"schema\":2,\"findings\":[]}", "{\"schema\":1}",
                                        "\xff"};
    bench *b = make_bench();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t added, gone;
        ist_error err;
        cr_expect_eq(ist_audit_compare(&b->report, wrong[i], strlen(wrong[i]), stderr, &added, &gone, &err),
                     IST_E_INPUT, "'%s' was taken", wrong[i]);
    }
    free_bench(b);
}

Test(places, without_debug_information) {
    ist_audit_log log = {0};
    uint32_t a, b;
    char text[128];
    cr_assert_eq(
        ist_audit_add_site(&log, &(ist_audit_site){.address = 0x7f12, .module = "/usr/lib/libx.so.1", .offset = 0x12},
                           &a, NULL),
        IST_OK);
    cr_assert_eq(ist_audit_add_site(&log, &(ist_audit_site){.address = 0xabc}, &b, NULL), IST_OK);
    cr_expect_str_eq(ist_audit_site_text(&log, a, text, sizeof text), "libx.so.1+0x12");
    cr_expect_str_eq(ist_audit_site_text(&log, b, text, sizeof text), "0xabc");
    cr_expect_str_eq(ist_audit_site_text(&log, 7, text, sizeof text), "unknown place");
    ist_audit_log_free(&log);
}
