/* Python files that are audited together: planted faults whose two ends lie in different files (audit/project), the way
 * of their data hop by hop, and what names mean across files. */
#include "support/source_text.h"

enum { PLACE = 512 };

static const char *const project[] = {"detector.py",  "pipeline.py",      "sam/__init__.py",   "sam/build.py",
                                      "sam/model.py", "sam/predictor.py", "sam/transforms.py", "tools.py"};
enum { PROJECT = sizeof project / sizeof *project };

static char *read_sample(const char *name) {
    char path[PLACE];
    snprintf(path, sizeof path, "%s/tests/audit/project/%s", IST_SOURCE_DIR, name);
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f, "%s", path);
    char *text = calloc(1, 1 << 14);
    cr_assert_not_null(text);
    cr_assert_lt(fread(text, 1, (1 << 14) - 1, f), (size_t)(1 << 14) - 1);
    fclose(f);
    return text;
}

/* All files of the project, in an order that begins with number `first`. */
static void audit_project(ist_audit_source *s, int first) {
    *s = (ist_audit_source){0};
    for (int k = 0; k < PROJECT; k++) {
        const char *name = project[(first + k) % PROJECT];
        char *text = read_sample(name);
        source_add(s, name, text, strlen(text));
        free(text);
    }
    cr_assert_eq(ist_audit_source_finish(s, "project", NULL), IST_OK);
}

static const ist_audit_finding *finding_at(const ist_audit_source *s, const char *file, int line) {
    for (size_t k = 0; k < s->report.finding_count; k++) {
        const ist_audit_site *site = &s->log.sites[s->report.findings[k].site];
        if (site->line == line && !strcmp(site->file, file)) return &s->report.findings[k];
    }
    return NULL;
}

/* Each mark is found as it says, and nothing else. */
static size_t check_marks(const ist_audit_source *s, const char *name) {
    char *text = read_sample(name), have[96];
    size_t marks = 0;
    int number = 1;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, number++) {
        *end = '\0';
        const char *mark = strstr(line, " expect: ");
        mark = mark ? mark + 9 : "";
        source_words(finding_at(s, name, number), have, sizeof have);
        cr_expect_str_eq(have, mark, "%s:%d: found '%s', planted '%s'", name, number, have, mark);
        marks += *mark != '\0';
    }
    free(text);
    return marks;
}

/* "step place call" of each hop, a line for each. */
static void way_of(const ist_audit_source *s, const ist_audit_finding *f, char *text, size_t size) {
    size_t n = 0;
    *text = '\0';
    for (uint32_t k = 0; f && k < f->hop_count && n < size; k++) {
        const ist_audit_hop *hop = &s->log.hops[f->first_hop + k];
        const ist_audit_site *site = &s->log.sites[hop->site];
        n += (size_t)snprintf(text + n, size - n, "%s %s:%d %s\n", ist_audit_step_name(hop->step), site->file,
                              site->line, ist_audit_label(&s->log, hop->entry));
    }
}

Test(project, planted_faults_whatever_the_order_of_files) {
    for (int first = 0; first < PROJECT; first++) {
        ist_audit_source s;
        size_t marks = 0;
        audit_project(&s, first);
        for (int k = 0; k < PROJECT; k++) marks += check_marks(&s, project[k]);
        cr_expect_eq(s.report.finding_count, marks, "%zu findings, %zu marks", s.report.finding_count, marks);
        cr_expect_eq(s.python_files, (uint64_t)PROJECT);
        ist_audit_source_free(&s);
    }
}

static void expect_way(const ist_audit_source *s, const char *file, int line, const char *way) {
    char have[2048];
    way_of(s, finding_at(s, file, line), have, sizeof have);
    cr_expect_str_eq(have, way, "%s:%d goes\n%snot\n%s", file, line, have, way);
}

