/* Source files with planted faults (audit/source): each mark is found at its line, as it says, and nothing else. Then
 * what the samples do not show: contexts, chains, limits, hostile input. */
#include "support/source_text.h"

enum { MARK = 96, LONG_LINES = 1000000, MANY_FINDINGS = 300000, DEEP = 20000 };

static char *read_sample(const char *name, size_t *count) {
    char path[512];
    snprintf(path, sizeof path, "%s/tests/audit/source/%s", IST_SOURCE_DIR, name);
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f, "%s", path);
    char *text = malloc(1 << 16);
    cr_assert_not_null(text);
    *count = fread(text, 1, (1 << 16) - 1, f);
    text[*count] = '\0';
    fclose(f);
    return text;
}

/* What the line that ends at `end` says behind "expect: "; "" for nothing. */
static void read_mark(const char *line, const char *end, char mark[MARK]) {
    const char *at = strstr(line, " expect: ");
    size_t n = at && at < end ? (size_t)(end - at) - 9 : 0;
    cr_assert_lt(n, (size_t)MARK);
    if (n) memcpy(mark, at + 9, n);
    mark[n] = '\0';
}

static void check_sample(const char *name) {
    ist_audit_source s = {0};
    size_t count, marks = 0;
    char *text = read_sample(name, &count), mark[MARK], have[MARK];
    int number = 1;
    source_add(&s, name, text, count);
    cr_assert_eq(ist_audit_source_finish(&s, name, NULL), IST_OK);
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, number++) {
        read_mark(line, end, mark);
        source_words(source_at(&s, number), have, sizeof have);
        cr_expect_str_eq(have, mark, "%s:%d: found '%s', planted '%s'", name, number, have, mark);
        marks += *mark != '\0';
    }
    cr_expect_eq(s.report.finding_count, marks, "%s: %zu findings, %zu marks", name, s.report.finding_count, marks);
    cr_expect_gt(marks, (size_t)0);
    cr_expect_eq(s.skipped_count, 0);
    free(text);
    ist_audit_source_free(&s);
}

Test(planted, opencl_c) {
    check_sample("opencl.c");
}
Test(planted, opencl_cpp) {
    check_sample("bindings.cpp");
}
Test(planted, cuda) {
    check_sample("runtime.cu");
}
Test(planted, pytorch) {
    check_sample("torch_faults.py");
}
Test(planted, training) {
    check_sample("train_faults.py");
}
Test(planted, cupy) {
    check_sample("cupy_faults.py");
}
Test(planted, pyopencl) {
    check_sample("pyopencl_faults.py");
}

static size_t above_necessary(const char *name) {
    ist_audit_source s = {0};
    size_t count;
    char *text = read_sample(name, &count);
    source_add(&s, name, text, count);
    cr_assert_eq(ist_audit_source_finish(&s, name, NULL), IST_OK);
    size_t above = s.report.finding_count - (size_t)s.report.severities[IST_AUDIT_NECESSARY];
    free(text);
    ist_audit_source_free(&s);
    return above;
}

Test(planted, clean_code_has_nothing_above_necessary) {
    check_sample("clean.c");
    check_sample("clean.py");
    cr_expect_eq(above_necessary("clean.c"), 0);
    cr_expect_eq(above_necessary("clean.py"), 0);
}

/* ---- one line at a time ---- */

#define TORCH "import torch\n"

Test(python, calls_of_one_line_are_one_finding) {
    ist_audit_source s;
    source_audit(&s, "a.py", TORCH "def f(x: torch.Tensor):\n    return x.detach().cpu().numpy()\n");
    const ist_audit_finding *f = source_at(&s, 3);
    cr_assert_not_null(f);
    cr_expect_eq(s.report.finding_count, 1);
    cr_expect_eq(f->count, 3, "%d calls", (int)f->count);
    cr_expect_str_eq(ist_audit_label(&s.log, f->entry), ".detach().cpu().numpy()");
    ist_audit_source_free(&s);
}

Test(python, what_is_not_known_to_be_a_tensor_is_left_alone) {
    source_expect("a.py", TORCH "def f(x, d):\n    return float(x) + d.get(1) + x.numpy() + int(d[0])\n", 3, "", "");
    source_expect("a.py", TORCH "def f(x):\n    if x > 3: print(x, x.shape)\n", 3, "", "");
    source_expect("a.py", "def f(x):\n    return x.item(), x.tolist()\n", 2, "", "");
    source_expect("a.py", TORCH "x = torch.zeros(3)\ny = x.sum().item() + float(x[0])\nx.cpu()\n", 3, "", "");
    source_expect("a.py", TORCH "m = torch.nn.Linear(3, 4)\nm.to(torch.float16)\nm.cpu()\n", 3, "", "");
}

