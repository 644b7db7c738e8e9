/* What the audit of Python takes a value to be, a few lines of text at a time: which of them it reports. */
#include "support/source_text.h"

/* The lines of a.py that have findings, " 4 7"; `more`: text of a second file, b.py, or NULL. */
static const char *lines_of(const char *text, const char *more, char *lines, size_t size) {
    ist_audit_source s = {0};
    size_t n = 0;
    source_add(&s, "a.py", text, strlen(text));
    if (more) source_add(&s, "b.py", more, strlen(more));
    cr_assert_eq(ist_audit_source_finish(&s, "a", NULL), IST_OK);
    *lines = '\0';
    for (int line = 1; line < 64; line++)
        for (size_t k = 0; k < s.report.finding_count; k++) {
            const ist_audit_site *site = &s.log.sites[s.report.findings[k].site];
            if (site->line == line && !strcmp(site->file, "a.py") && n < size)
                n += (size_t)snprintf(lines + n, size - n, " %d", line);
        }
    ist_audit_source_free(&s);
    return lines;
}

static void expect_lines(const char *text, const char *more, const char *expected) {
    char lines[256];
    cr_expect_str_eq(lines_of(text, more, lines, sizeof lines), expected, "lines%s, not%s, in:\n%s", lines, expected,
                     text);
}

/* A number that means a function for one kind of value and a class for another stays with its kind. */
Test(values, functions_and_classes_among_others) {
    static const char functions[] = "import torch\nx = torch.zeros(1)\n"
                                    "def f(y): return y.cuda()\ndef g(y): return y\ndef h(y): return y\n";
    static const char *const uses[] = {
        "a = [x, f][0]\na['k'] = 3\n",
        "a = {'k': x, 'l': h}\na['m']['n'] = h\n",
        "a = h if x else x\na.b = x\na[0].c[1] = x\n",
        "def k(y): k[y]['a'] = h[y]['b']['c']\n", /* a name that a local variable hides, for Python */
        "def k(v: torch.Tensor = None): return v['a']['b']\nk(h)\nk(x)\n",
        "class C:\n    d = [h, x]\n    def m(self): self.d[0]['e'] = self.d\n"};
    for (size_t k = 0; k < sizeof uses / sizeof *uses; k++) {
        char text[512];
        snprintf(text, sizeof text, "%s%s", functions, uses[k]);
        expect_lines(text, NULL, " 3");
    }
    expect_lines(
        "import torch\ndef f(y):\n    return y.cpu()\ndef step(y):\n    z = [f, f][0](y)\n    return z.cuda()\n", NULL,
        " 3"); /* a chain through a function in a list */
}
