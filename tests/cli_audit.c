/* `isthmus audit -- PROGRAM`: programs with planted faults (tests/audit), each found at its line and nothing else. */
#include "program.h"
#include "support/json.h"

#define PLANTED(name) IST_BUILD_DIR "/tests/audit/audit_" name
#define IST_AUDIT_CLI IST_BUILD_DIR "/isthmus-audit"

enum { LINES = 200, MARKS = 256 };

/* The category planted on each line of the program's source; "" for none. */
static void read_marks(const char *name, char marks[LINES][MARKS]) {
    char path[512], line[1024];
    snprintf(path, sizeof path, "%s/tests/audit/%s.c", IST_SOURCE_DIR, name);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    for (int n = 1; n < LINES && fgets(line, sizeof line, f); n++) {
        const char *mark = strstr(line, "/* FAULT ");
        if (mark) sscanf(mark, "/* FAULT %60s", marks[n]);
    }
    fclose(f);
}

static bool is_above(const json_t *finding) {
    return strcmp(text_at(finding, "severity"), "necessary") != 0;
}

/* All marks are found, and nothing is found that is not marked. */
static void check_findings(const char *name, const json_t *root) {
    char marks[LINES][MARKS] = {{0}}, file[64];
    size_t k;
    json_t *f;
    read_marks(name, marks);
    snprintf(file, sizeof file, "/%s.c", name);
    json_array_foreach(json_object_get(root, "findings"), k, f) {
        json_int_t line = json_integer_value(json_object_get(f, "line"));
        if (!is_above(f)) continue;
        cr_expect_not_null(strstr(text_at(f, "file"), file), "%s: found %s in '%s'", name, text_at(f, "category"),
                           text_at(f, "file"));
        cr_assert(line > 0 && line < LINES);
        cr_expect_str_eq(marks[line], text_at(f, "category"), "%s:%d: found %s, planted '%s'", name, (int)line,
                         text_at(f, "category"), marks[line]);
        *marks[line] = '\0';
        json_t *chain = json_object_get(f, "chain");
        if (json_array_size(chain))
            cr_expect_gt(json_integer_value(json_object_get(json_array_get(chain, 1), "line")), line);
    }
    for (int n = 1; n < LINES; n++) cr_expect_str_empty(marks[n], "%s:%d: %s was not found", name, n, marks[n]);
}

static void audit_planted(const char *name, int frames) {
    char path[512];
    scratch s = scratch_make();
    snprintf(path, sizeof path, "%s/tests/audit/audit_%s", IST_BUILD_DIR, name);
    const char *json = scratch_path(&s, "report.json");
    spawned r = spawn_run(&s, NULL, (const char *const[]){IST_CLI, "audit", "--json", json, "--", path, NULL});
    cr_assert_eq(r.code, 0, "%s: exit code %d, %s", name, r.code, r.err);
    json_t *root = load_json(json);
    check_findings(name, root);
    cr_expect_eq(json_integer_value(json_object_get(json_object_get(root, "frames"), "count")), frames);
    cr_expect_eq(json_integer_value(json_object_get(root, "dropped")), 0);
    json_decref(root);
    spawn_free(&r);
    scratch_remove(&s);
}

Test(planted, clean) {
    audit_planted("clean", 6);
}
Test(planted, chains) {
    audit_planted("chains", 6);
}
Test(planted, scalars) {
    audit_planted("scalars", 6);
}
Test(planted, waits) {
    audit_planted("waits", 6);
}
Test(planted, objects) {
    audit_planted("objects", 6);
}
Test(planted, threads) {
    audit_planted("threads", 48);
}

Test(planted, kinds) {
    audit_planted("kinds", 6);
}

