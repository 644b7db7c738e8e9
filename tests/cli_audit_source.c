/* `isthmus audit --source`: folders as they are found in the wild, reports, exit codes. */
#include "program.h"
#include "support/json.h"

#include <sys/stat.h>

static const char chain[] = "import torch\ndef infer(model, x):\n    y = model(x).cpu()\n    return model(y.cuda())\n";
static const char wait_in_step[] = "void step(void) {\n  for (;;) clFinish(q);\n}\n";

/* tree/: sources, and all kinds of things that are none. */
static void make_tree(const scratch *s) {
    static const char binary[] = "\x7f"
                                 "ELF\0\0\0";
    mkdir(scratch_path(s, "tree"), 0777);
    mkdir(scratch_path(s, "tree/deep"), 0777);
    mkdir(scratch_path(s, "tree/.hidden"), 0777);
    scratch_write(scratch_path(s, "tree/a.py"), chain, sizeof chain - 1);
    scratch_write(scratch_path(s, "tree/deep/b.c"), wait_in_step, sizeof wait_in_step - 1);
    scratch_write(scratch_path(s, "tree/.hidden/c.py"), chain, sizeof chain - 1);
    scratch_write(scratch_path(s, "tree/notes.txt"), chain, sizeof chain - 1);
    scratch_write(scratch_path(s, "tree/image.py"), binary, sizeof binary);
    scratch_write(scratch_path(s, "tree/empty.h"), "", 0);
    cr_assert_eq(symlink("..", scratch_path(s, "tree/deep/round.c")), 0);
    cr_assert_eq(symlink("..", scratch_path(s, "tree/deep/round")), 0);
    cr_assert_eq(symlink("../a.py", scratch_path(s, "tree/deep/link.py")), 0);
    cr_assert_eq(mkfifo(scratch_path(s, "tree/pipe.py"), 0600), 0);
}

static const char *reason_of(const json_t *root, const char *file) {
    size_t k;
    json_t *skipped;
    json_array_foreach(json_object_get(root, "skipped"), k,
                       skipped) if (strstr(text_at(skipped, "file"), file)) return text_at(skipped, "reason");
    return "";
}

Test(tree, sources_are_found_and_the_rest_is_named) {
    scratch s = scratch_make();
    char tree[256], json[256];
    make_tree(&s);
    snprintf(tree, sizeof tree, "%s", scratch_path(&s, "tree/"));
    snprintf(json, sizeof json, "%s", scratch_path(&s, "report.json"));
    spawned r = spawn_run(&s, NULL, (const char *const[]){IST_CLI, "audit", "--source", tree, "--json", json, NULL});
    cr_assert_eq(r.code, 0, "exit code %d: %s", r.code, r.err);
    cr_expect_str_empty(r.err);
    json_t *root = load_json(json), *findings = json_object_get(root, "findings"), *f = json_array_get(findings, 0);
    cr_expect_eq(json_integer_value(json_object_get(root, "schema")), 1);
    cr_expect_eq(json_integer_value(json_object_get(root, "python_files")), 2);
    cr_expect_eq(json_integer_value(json_object_get(root, "c_files")), 2);
    cr_expect_eq(json_array_size(json_object_get(root, "skipped")), 3);
    cr_expect_str_eq(reason_of(root, "tree/image.py"), "binary, not text");
    cr_expect_str_eq(reason_of(root, "tree/pipe.py"), "not a regular file");
    cr_expect_str_eq(reason_of(root, "tree/deep/round.c"), "a link to a folder");
    cr_expect_eq(json_array_size(findings), 3);
    cr_expect_str_eq(text_at(f, "severity"), "critical");
    cr_expect_str_eq(text_at(f, "category"), "wait_in_loop");
    cr_expect_str_eq(text_at(f, "context"), "loop");
    cr_expect_not_null(strstr(text_at(f, "file"), "tree/deep/b.c"));
    cr_expect_eq(json_integer_value(json_object_get(f, "line")), 2);
    cr_expect(json_is_null(json_object_get(f, "bytes")));
    f = json_array_get(findings, 1);
    cr_expect_str_eq(text_at(f, "category"), "read_write_chain");
    cr_expect_eq(json_integer_value(json_object_get(json_array_get(json_object_get(f, "chain"), 1), "line")), 4);
    json_decref(root);
    spawn_free(&r);
    scratch_remove(&s);
}