Test(python, what_a_condition_says_of_a_name) {
    source_expect("a.py",
                  TORCH "def f(v):\n    if isinstance(v, torch.Tensor):\n        a = float(v)\n    b = float(v)\n", 4,
                  "scalar_read minor", "float()");
    source_expect("a.py", TORCH "def f(v):\n    if not isinstance(v, torch.Tensor):\n        a = float(v)\n", 4, "",
                  "");
    source_expect("a.py", TORCH "def f(v):\n    assert isinstance(v, torch.Tensor) and bool(v)\n    b = float(v)\n", 3,
                  "scalar_read minor", "bool()");
}

Test(python, branches_begin_with_what_held_before) {
    static const char both[] =
        TORCH "def f(x, a):\n    y = x.cuda()\n    if a == 1:\n        y = y.cpu()\n"
              "    elif a == 2:\n        y = y.cpu()\n    else:\n        y = 3\n    y.tolist()\n";
    ist_audit_source s;
    char have[MARK];
    source_audit(&s, "a.py", both);
    cr_expect_eq(s.report.finding_count, 3);
    cr_expect_str_eq(source_words(source_at(&s, 5), have, sizeof have), "download necessary");
    cr_expect_str_eq(source_words(source_at(&s, 7), have, sizeof have), "download necessary");
    ist_audit_source_free(&s);
    /* what only one branch assigns holds behind it; a device is one if any branch says so */
    source_expect("a.py",
                  TORCH "def f(x):\n    if x.is_cuda:\n        x = x.cpu()\n    elif x:\n        pass\n    x.cpu()\n",
                  4, "download necessary", ".cpu()");
    source_expect("a.py", TORCH "def f(a):\n    if a: d = 'cuda'\n    else: d = 'cpu'\n    return g(a).to(d)\n", 5,
                  "upload necessary", ".to(device)");
    source_expect("a.py",
                  TORCH "def f(a):\n    d = 'cuda'\n    if a:\n        if a > 1: d = 'cpu'\n        elif a: pass\n"
                        "    else: g(a).to(d)\n",
                  7, "upload necessary", ".to(device)");
}

Test(python, lists_in_attributes_and_masks_by_name) {
    source_expect("a.py",
                  TORCH
                  "class A:\n    def __init__(self):\n        self.all = []\n    def put(self, x: torch.Tensor):\n"
                  "        self.all.append(x)\n    def get(self):\n        return torch.cat(self.all).cpu()\n",
                  8, "download necessary", ".cpu()");
    source_expect("a.py",
                  TORCH "def f(x: torch.Tensor, mask: torch.Tensor, order: torch.Tensor):\n"
                        "    y = x[order]\n    return x[mask]\n",
                  4, "data_dependent_shape minor", "[mask]");
}

Test(python, questions_about_torch_are_no_tensors) {
    source_expect("a.py", TORCH "if torch.jit.is_scripting() or torch.is_grad_enabled(): pass\n", 2, "", "");
    source_expect("a.py", TORCH "x = torch.zeros(3, device='cuda')\nif x._nnz() or x.is_contiguous(): pass\n", 3, "",
                  "");
    source_expect("a.py", TORCH "x = torch.zeros(3, device='cuda')\nif torch.linalg.norm(x) > 3: pass\n", 3,
                  "implicit_wait minor", "truth of a tensor");
}

Test(python, devices) {
    source_expect("a.py", TORCH "def step(x):\n    return x.to('cpu')\n", 3, "download necessary", ".to(\"cpu\")");
    source_expect("a.py", TORCH "def f(x):\n    return x.to(device=x.device)\n", 3, "upload necessary", ".to(device)");
    source_expect("a.py", TORCH "dev = 'cpu'\ndef f(x):\n    return x.to(dev)\n", 4, "download necessary",
                  ".to(\"cpu\")");
    source_expect("a.py", TORCH "def f(x, y):\n    return x.to(y)\n", 3, "", "");
    source_expect("a.py", TORCH "def f(x):\n    x = x.cuda()\n    return x.to('cuda')\n", 3, "upload necessary",
                  ".cuda()"); /* it is there already */
    source_expect("a.py", TORCH "def f(x):\n    return x.to('cuda:1', torch.half)\n", 3, "upload necessary",
                  ".to(device)");
}