/* No transfer by its name, and yet one each way per frame. */
Test(planted, staged) {
    audit_planted("staged", 6);
    scratch s = scratch_make();
    const char *json = scratch_path(&s, "report.json");
    spawned r =
        spawn_run(&s, NULL, (const char *const[]){IST_CLI, "audit", "--json", json, "--", PLANTED("staged"), NULL});
    json_t *root = load_json(json), *most = json_object_get(json_object_get(root, "frames"), "most");
    static const char *const counts[] = {"writes", "reads", "waits"}, *const bytes[] = {"h2d_bytes", "d2h_bytes"};
    for (size_t k = 0; k < 3; k++)
        cr_expect_eq(json_integer_value(json_object_get(most, counts[k])), 1, "%s", counts[k]);
    for (size_t k = 0; k < 2; k++) cr_expect_eq(json_integer_value(json_object_get(most, bytes[k])), 4 * 32768);
    json_decref(root);
    spawn_free(&r);
    scratch_remove(&s);
}

/* Memory that goes to the host comes down, as much as with a read; memory that goes back does not count. */
Test(planted, migrations) {
    scratch s = scratch_make();
    const char *json = scratch_path(&s, "report.json");
    spawned r =
        spawn_run(&s, NULL, (const char *const[]){IST_CLI, "audit", "--json", json, "--", PLANTED("kinds"), NULL});
    cr_assert_eq(r.code, 0, "%s", r.err);
    json_t *root = load_json(json), *f;
    json_int_t found = 0;
    size_t k;
    json_array_foreach(json_object_get(root, "findings"), k, f) {
        if (strcmp(text_at(f, "entry"), "clEnqueueMigrateMemObjects")) continue;
        cr_expect_str_eq(text_at(f, "category"), "download");
        cr_expect_eq(json_integer_value(json_object_get(f, "bytes")), 6 * 64 * 32 * 16);
        found += json_integer_value(json_object_get(f, "count"));
    }
    cr_expect_eq(found, 6);
    json_decref(root);
    spawn_free(&r);
    scratch_remove(&s);
}
Test(planted, callbacks) {
    audit_planted("callbacks", 6);
}
Test(planted, recorded) {
    audit_planted("recorded", 6);
}
Test(planted, overwritten) {
    audit_planted("overwritten", 6);
}
Test(planted, loaded) {
    audit_planted("loaded", 6);
}

/* All that can be found in a run. */
Test(planted, every_category) {
    static const char *const names[] = {"chains", "scalars", "waits", "objects", "releases", "overwritten"};
    char marks[LINES][MARKS] = {{0}};
    static const char *const wanted[] = {
        "read_write_chain", "build_in_frame",    "scalar_read",       "scalar_write",
        "host_round_trip",  "redundant_upload",  "poll_loop",         "redundant_wait",
        "wait_in_loop",     "wait_mid_frame",    "host_pointer",      "flush_in_loop",
        "release_waits",    "creation_in_frame", "blocking_transfer", "overwritten_upload"};
    for (size_t c = 0; c < sizeof wanted / sizeof *wanted; c++) {
        bool planted = false;
        for (size_t k = 0; k < sizeof names / sizeof *names && !planted; k++) {
            memset(marks, 0, sizeof marks);
            read_marks(names[k], marks);
            for (int n = 1; n < LINES; n++) planted = planted || !strcmp(marks[n], wanted[c]);
        }
        cr_expect(planted, "no program plants %s", wanted[c]);
    }
}

/* With a driver whose releases wait; whether the one here does is its own affair. */
Test(planted, releases) {
    setenv("OPENCL_LAYERS", IST_BUILD_DIR "/tests/audit/waiting_driver.so", 1);
    audit_planted("releases", 6);
}

Test(program, output_and_exit_code_pass_through) {
    scratch s = scratch_make();
    scratch_put(scratch_path(&s, "input.txt"), "line\n");
    spawned r = spawn_run(
        &s, scratch_path(&s, "input.txt"),
        (const char *const[]){IST_CLI, "audit", "--", "/bin/sh", "-c", "cat; echo problem >&2; exit 9", NULL});
    cr_expect_eq(r.code, 9);
    cr_expect_str_eq(r.out, "line\n");
    cr_expect_not_null(strstr(r.err, "problem\n"));
    cr_expect_not_null(strstr(r.err, "made no OpenCL call"));
    spawn_free(&r);
    scratch_remove(&s);
}