Test(tree, text_has_totals_the_worst_and_all) {
    scratch s = scratch_make();
    char tree[256], report[256];
    make_tree(&s);
    snprintf(tree, sizeof tree, "%s", scratch_path(&s, "tree"));
    snprintf(report, sizeof report, "%s", scratch_path(&s, "report.txt"));
    spawned r = spawn_run(&s, NULL, (const char *const[]){IST_CLI, "audit", "--source", tree, NULL});
    static const char *const parts[] = {"2 C and C++, 2 Python",
                                        "3 skipped",
                                        "3 critical, 0 medium, 0 minor, 0 necessary",
                                        "by category",
                                        "read_write_chain ",
                                        "by file",
                                        "worst",
                                        "goes up again with .cuda() at ",
                                        "advice: keep it on the device",
                                        "\nall\n",
                                        "skipped\n",
                                        "image.py: binary, not text"};
    const char *at = r.out;
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        const char *found = strstr(at, parts[k]);
        cr_assert_not_null(found, "'%s' is missing, or not in its place, in:\n%s", parts[k], r.out);
        at = found;
    }
    spawned q =
        spawn_run(&s, NULL, (const char *const[]){IST_CLI, "audit", "--report", report, "--source", tree, NULL});
    char *written = scratch_read(report, NULL);
    cr_expect_str_empty(q.out);
    cr_expect_str_eq(written, r.out);
    free(written);
    spawn_free(&q);
    spawn_free(&r);
    scratch_remove(&s);
}

Test(tree, sarif_and_baseline) {
    scratch s = scratch_make();
    char tree[256], old[256], sarif[256];
    make_tree(&s);
    snprintf(tree, sizeof tree, "--source=%s", scratch_path(&s, "tree"));
    snprintf(old, sizeof old, "%s", scratch_path(&s, "old.json"));
    snprintf(sarif, sizeof sarif, "%s", scratch_path(&s, "a.sarif"));
    spawned r =
        spawn_run(&s, NULL, (const char *const[]){IST_CLI, "audit", tree, "--json", old, "--sarif", sarif, NULL});
    cr_assert_eq(r.code, 0, "%s", r.err);
    spawn_free(&r);
    json_t *root = load_json(sarif), *run = json_array_get(json_object_get(root, "runs"), 0);
    cr_expect_eq(json_array_size(json_object_get(run, "results")), 3);
    cr_expect_str_eq(text_at(json_array_get(json_object_get(run, "results"), 0), "ruleId"), "wait_in_loop");
    json_decref(root);
    static const char moved[] =
        "void step(void) {\n\n\n  for (;;) clFinish(q);\n}\nvoid infer(void) { g(); clFinish(q);\n"
        "clFinish(q); }\n";
    scratch_write(scratch_path(&s, "tree/deep/b.c"), moved, sizeof moved - 1);
    unlink(scratch_path(&s, "tree/a.py"));
    unlink(scratch_path(&s, "tree/deep/link.py"));
    r = spawn_run(&s, NULL, (const char *const[]){IST_CLI, "audit", tree, "--baseline", old, NULL});
    cr_expect_eq(r.code, 0, "%s", r.err);
    cr_expect_not_null(strstr(r.out, "new   redundant_wait clFinish "), "%s", r.out);
    cr_expect_not_null(strstr(r.out, "gone  read_write_chain .cpu() "), "%s", r.out);
    cr_expect_null(strstr(r.out, "new   wait_in_loop"), "a finding that moved is not new: %s", r.out);
    spawn_free(&r);
    scratch_remove(&s);
}

static void expect(const scratch *s, const char *source, int code, const char *out, const char *err) {
    spawned r = spawn_run(s, NULL, (const char *const[]){IST_CLI, "audit", "--source", source, NULL});
    cr_expect_eq(r.code, code, "%s: exit code %d", source, r.code);
    cr_expect_not_null(strstr(r.out, out), "%s: '%s'", source, r.out);
    cr_expect_not_null(strstr(r.err, err), "%s: '%s'", source, r.err);
    spawn_free(&r);
}