Test(python, imports_name_the_functions) {
    source_expect("a.py", "import torch as T\nT.cuda.synchronize()\n", 2, "wait necessary", "torch.cuda.synchronize");
    source_expect("a.py", "from torch.cuda import synchronize as s\ns()\n", 2, "wait necessary",
                  "torch.cuda.synchronize");
    source_expect("a.py", "from torch import (\n    cuda,\n    nn,\n)\ncuda.synchronize()\n", 5, "wait necessary",
                  "torch.cuda.synchronize");
    source_expect("a.py", "import pycuda.driver as cuda\ncuda.memcpy_htod_async(a, b, s)\n", 2, "upload necessary",
                  "pycuda.driver.memcpy_htod_async");
    source_expect("a.py", "import mine as torch\ntorch.cuda.synchronize()\n", 2, "", "");
}

Test(python, where_a_string_ends) {
    source_expect("a.py", "a = 'x\\'y.cpu()'\nb = \"\"\"\n\\\"\"\" .cpu()\n\"\"\"\nz.cpu()\n", 5, "download necessary",
                  ".cpu()");
    source_expect("a.py", "a = r'\\'\nz.cpu()'\n", 2, "download necessary", ".cpu()"); /* r'\' goes on: no string */
    source_expect("a.py", "a = f'{z.cpu()} {{y.cpu()}} {w!r:>{n}}'\n", 1, "download necessary", ".cpu()");
    source_expect("a.py", "a = f\"{d[\"k\"]}\"\nz.cpu()\n", 2, "download necessary", ".cpu()");
    source_expect("a.py", "a = 'no end\nz.cpu()\n", 2, "download necessary", ".cpu()");
    source_expect("a.py", "a = '''no end\nz.cpu()\n", 2, "", "");
    source_expect("a.py", "a = (z\n  # y.cpu()\n  .cpu())\n", 3, "download necessary", ".cpu()");
    source_expect("a.py", "a = z. \\\n  cpu()\n", 2, "download necessary", ".cpu()");
}

Test(python, loops_and_comprehensions) {
    source_expect("a.py", TORCH "def forward(x):\n    return [y.item() for y in x]\n", 3, "scalar_read critical",
                  ".item()");
    source_expect("a.py", TORCH "def forward(x):\n    return {k: v.cpu() for k, v in x.items() if k}\n", 3,
                  "transfer_in_loop critical", ".cpu()");
    source_expect("a.py", TORCH "def forward(x):\n    for y in x.cpu(): pass\n    else: pass\n", 3,
                  "download necessary", ".cpu()");
    source_expect("a.py", TORCH "def init_all(x):\n    while True: x.item()\n", 3, "scalar_read medium", ".item()");
    source_expect("a.py", TORCH "def setup(x):\n    while True: x.item()\n", 3, "download necessary", ".item()");
}

Test(python, what_a_loop_calls_is_hot) {
    source_expect("a.py",
                  TORCH "def helper(x):\n    return x.item() + x.cpu()\ndef other():\n    for i in y: helper(i)\n", 3,
                  "split_transfer minor", ".item(), .cpu()");
    source_expect("a.py", TORCH "def helper(x):\n    assert (x > 0).all()\ndef infer(y):\n    helper(y)\n", 3,
                  "implicit_wait medium", "truth of a tensor");
}

Test(python, what_is_kept_is_built_once) {
    static const char imports[] = "import pyopencl as cl\n";
    char text[512];
    snprintf(text, sizeof text, "%sdef get(ctx):\n    return cl.Program(ctx, '').build()\ndef infer(x): get(x)\n",
             imports);
    source_expect("a.py", text, 3, "build_in_frame critical", "Program.build()");
    snprintf(text, sizeof text,
             "%s@lru_cache(maxsize=3)\ndef get(ctx):\n    return cl.Program(ctx, '').build()\n"
             "def infer(x): get(x)\n",
             imports);
    source_expect("a.py", text, 4, "", "");
}

Test(python, training_weighs_less) {
    source_expect("a.py", TORCH "def loss_labels(x):\n    for y in x: y.item()\n", 3, "scalar_read minor training",
                  ".item()");
    source_expect("a.py", TORCH "def f(x):\n    if self.training:\n        for y in x: y.item()\n", 4,
                  "scalar_read minor training", ".item()");
    source_expect("train/a.py", TORCH "def f(x):\n    for y in x: y.item()\n", 3, "scalar_read minor training",
                  ".item()");
    source_expect("train/a.py", TORCH "def evaluate(x):\n    for y in x:\n        for z in y: z.item()\n", 4,
                  "scalar_read critical", ".item()");
    source_expect("a.py", TORCH "def f(x, optimizer):\n    for y in x: y.item()\n    optimizer.step()\n", 3,
                  "scalar_read minor training", ".item()");
}