/* The program asks for it itself: a signal to the audit reaches the program, and its answer comes back. */
Test(program, signals_pass_through) {
    static const char *const signals[] = {"TERM", "HUP"};
    for (int i = 0; i < 2; i++) {
        scratch s = scratch_make();
        char script[200];
        snprintf(script, sizeof script,
                 "trap 'echo asked; exit 3' %s; kill -%s $PPID; n=0;"
                 "while [ $n -lt 200 ]; do sleep 0.05; n=$((n + 1)); done; exit 4",
                 signals[i], signals[i]);
        spawned r = spawn_run(&s, NULL, (const char *const[]){IST_CLI, "audit", "--", "/bin/sh", "-c", script, NULL});
        cr_expect_eq(r.code, 3, "%s: exit code %d: %s", signals[i], r.code, r.err);
        cr_expect_str_eq(r.out, "asked\n");
        spawn_free(&r);
        scratch_remove(&s);
    }
}

static void check_death(const char *how, int code) {
    scratch s = scratch_make();
    const char *json = scratch_path(&s, "report.json");
    spawned r =
        spawn_run(&s, NULL, (const char *const[]){IST_CLI, "audit", "--json", json, "--", PLANTED("dies"), how, NULL});
    cr_expect_eq(r.code, code, "%s: exit code %d", how, r.code);
    cr_expect_str_eq(r.out, "working\n");
    json_t *root = load_json(json);
    check_findings("dies", root);
    json_decref(root);
    spawn_free(&r);
    scratch_remove(&s);
}

Test(program, a_dying_program_still_gets_its_report) {
    check_death("exit", 42);
    check_death("abort", 134);
    check_death("kill", 137);
}

Test(program, budgets) {
    scratch s = scratch_make();
    const char *const keeps[] = {IST_CLI, "audit",          "--budget", "reads=1,writes=1,waits=1,bytes=256K,builds=0",
                                 "--",    PLANTED("clean"), NULL};
    spawned r = spawn_run(&s, NULL, keeps);
    cr_expect_eq(r.code, 0, "%s", r.err);
    spawn_free(&r);
    r = spawn_run(&s, NULL,
                  (const char *const[]){IST_CLI, "audit", "--budget", "reads=1", "--", PLANTED("marked"), NULL});
    cr_expect_eq(r.code, 5);
    cr_expect_not_null(strstr(r.err, "over budget: frame 2 has 2 reads, the budget allows 1: clEnqueueReadBuffer at"));
    cr_expect_not_null(strstr(r.err, "marked.c:11 in main"), "%s", r.err);
    spawn_free(&r);
    scratch_remove(&s);
}

Test(program, frame_kernel_and_baseline) {
    scratch s = scratch_make();
    char json[256], sarif[256], trace[256];
    snprintf(json, sizeof json, "%s", scratch_path(&s, "old.json"));
    snprintf(sarif, sizeof sarif, "%s", scratch_path(&s, "a.sarif"));
    snprintf(trace, sizeof trace, "%s", scratch_path(&s, "trace.json"));
    spawned r = spawn_run(&s, NULL,
                          (const char *const[]){IST_CLI, "audit", "--json", json, "--sarif", sarif, "--trace", trace,
                                                "--frame-kernel", "add", "--", PLANTED("clean"), NULL});
    cr_expect_eq(r.code, 0);
    json_t *root = load_json(json);
    cr_expect_str_eq(text_at(json_object_get(root, "frames"), "source"), "kernel");
    cr_expect_eq(json_integer_value(json_object_get(json_object_get(root, "frames"), "count")), 6);
    json_decref(root);
    json_decref(load_json(sarif));
    json_decref(load_json(trace));
    spawn_free(&r);
    r = spawn_run(
        &s, NULL,
        (const char *const[]){IST_CLI, "audit", "--baseline", json, "--report", "-", "--", PLANTED("scalars"), NULL});
    cr_expect_eq(r.code, 0);
    cr_expect_not_null(strstr(r.out, "new   scalar_read clEnqueueReadBuffer"), "%s", r.out);
    spawn_free(&r);
    scratch_remove(&s);
}