Test(project, the_way_of_the_data_hop_by_hop) {
    ist_audit_source s;
    audit_project(&s, 0);
    expect_way(&s, "pipeline.py", 19,
               "download pipeline.py:19 .detach().cpu().numpy()\n"
               "argument pipeline.py:21 Predictor.predict(box)\n"
               "argument sam/predictor.py:24 Resize.apply_boxes(boxes)\n"
               "argument sam/transforms.py:13 Resize.apply_coords(coords)\n"
               "result sam/transforms.py:13 Resize.apply_coords()\n"
               "result sam/predictor.py:24 Resize.apply_boxes()\n"
               "argument sam/predictor.py:25 Base.upload(values)\n"
               "upload sam/predictor.py:9 torch.as_tensor(device=)\n");
    expect_way(&s, "pipeline.py", 24,
               "download pipeline.py:24 .cpu()\n"
               "kept pipeline.py:24 boxes\n"
               "upload tools.py:5 .cuda()\n");
    expect_way(&s, "tools.py", 9,
               "download tools.py:9 .cpu()\n"
               "kept tools.py:10 boxes\n"
               "upload pipeline.py:29 torch.as_tensor(device=)\n");
    expect_way(&s, "pipeline.py", 32,
               "download pipeline.py:32 .cpu().numpy()\n"
               "unknown_call pipeline.py:34 associate()\n");
    const ist_audit_finding *f = finding_at(&s, "pipeline.py", 19);
    cr_expect_str_eq(s.log.sites[f->partner_site].file, "sam/predictor.py");
    cr_expect_str_eq(s.log.sites[f->partner_site].function, "Base.upload");
    ist_audit_source_free(&s);
}

/* ---- what names mean ---- */

#define UPLOADER                                                                                                       \
    "import torch\nclass U:\n    def put(self, x):\n        return x.cuda()\n"                                         \
    "def put(x):\n    return x.cuda()\n"

/* b.py takes something of a/u.py and calls it with a download: a chain, or not. */
static void expect_chain(const char *package, const char *user, int line, bool chain) {
    ist_audit_source s = {0};
    char have[96];
    source_add(&s, "a/__init__.py", package, strlen(package));
    source_add(&s, "a/u.py", UPLOADER, strlen(UPLOADER));
    source_add(&s, "b.py", user, strlen(user));
    cr_assert_eq(ist_audit_source_finish(&s, "b", NULL), IST_OK);
    const ist_audit_finding *f = finding_at(&s, "b.py", line);
    bool is = f && !strcmp(ist_audit_category_name(f->category), "read_write_chain");
    cr_expect_eq(is, chain, "'%s' at line %d of\n%s", source_words(f, have, sizeof have), line, user);
    ist_audit_source_free(&s);
}

Test(names, imports_of_all_kinds) {
    static const char f[] = "def step(y):\n    z = y.cpu()\n    ";
    static const struct {
        const char *package, *imports, *call;
    } all[] = {{"", "from a.u import put", "put(z)"},
               {"", "from a.u import put as p", "p(z)"},
               {"", "from a import u", "u.put(z)"},
               {"", "import a.u", "a.u.put(z)"},
               {"", "import a.u as v", "v.put(z)"},
               {"from .u import put", "from a import put", "put(z)"},
               {"from .u import put as q", "import a", "a.q(z)"},
               {"from .u import *", "from a import put", "put(z)"},
               {"from .u import *", "from a import *", "put(x=z)"},
               {"from . import u", "import a", "a.u.put(z)"},
               {"", "from a.u import U", "U().put(z)"},
               {"", "from a.u import U", "U.put(U(), z)"},
               {"", "from a.u import U\nkept = U()", "kept.put(x=z)"},
               {"", "from a.u import U\nall = [U(), U()]", "all[1].put(z)"},
               {"", "from a.u import U\nall = {'first': U}", "all['first']().put(z)"},
               {"", "from a.u import U\nclass V(U): pass", "V().put(z)"},
               {"", "from a.u import U\ndef make() -> U: return other()", "make().put(z)"},
               {"", "from a.u import put\nclass C:\n    x = 3\nc = C()", "c.x = z\n    put(c.x)"}};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        char user[512];
        int line = 2 + 1;
        for (const char *p = all[k].imports; *p; p++) line += *p == '\n';
        snprintf(user, sizeof user, "%s\n%s%s\n", all[k].imports, f, all[k].call);
        expect_chain(all[k].package, user, line, true);
    }
}