Test(c, where_calls_are) {
    source_expect("a.c", "void f(void) {\n    clFinish(q);\n}\n", 2, "wait necessary", "clFinish");
    source_expect("a.c", "void f(void)\n{ g(\"}\"); '{'; { clFinish(q); } }\n", 2, "wait necessary", "clFinish");
    source_expect("a.c", "#if 0\nvoid f(void) { clFinish(q); }\n#endif\nvoid g(void) { clFinish(q); }\n", 4,
                  "wait necessary", "clFinish");
    source_expect("a.c", "#define W clFinish(q); \\\n clFinish(q)\nvoid g(void) { W; }\n", 3, "", "");
    source_expect("a.c", "int clFinish(q);\nint (*p)(q) = clFinish;\n", 1, "", "");
    source_expect("a.cpp", "auto s = R\"x(\nvoid f() { clFinish(q); })\" )x\";\nA::A() : a{1}, b(2) { clFinish(q); }\n",
                  3, "wait necessary", "clFinish");
    source_expect("a.c", "void render(void) {\n  do clFinish(q); while (x);\n}\n", 2, "wait_in_loop critical",
                  "clFinish");
    source_expect("a.c", "void render(void) {\n  for (;;) if (a) b(); else clFinish(q);\n}\n", 2,
                  "wait_in_loop critical", "clFinish");
    source_expect("a.c", "void render(void) {\n  for (;;) { a(); }\n  clFinish(q);\n}\n", 3, "wait necessary",
                  "clFinish");
}

Test(c, words_that_other_libraries_have) {
    source_expect("a.cpp",
                  "void step() {\n  thread.wait(); parser.build(x); stream.flush(); copy(a, b); queue.finish();\n}\n",
                  2, "", ""); /* nothing of OpenCL in the file */
}

/* ---- limits and hostile input ---- */

static void add_and_finish(ist_audit_source *s, const char *path, const char *bytes, size_t count) {
    *s = (ist_audit_source){0};
    source_add(s, path, bytes, count);
    cr_assert_eq(ist_audit_source_finish(s, path, NULL), IST_OK);
}

static void expect_wait_at(const char *bytes, size_t count, int line) {
    ist_audit_source s;
    char have[MARK];
    add_and_finish(&s, "a.c", bytes, count);
    cr_expect_str_eq(source_words(source_at(&s, line), have, sizeof have), "wait necessary", "%zu bytes", count);
    ist_audit_source_free(&s);
}

static void expect_skipped(const char *bytes, size_t count) {
    ist_audit_source s;
    add_and_finish(&s, "a.c", bytes, count);
    cr_expect_eq(s.skipped_count, 1);
    cr_expect_str_eq(s.skipped[0].reason, "binary, not text");
    cr_expect_eq(s.report.finding_count, 0);
    ist_audit_source_free(&s);
}

Test(encodings, any_text_is_read_and_binaries_are_named) {
    static const char text[] = "// \xe9t\xe9\r\nvoid f() {\rclFinish(q); }"; /* Latin-1, two kinds of line ends */
    char wide[2 * sizeof text + 2] = "\xff\xfe", big[2 * sizeof text];
    expect_wait_at(text, sizeof text - 1, 3);
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        wide[2 + 2 * i] = big[2 * i + 1] = text[i];
        wide[3 + 2 * i] = big[2 * i] = '\0';
    }
    expect_wait_at(wide, 2 * sizeof text, 3);         /* with a mark */
    expect_wait_at(wide + 2, 2 * sizeof text - 2, 3); /* without */
    expect_wait_at(big, 2 * sizeof text - 2, 3);      /* big-endian */
    expect_wait_at("\xef\xbb\xbfvoid f() { clFinish(q); }", 28, 1);
    expect_skipped("\x7f"
                   "ELF\0\0\0\1",
                   8);
    expect_skipped("\xff\xfe\0\0v\0\0\0", 8);
    expect_skipped("\1\2\3\4\5\6abc", 9);
}

static char *repeat(const char *head, const char *body, size_t times, const char *tail, size_t *count) {
    size_t h = strlen(head), b = strlen(body), t = strlen(tail);
    char *text = malloc(h + b * times + t + 1);
    cr_assert_not_null(text);
    memcpy(text, head, h);
    for (size_t i = 0; i < times; i++) memcpy(text + h + i * b, body, b);
    memcpy(text + h + b * times, tail, t + 1);
    *count = h + b * times + t;
    return text;
}