/* Before the program is run: what cannot be written, and a baseline that is none. Old reports stay as they are. */
Test(program, files_are_looked_at_first) {
    scratch s = scratch_make();
    char ran[256], bad[256], old[256];
    snprintf(ran, sizeof ran, "%s", scratch_path(&s, "ran"));
    snprintf(bad, sizeof bad, "%s", scratch_path(&s, "old.json/x"));
    snprintf(old, sizeof old, "%s", scratch_path(&s, "old.json"));
    scratch_put(old, "{}");
    const struct {
        const char *option, *value, *says;
    } cases[] = {{"--json", bad, ": Not a directory"}, {"--sarif", bad, ": Not a directory"},
                 {"--trace", s.path, "cannot write"},  {"--report", "/nowhere/at/all/", "cannot write"},
                 {"--baseline", ran, "ran: "},         {"--baseline", old, "old.json: the older report is not"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const forms[][8] = {
            {IST_CLI, "audit", cases[i].option, cases[i].value, "--", "/usr/bin/touch", ran, NULL},
            {IST_CLI, "audit", cases[i].option, cases[i].value, "/nowhere.png", NULL},
            {IST_CLI, "audit", cases[i].option, cases[i].value, "--source", IST_SOURCE_DIR "/apps/example.c", NULL}};
        for (size_t k = 0; k < 3; k++) {
            if (k == 2 && !strcmp(cases[i].option, "--trace")) continue;
            spawned r = spawn_run(&s, NULL, forms[k]);
            cr_expect_eq(r.code, 1, "%s %zu gives %d", cases[i].option, k, r.code);
            cr_expect_not_null(strstr(r.err, cases[i].says), "%s %zu: %s", cases[i].option, k, r.err);
            cr_expect_eq(strchr(r.err, '\n'), strrchr(r.err, '\n'), "one sentence: %s", r.err);
            cr_expect_str_empty(r.out);
            cr_expect(!scratch_exists(ran), "%s: the program was run", cases[i].option);
            spawn_free(&r);
        }
    }
    char *text = scratch_read(old, NULL);
    cr_expect_str_eq(text, "{}");
    free(text);
    spawned r = spawn_run(&s, NULL, (const char *const[]){IST_CLI, "audit", "--json=", "/nowhere.png", NULL});
    cr_expect_eq(r.code, 2);
    cr_expect_not_null(strstr(r.err, "--json: the name of the file is empty"), "%s", r.err);
    spawn_free(&r);
    scratch_remove(&s);
}

Test(program, usage) {
    scratch s = scratch_make();
    static const char *const wrong[][6] = {{"audit", NULL},
                                           {"audit", "--", NULL},
                                           {"audit", "--budget", "reads", "--", "true", NULL},
                                           {"audit", "--frames", "--", "true", NULL},
                                           {"audit", "--json", NULL},
                                           {"audit", "--frame-kernel", "add", "a.png", NULL},
                                           {"audit", "--save", "json", "a.png", NULL},
                                           {"audit", "--json=-", "--sarif=-", "--", "true", NULL},
                                           {"audit", "--json=-", "--trace=-", "a.png", NULL},
                                           {"audit", "--json=x", "--report=x", "--source=/nowhere", NULL}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *argv[8] = {IST_CLI};
        for (size_t k = 0; wrong[i][k]; k++) argv[k + 1] = wrong[i][k];
        spawned r = spawn_run(&s, NULL, argv);
        cr_expect_eq(r.code, 2, "case %zu gives %d", i, r.code);
        spawn_free(&r);
    }
    scratch_remove(&s);
}

/* Exit codes as a shell's. */
Test(program, one_that_cannot_be_run) {
    scratch s = scratch_make();
    char plain[200];
    snprintf(plain, sizeof plain, "%s", scratch_path(&s, "plain.txt"));
    scratch_put(plain, "no program");
    const struct {
        const char *program, *says;
        int code;
    } cases[] = {{"/nowhere/at/all", "/nowhere/at/all: there is no such program", 127},
                 {"isthmus-has-no-such-program", "isthmus-has-no-such-program: there is no such program", 127},
                 {plain, "plain.txt: Permission denied", 126}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spawned r = spawn_run(&s, NULL, (const char *const[]){IST_CLI, "audit", "--", cases[i].program, NULL});
        cr_expect_eq(r.code, cases[i].code, "%s: %d", cases[i].program, r.code);
        cr_expect_not_null(strstr(r.err, cases[i].says), "%s", r.err);
        spawn_free(&r);
    }
    scratch_remove(&s);
}

/* ---- isthmus-audit ---- */

/* The program without the engine says the same, and has no run of its own. */
Test(alone, programs_and_sources) {
    scratch s = scratch_make();
    const char *const both[][5] = {{IST_CLI, "audit", "--source", IST_SOURCE_DIR "/tests/audit", NULL},
                                   {IST_AUDIT_CLI, "--source", IST_SOURCE_DIR "/tests/audit", NULL}};
    char *reports[2];
    for (int alone = 0; alone < 2; alone++) {
        spawned r = spawn_run(&s, NULL, both[alone]);
        cr_expect_eq(r.code, 0, "%s", r.err);
        cr_expect_str_empty(r.err);
        reports[alone] = r.out;
        free(r.err);
    }
    cr_expect_not_null(strstr(reports[0], "critical"));
    cr_expect_str_eq(reports[0], reports[1]);
    free(reports[0]);
    free(reports[1]);
    spawned r =
        spawn_run(&s, NULL, (const char *const[]){IST_AUDIT_CLI, "--budget", "reads=1", "--", PLANTED("marked"), NULL});
    cr_expect_eq(r.code, 5);
    cr_expect_not_null(strstr(r.err, "isthmus-audit: over budget: frame 2 has 2 reads, the budget allows 1"), "%s",
                       r.err);
    cr_expect_not_null(strstr(r.err, "marked.c:11 in main"), "%s", r.err);
    spawn_free(&r);
    scratch_remove(&s);
}

Test(alone, usage) {
    scratch s = scratch_make();
    const struct {
        const char *first, *second, *out, *err;
        int code;
    } cases[] = {
        {NULL, NULL, "", "isthmus-audit: name a program after --, or sources with --source; see isthmus-audit --help",
         2},
        {"frame.png", NULL, "", "unexpected argument 'frame.png': a program comes after --", 2},
        {"--device", "0", "", "unknown option '--device'; see isthmus-audit --help", 2},
        {"--source", "/nowhere", "", "isthmus-audit: /nowhere: No such file or directory", 1},
        {"--", "/nowhere", "", "isthmus-audit: /nowhere: there is no such program", 127},
        {"--help", NULL, "usage: isthmus-audit [options] -- PROGRAM ARGS|--source DIR\n", "", 0},
        {"--version", NULL, "isthmus-audit ", "", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spawned r = spawn_run(&s, NULL, (const char *const[]){IST_AUDIT_CLI, cases[i].first, cases[i].second, NULL});
        cr_expect_eq(r.code, cases[i].code, "case %zu gives %d", i, r.code);
        cr_expect_not_null(strstr(r.err, cases[i].err), "%s", r.err);
        cr_expect_not_null(strstr(r.out, cases[i].out), "%s", r.out);
        spawn_free(&r);
    }
    scratch_remove(&s);
}

/* ---- our own run ---- */

Test(own, a_read_too_many_breaks_the_promise) {
    scratch s = scratch_make();
    char image[] = IST_SOURCE_DIR "/apps/frames/bone-1.png", json[256], fake[] = IST_BUILD_DIR "/tests/isthmus_fake";
    scratch_put(scratch_path(&s, "dfine_n_demo.safetensors"), "");
    scratch_put(scratch_path(&s, "mobile_sam_demo.safetensors"), "");
    setenv("ISTHMUS_WEIGHTS_DIR", s.path, 1);
    setenv("TMPDIR", s.path, 1);
    snprintf(json, sizeof json, "--json=%s", scratch_path(&s, "report.json"));
    spawned r = spawn_run(&s, NULL, (const char *const[]){fake, "audit", image, json, NULL});
    cr_expect_eq(r.code, 5, "exit code %d: %s", r.code, r.err);
    cr_expect_not_null(strstr(
        r.err, "frame 2 has 2 reads, the budget allows 1: ist_read at fake.c:31 in overflow (masks that did not fit)"));
    cr_expect_not_null(strstr(r.out, "frames     2 (given)"), "%s", r.out);
    spawn_free(&r);
    json_t *root = load_json(scratch_path(&s, "report.json")), *calls = json_object_get(root, "calls"), *f;
    cr_expect_eq(json_integer_value(json_object_get(json_object_get(root, "total"), "reads")), 3);
    cr_expect_eq(json_integer_value(json_object_get(calls, "flush")), 1);
    cr_expect_eq(json_integer_value(json_object_get(calls, "wait")), 3);
    cr_expect_float_eq(json_real_value(json_object_get(root, "wait_ms")), 4.25, 1e-6);
    size_t k;
    bool built = false;
    json_array_foreach(json_object_get(root, "findings"), k, f) {
        if (strcmp(text_at(f, "category"), "build_in_frame")) continue;
        built = true;
        cr_expect_str_eq(text_at(f, "file"), "fake.c");
        cr_expect_str_eq(text_at(f, "object"), "cpu/conv");
        cr_expect_eq(json_integer_value(json_object_get(f, "line")), 40);
        cr_expect_eq(json_integer_value(json_object_get(f, "first_frame")), 2);
    }
    cr_expect(built);
    json_decref(root);
    r = spawn_run(&s, NULL, (const char *const[]){fake, "audit", "--budget", "reads=2", image, NULL});
    cr_expect_eq(r.code, 0, "exit code %d: %s", r.code, r.err);
    spawn_free(&r);
    r = spawn_run(&s, NULL, (const char *const[]){"/bin/sh", "-c", "ls -d \"$TMPDIR\"/isthmus-audit-*", NULL});
    cr_expect_neq(r.code, 0, "left behind: %s", r.out);
    spawn_free(&r);
    scratch_remove(&s);
}

/* The double of the engine breaks the budget whatever comes. */
Test(own, a_failed_run_goes_before_a_broken_budget) {
    scratch s = scratch_make();
    char image[] = IST_SOURCE_DIR "/apps/frames/bone-1.png", fake[] = IST_BUILD_DIR "/tests/isthmus_fake";
    scratch_put(scratch_path(&s, "dfine_n_demo.safetensors"), "");
    scratch_put(scratch_path(&s, "mobile_sam_demo.safetensors"), "");
    setenv("ISTHMUS_WEIGHTS_DIR", s.path, 1);
    static const struct {
        const char *fault;
        int code;
    } cases[] = {{"none", 5}, {"lost:5", 1}, {"receive:1", 5}}; /* more images than are in flight at a time */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("FAKE_ENGINE", cases[i].fault, 1);
        spawned r = spawn_run(
            &s, NULL, (const char *const[]){fake, "audit", image, image, image, image, image, image, "--quiet", NULL});
        cr_expect_eq(r.code, cases[i].code, "%s gives %d: %s", cases[i].fault, r.code, r.err);
        cr_expect_not_null(strstr(r.err, "over budget: frame 2 has 2 reads"), "%s: %s", cases[i].fault, r.err);
        spawn_free(&r);
    }
    unsetenv("FAKE_ENGINE");
    scratch_remove(&s);
}

/* Checkpoints for a real device. */
typedef struct models {
    char detector[256], segmenter[256];
} models;

static models make_models(const scratch *s) {
    models m;
    snprintf(m.detector, sizeof m.detector, "%s", scratch_path(s, "n.safetensors"));
    snprintf(m.segmenter, sizeof m.segmenter, "%s", scratch_path(s, "sam.safetensors"));
    const char *make = IST_BUILD_DIR "/tests/make_checkpoint";
    spawned r = spawn_run(s, NULL, (const char *const[]){make, "n", "g:1", "80", m.detector, NULL});
    spawn_free(&r);
    r = spawn_run(s, NULL, (const char *const[]){make, "sam", "g:1", "1", m.segmenter, NULL});
    spawn_free(&r);
    return m;
}

static void keeps_its_promise(const char *option, int flushes) {
    scratch s = scratch_make();
    char json[256];
    const models m = make_models(&s);
    snprintf(json, sizeof json, "%s", scratch_path(&s, "report.json"));
    spawned r = spawn_run(&s, NULL,
                          (const char *const[]){IST_CLI, "audit", IST_SOURCE_DIR "/apps/frames", "--limit", "3",
                                                "--max-objects", "2", "--detector", m.detector, "--segmenter",
                                                m.segmenter, "--json", json, option, NULL});
    cr_assert_eq(r.code, 0, "exit code %d: %s", r.code, r.err);
    cr_expect_not_null(strstr(r.out, "budget     reads=1,writes=1,waits=1 holds"), "%s", r.out);
    json_t *root = load_json(json), *frames = json_object_get(root, "frames"), *most = json_object_get(frames, "most");
    cr_expect_eq(json_integer_value(json_object_get(frames, "count")), 3);
    cr_expect_eq(json_integer_value(json_object_get(most, "writes")), 1);
    cr_expect_eq(json_integer_value(json_object_get(most, "reads")), 1);
    cr_expect_leq(json_integer_value(json_object_get(most, "waits")), 1);
    size_t k;
    json_t *f;
    json_array_foreach(json_object_get(root, "findings"), k, f)
        cr_expect(!is_above(f), "%s: %s", text_at(f, "category"), text_at(f, "function"));
    json_array_foreach(json_object_get(root, "findings"), k, f)
        cr_expect(!strncmp(text_at(f, "file"), "src/", 4) && json_integer_value(json_object_get(f, "line")) > 0,
                  "%s is called at '%s'", text_at(f, "object"), text_at(f, "file"));
    json_t *calls = json_object_get(root, "calls");
    cr_expect_eq(json_integer_value(json_object_get(calls, "flush")), flushes);
    cr_expect_gt(json_integer_value(json_object_get(calls, "build")), 0);
    cr_expect_gt(json_integer_value(json_object_get(calls, "map")), 0);
    json_decref(root);
    spawn_free(&r);
    scratch_remove(&s);
}

/* In how many frames there are such calls. */
static json_int_t frames_with(const json_t *root, const char *category, const char *entry) {
    json_int_t frames = 0;
    size_t k;
    json_t *f;
    json_array_foreach(json_object_get(root, "findings"), k, f) {
        if (strcmp(text_at(f, "category"), category) || strcmp(text_at(f, "entry"), entry)) continue;
        json_int_t in = json_integer_value(json_object_get(f, "frames"));
        cr_expect_eq(json_integer_value(json_object_get(f, "most_per_frame")), in > 0, "%s, %s", category, entry);
        frames += in;
    }
    return frames;
}

/* Frames of a stream overlap on the device and are waited for on another thread than the one that submits them: each
 * has one write, one read and one wait, and so has the one that warms up. */
Test(program, a_stream_keeps_the_promise) {
    enum { FRAMES = 4, W = 96, H = 80 };
    static unsigned char pixels[FRAMES * W * H];
    scratch s = scratch_make();
    char raw[256], json[256], lines[300];
    const models m = make_models(&s);
    snprintf(raw, sizeof raw, "%s", scratch_path(&s, "raw"));
    snprintf(json, sizeof json, "%s", scratch_path(&s, "report.json"));
    snprintf(lines, sizeof lines, "ndjson:%s", scratch_path(&s, "lines"));
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (unsigned char)(i * i >> 7);
    FILE *f = fopen(raw, "wb");
    cr_assert_eq(fwrite(pixels, 1, sizeof pixels, f), sizeof pixels);
    fclose(f);
    spawned r = spawn_run(&s, raw,
                          (const char *const[]){IST_CLI,
                                                "audit",
                                                "--budget",
                                                "reads=1,writes=1,waits=1,builds=0",
                                                "--json",
                                                json,
                                                "--",
                                                IST_CLI,
                                                "live",
                                                "--from",
                                                "raw:96x80:gray8",
                                                "--to",
                                                lines,
                                                "--no-drop",
                                                "--quiet",
                                                "--max-objects",
                                                "2",
                                                "--detector",
                                                m.detector,
                                                "--segmenter",
                                                m.segmenter,
                                                NULL});
    cr_assert_eq(r.code, 0, "exit code %d: %s", r.code, r.err);
    char *results = scratch_read(scratch_path(&s, "lines"), NULL);
    int count = 0;
    for (const char *p = results; (p = strchr(p, '\n')); p++) count++;
    cr_expect_eq(count, FRAMES);
    free(results);
    json_t *root = load_json(json), *frames = json_object_get(root, "frames"), *most = json_object_get(frames, "most");
    cr_expect_eq(json_integer_value(json_object_get(frames, "count")), FRAMES + 1);
    static const char *const counts[] = {"writes", "reads", "waits"}; /* no frame has two, and so many have one */
    for (size_t k = 0; k < 3; k++)
        cr_expect_eq(json_integer_value(json_object_get(most, counts[k])), 1, "%s", counts[k]);
    cr_expect_eq(frames_with(root, "upload", "clEnqueueWriteBuffer"), FRAMES + 1);
    cr_expect_eq(frames_with(root, "download", "clEnqueueReadBuffer"), FRAMES + 1);
    cr_expect_eq(frames_with(root, "wait", "clWaitForEvents"), FRAMES + 1);
    json_decref(root);
    spawn_free(&r);
    scratch_remove(&s);
}

Test(own, the_pipeline_keeps_its_promise) {
    keeps_its_promise("--no-overlap", 3);
}

Test(own, the_pipeline_keeps_its_promise_on_two_queues) {
    keeps_its_promise("--overlap", 3 + 3 * 2); /* and one of each before the other waits for it */
}

/* A layer built with a sanitizer cannot be loaded into a program built without. */
#ifdef __SANITIZE_ADDRESS__
enum { CAN_LOAD_ANYWHERE = 0 };
#else
enum { CAN_LOAD_ANYWHERE = 1 };
#endif

Test(program, clinfo_prints_the_same) {
    if (!CAN_LOAD_ANYWHERE || access("/usr/bin/clinfo", X_OK)) cr_skip_test("no clinfo that can load the layer");
    scratch s = scratch_make();
    spawned plain = spawn_run(&s, NULL, (const char *const[]){"/usr/bin/clinfo", NULL});
    spawned r = spawn_run(&s, NULL, (const char *const[]){IST_CLI, "audit", "--", "/usr/bin/clinfo", NULL});
    cr_expect_eq(r.code, plain.code);
    cr_expect_str_eq(r.out, plain.out);
    spawn_free(&plain);
    spawn_free(&r);
    scratch_remove(&s);
}