Test(names, what_only_looks_like_it_is_no_chain) {
    expect_chain("", "def put(x): return x\nfrom z import q\ndef step(y):\n    put(y.cpu())\n", 4, false);
    expect_chain("", "from a.u import put\ndef step(y):\n    put = str\n    put(y.cpu())\n", 4, false);
    expect_chain("", "from a.u import put\ndef step(y):\n    z = y.cpu()\n    put(y)\n", 3, false);
    expect_chain("", "from a.u import U\ndef step(y):\n    d = {'a': y.cpu(), 'b': y}\n    U().put(d['b'])\n", 3,
                 false);
    expect_chain("", "from a.u import U\ndef step(y):\n    d = {'a': y.cpu(), 'b': y}\n    U().put(d['a'])\n", 3, true);
    expect_chain("", "from a.u import put\ndef g(v): return v\ndef step(y):\n    z = g(y.cpu())\n    put(g(y))\n", 4,
                 false); /* results are those of the call's own arguments */
    expect_chain("", "from a.u import put\ndef g(v): return v\ndef step(y):\n    z = g(y.cpu())\n    put(z)\n", 4,
                 true);
    expect_chain("", "from a.u import put\ndef g(v): return 3, v\ndef step(y):\n    n, z = g(y.cpu())\n    put(n)\n", 4,
                 false);
    expect_chain("", "from a.u import put\ndef g(v): return 3, v\ndef step(y):\n    n, z = g(y.cpu())\n    put(z)\n", 4,
                 true);
}

Test(names, calls_that_nothing_defines) {
    static const char *const calls[] = {"self.other.predict(z)", "other_library.run(1, x=z)", "lost(z)"};
    static const char *const not [] = {"self.writer.write(z)", "print(z)",           "self.results.append(z)",
                                       "np.save(z)",           "cv2.imshow('a', z)", "json.dumps(z)"};
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
        char text[256];
        snprintf(text, sizeof text,
                 "import torch, other_library\nimport numpy as np\nimport cv2, json\n"
                 "def step(self, y):\n    z = y.cpu().numpy()\n    %s\n",
                 calls[k]);
        source_expect("a.py", text, 5, "handed_on medium", ".cpu().numpy()");
    }
    for (size_t k = 0; k < sizeof not / sizeof *not ; k++) {
        char text[256];
        snprintf(text, sizeof text,
                 "import torch, other_library\nimport numpy as np\nimport cv2, json\n"
                 "def step(self, y):\n    z = y.cpu().numpy()\n    %s\n",
                 not [k]);
        source_expect("a.py", text, 5, "download necessary", ".cpu().numpy()");
    }
}

/* ---- limits and hostile input ---- */

/* Modules, classes and functions that lead round in circles, and ways longer than are kept. */
Test(limits, circles_and_long_ways) {
    static const char *const files[][2] = {
        {"p/__init__.py", "from .q import *\nfrom .q import x as x\nfrom . import *\n"},
        {"p/q.py", "from . import *\nfrom . import x as x\nfrom p import y\nimport p.q.q.q\n"},
        {"r.py", "import torch\nfrom p import x, y\nclass A(B): pass\nclass B(C): pass\nclass C(A):\n"
                 "    def f(self, v):\n        self.v = self.v or v\n        return self.g(self.f(v))\n"
                 "    def g(self, v):\n        return A().f(self.v) + x(v) + y.z(v)\n"
                 "def step(t):\n    return A().g(t.cpu()).cuda()\n"}};
    ist_audit_source s = {0};
    for (size_t k = 0; k < sizeof files / sizeof *files; k++)
        source_add(&s, files[k][0], files[k][1], strlen(files[k][1]));
    cr_assert_eq(ist_audit_source_finish(&s, "p", NULL), IST_OK);
    cr_expect_not_null(finding_at(&s, "r.py", 12));
    ist_audit_source_free(&s);

    char *text = malloc(1 << 16);
    cr_assert_not_null(text);
    size_t n = (size_t)sprintf(text, "import torch\ndef f0(x): return x.cuda()\n");
    for (int k = 1; k < 60; k++) n += (size_t)sprintf(text + n, "def f%d(x): return f%d(x)\n", k, k - 1);
    n += (size_t)sprintf(text + n, "def step(y):\n    f5(y.cpu())\n");
    s = (ist_audit_source){0};
    source_add(&s, "a.py", text, n);
    cr_assert_eq(ist_audit_source_finish(&s, "a", NULL), IST_OK);
    const ist_audit_finding *f = finding_at(&s, "a.py", 63);
    cr_assert_not_null(f);
    cr_expect_eq(f->hop_count, 8, "%u hops", f->hop_count); /* down, six arguments, up */
    ist_audit_source_free(&s);
    free(text);
}