Test(limits, a_million_lines) {
    ist_audit_source s;
    size_t count;
    char *text = repeat("", "x = f(a, b)  # c\n", LONG_LINES, "def infer(z):\n    z.cpu()\n", &count);
    add_and_finish(&s, "a.py", text, count);
    cr_expect_not_null(source_at(&s, LONG_LINES + 2));
    cr_expect_geq(s.lines, (uint64_t)LONG_LINES);
    ist_audit_source_free(&s);
    free(text);
    text = repeat("void f(void) {\n", "x = f(a, b);\n", LONG_LINES, "clFinish(q); }\n", &count);
    add_and_finish(&s, "a.c", text, count);
    cr_expect_not_null(source_at(&s, LONG_LINES + 2));
    ist_audit_source_free(&s);
    free(text);
}

Test(limits, findings_beyond_the_limit_are_counted) {
    ist_audit_source s;
    size_t count;
    char *text = repeat("", "z.cpu()\n", MANY_FINDINGS, "", &count);
    add_and_finish(&s, "a.py", text, count);
    cr_expect_eq(s.report.finding_count, IST_AUDIT_SOURCE_FINDINGS);
    cr_expect_eq(s.report.finding_count + s.log.dropped, MANY_FINDINGS);
    ist_audit_source_free(&s);
    free(text);
}

/* Each is deeper, or longer, than what is looked into; none may fail, and what follows in C is found again. */
Test(limits, depth_and_length) {
    static const char *const bodies[] = {"(",
                                         "[",
                                         "{",
                                         "a.",
                                         "a(",
                                         "not ",
                                         "-",
                                         "x[",
                                         "lambda: ",
                                         "a if b else ",
                                         "f'{",
                                         "x = ",
                                         "*",
                                         "a,",
                                         "for x in y: ",
                                         "'",
                                         "\"\"\"",
                                         "if x:\n ",
                                         "\\\n",
                                         "f(x for x in ",
                                         "class A:\n ",
                                         "def f(a, b=(",
                                         "await ",
                                         "a ** ",
                                         "#if 0\n",
                                         "/*",
                                         "R\"(",
                                         "<<<",
                                         "while (",
                                         "do ",
                                         "f<",
                                         "::",
                                         "case x: ",
                                         "@",
                                         "1e",
                                         "0x",
                                         ";",
                                         "\t",
                                         "\xff",
                                         "}"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        ist_audit_source s;
        size_t count;
        char *text = repeat("", bodies[i], DEEP, "", &count);
        add_and_finish(&s, "a.py", text, count);
        ist_audit_source_free(&s);
        add_and_finish(&s, "a.c", text, count);
        ist_audit_source_free(&s);
        free(text);
        text = repeat("void f(void) { ", bodies[i], 1000, "", &count);
        add_and_finish(&s, "a.c", text, count);
        ist_audit_source_free(&s);
        free(text);
    }
}

Test(limits, nesting_beyond_what_is_followed) {
    size_t count;
    char *text = repeat("void f(void) { ", "{", 300, "", &count), *more;
    more = repeat(text, "}", 300, "\nclFinish(q); }\n", &count);
    expect_wait_at(more, count, 2);
    free(more);
    free(text);
    text = repeat("void f(void) { ", "(", 300, "", &count);
    more = repeat(text, ")", 300, ";\nclFinish(q); }\n", &count);
    expect_wait_at(more, count, 2);
    free(more);
    free(text);
}

/* Lines that end where more would follow, as the fuzzer found them: with as many tokens as there is room for, what is
 * read behind the last one is not ours. */
Test(limits, lines_that_end_too_early) {
    static const char *const ends[] = {"def f(%sa:", "def f(%sa=lambda", "def f(%sa: =", "x[%sa] = lambda",
                                       "(%sa:",      "match %sa"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (int words = 0; words < 80; words++) {
            char text[400], many[200] = "";
            ist_audit_source s;
            for (int k = 0; k < words; k++) strcat(many, k % 2 ? ", " : "b");
            int n = snprintf(text, sizeof text, ends[i], many);
            add_and_finish(&s, "a.py", text, (size_t)n);
            ist_audit_source_free(&s);
        }
}

Test(limits, every_sample_cut_off_anywhere) {
    static const char *const names[] = {"opencl.c",        "bindings.cpp", "runtime.cu",        "clean.c",
                                        "torch_faults.py", "clean.py",     "pyopencl_faults.py"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t count;
        char *text = read_sample(names[i], &count);
        for (size_t n = 0; n < count; n += 7) {
            ist_audit_source s;
            add_and_finish(&s, names[i], text, n);
            ist_audit_source_free(&s);
        }
        free(text);
    }
}