Test(sources, a_file_nothing_and_what_cannot_be_read) {
    scratch s = scratch_make();
    char path[256];
    scratch_write(scratch_path(&s, "one.py"), chain, sizeof chain - 1);
    scratch_write(scratch_path(&s, "one.txt"), chain, sizeof chain - 1);
    mkdir(scratch_path(&s, "empty"), 0777);
    mkdir(scratch_path(&s, "broken"), 0777);
    cr_assert_eq(symlink("nowhere.py", scratch_path(&s, "broken/a.py")), 0);
    scratch_write(scratch_path(&s, "broken/b.c"), wait_in_step, sizeof wait_in_step - 1);
    snprintf(path, sizeof path, "%s", scratch_path(&s, "one.py"));
    expect(&s, path, 0, "1 critical, 0 medium", "");
    snprintf(path, sizeof path, "%s", scratch_path(&s, "one.txt"));
    expect(&s, path, 1, "", "is no C, C++, OpenCL C or Python source");
    snprintf(path, sizeof path, "%s", scratch_path(&s, "empty"));
    expect(&s, path, 0, "0 critical", "has no C, C++, OpenCL C or Python sources");
    snprintf(path, sizeof path, "%s", scratch_path(&s, "missing"));
    expect(&s, path, 1, "", "missing: No such file or directory");
    snprintf(path, sizeof path, "%s", scratch_path(&s, "broken"));
    expect(&s, path, 7, "1 critical", "1 of the files could not be read"); /* what could be read is reported */
    scratch_remove(&s);
}

/* ---- a project ---- */

static const char caller[] =
    "from sam.predictor import Predictor as P\nclass Step:\n    def __init__(self, device):\n        self.p = P()\n"
    "    def process(self, boxes):\n        found = boxes.detach().cpu().numpy()\n        return "
    "self.p.predict(box=found)\n";
static const char predictor[] = "import torch\nclass Predictor:\n    def predict(self, points=None, box=None):\n"
                                "        return torch.as_tensor(box, device='cuda')\n";
static const char notebook[] = "{\"cells\":[{\"cell_type\":\"code\",\"source\":[\"import torch\\n\","
                               "\"z = torch.zeros(3, device='cuda').cpu()\"]}]}";
static const char prints[] = "kernel void f(global int *x) {\n    printf(\"%d\", *x);\n}\n";

static void expect_text(const char *out, const char *tree) {
    char want[2048];
    snprintf(want, sizeof want,
             "            comes down with .detach().cpu().numpy() at %s/a.py:6 in Step.process\n"
             "            is passed to Predictor.predict(box) at %s/a.py:7\n"
             "            goes up again with torch.as_tensor(device=) at %s/sam/predictor.py:4 in Predictor.predict\n",
             tree, tree, tree);
    cr_expect_not_null(strstr(out, want), "no\n%s in\n%s", want, out);
    snprintf(want, sizeof want, "%s/b.ipynb:1:2  .cpu()\n", tree);
    cr_expect_not_null(strstr(out, want), "no\n%s in\n%s", want, out);
    cr_expect_not_null(strstr(out, "1 critical, 1 medium, 0 minor, 1 necessary"), "%s", out);
    cr_expect_not_null(strstr(out, "3 Python (1 notebook), 1 OpenCL C (1 kernel), "), "%s", out);
}

static const json_t *first_of(const json_t *o, const char *key) {
    return json_array_get(json_object_get(o, key), 0);
}

static void expect_json(const char *path) {
    static const char *const steps[] = {"download", "argument", "upload"};
    json_t *root = load_json(path), *findings = json_object_get(root, "findings"), *f = json_array_get(findings, 0);
    cr_assert_eq(json_array_size(findings), 3);
    cr_expect_str_eq(text_at(f, "category"), "read_write_chain");
    const json_t *hops = json_object_get(f, "hops");
    cr_assert_eq(json_array_size(hops), 3);
    for (size_t k = 0; k < 3; k++) cr_expect_str_eq(text_at(json_array_get(hops, k), "step"), steps[k]);
    cr_expect_eq(json_integer_value(json_object_get(json_array_get(hops, 1), "line")), 7);
    cr_expect_eq(json_array_size(json_object_get(f, "chain")), 2);
    cr_expect_null(json_object_get(f, "cell"));
    cr_expect_str_eq(text_at(json_array_get(findings, 1), "category"), "kernel_prints");
    f = json_array_get(findings, 2);
    cr_expect_eq(json_integer_value(json_object_get(f, "cell")), 1);
    cr_expect_eq(json_integer_value(json_object_get(f, "line")), 2);
    cr_expect_eq(json_array_size(json_object_get(f, "hops")), 0);
    json_decref(root);
}

static void expect_sarif(const char *path) {
    json_t *root = load_json(path);
    const json_t *result = first_of(first_of(root, "runs"), "results"), *flow = first_of(result, "codeFlows");
    const json_t *locations = json_object_get(first_of(flow, "threadFlows"), "locations");
    cr_assert_eq(json_array_size(locations), 3);
    const json_t *last = json_object_get(json_array_get(locations, 2), "location");
    const json_t *physical = json_object_get(last, "physicalLocation");
    cr_expect_str_eq(text_at(json_object_get(last, "message"), "text"), "goes up again with torch.as_tensor(device=)");
    cr_expect_eq(json_integer_value(json_object_get(json_object_get(physical, "region"), "startLine")), 4);
    json_decref(root);
}

Test(project, chains_across_files_notebooks_and_kernels) {
    scratch s = scratch_make();
    char tree[256], json[256], sarif[256];
    mkdir(scratch_path(&s, "tree"), 0777);
    mkdir(scratch_path(&s, "tree/sam"), 0777);
    scratch_write(scratch_path(&s, "tree/a.py"), caller, sizeof caller - 1);
    scratch_write(scratch_path(&s, "tree/sam/predictor.py"), predictor, sizeof predictor - 1);
    scratch_write(scratch_path(&s, "tree/b.ipynb"), notebook, sizeof notebook - 1);
    scratch_write(scratch_path(&s, "tree/c.cl"), prints, sizeof prints - 1);
    snprintf(tree, sizeof tree, "%s", scratch_path(&s, "tree"));
    snprintf(json, sizeof json, "%s", scratch_path(&s, "a.json"));
    snprintf(sarif, sizeof sarif, "%s", scratch_path(&s, "a.sarif"));
    spawned r = spawn_run(
        &s, NULL, (const char *const[]){IST_CLI, "audit", "--source", tree, "--json", json, "--sarif", sarif, NULL});
    cr_assert_eq(r.code, 0, "exit code %d: %s", r.code, r.err);
    expect_text(r.out, tree);
    expect_json(json);
    expect_sarif(sarif);
    spawn_free(&r);
    scratch_remove(&s);
}

/* For a pipe: the text gives way. */
Test(sources, json_has_standard_output_to_itself) {
    scratch s = scratch_make();
    char path[256];
    snprintf(path, sizeof path, "%s", scratch_path(&s, "one.py"));
    scratch_write(path, chain, sizeof chain - 1);
    for (int sarif = 0; sarif < 2; sarif++) {
        spawned r = spawn_run(
            &s, NULL,
            (const char *const[]){IST_CLI, "audit", "--source", path, sarif ? "--sarif" : "--json", "-", NULL});
        json_t *root = json_loads(r.out, 0, NULL);
        cr_expect_eq(r.code, 0);
        cr_expect_not_null(root, "no JSON: %s", r.out);
        cr_expect_not_null(strstr(r.err, "1 critical, 0 medium"), "%s", r.err);
        json_decref(root);
        spawn_free(&r);
    }
    scratch_remove(&s);
}

Test(sources, usage) {
    scratch s = scratch_make();
    static const char *const wrong[][6] = {{"--source", NULL},
                                           {"--source=", NULL},
                                           {"--source", ".", "--budget", "reads=1", NULL},
                                           {"--source", ".", "--trace", "t.json", NULL},
                                           {"--source", ".", "--frame-kernel", "k", NULL},
                                           {"--source", ".", "image.png", NULL},
                                           {"--source", ".", "--", "true", NULL}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *argv[10] = {IST_CLI, "audit"};
        for (size_t k = 0; wrong[i][k]; k++) argv[k + 2] = wrong[i][k];
        spawned r = spawn_run(&s, NULL, argv);
        cr_expect_eq(r.code, 2, "case %zu gives %d: %s", i, r.code, r.err);
        cr_expect_str_empty(r.out);
        spawn_free(&r);
    }
    scratch_remove(&s);
}

/* Our own engine keeps its promise in its text, too. */
Test(sources, nothing_critical_in_our_own) {
    scratch s = scratch_make();
    expect(&s, IST_SOURCE_DIR "/src", 0, "0 critical, ", "");
    scratch_remove(&s);
}
