/* Notebooks, cell by cell, and kernels in OpenCL C. */
#include "support/source_text.h"

#define CODE(source)   "{\"cell_type\":\"code\",\"metadata\":{},\"outputs\":[],\"source\":" source "}"
#define MARKED(source) "{\"cell_type\":\"markdown\",\"source\":" source "}"
#define PYTHON         "\"metadata\":{\"language_info\":{\"name\":\"python\"}}"

enum { PLACE = 256 };

static void expect_place(const ist_audit_source *s, size_t finding, const char *words, const char *place) {
    char have[96], where[PLACE];
    cr_assert_lt(finding, s->report.finding_count, "%zu findings", s->report.finding_count);
    const ist_audit_finding *f = &s->report.findings[finding];
    cr_expect_str_eq(source_words(f, have, sizeof have), words, "%s", have);
    cr_expect_str_eq(ist_audit_site_text(&s->log, f->site, where, sizeof where), place, "%s", where);
}

Test(notebooks, places_are_cell_and_line) {
    static const char text[] =
        "{" PYTHON
        ",\"nbformat\":4,\"cells\":[" MARKED("\"z.cpu()\"") "," CODE("[\"import torch\\n\", \"%matplotlib inline\\n\", "
                                                                     "\"!pip install x\\n\", \"z = "
                                                                     "model(torch.ones(3)).cpu()\"]") "," CODE(
            "\"%%bash\\nx.cpu()\"") "," CODE("\"%%time\\nopen(\\ny.cpu()\"") "," CODE("\"\\r\\n\\r\\nw.cpu()\\n\"") "]"
                                                                                                                    "}";
    ist_audit_source s;
    source_audit(&s, "a.ipynb", text);
    cr_assert_eq(s.report.finding_count, 3);
    expect_place(&s, 0, "download necessary", "a.ipynb:2:4");
    expect_place(&s, 1, "download necessary", "a.ipynb:4:3");
    expect_place(&s, 2, "download necessary", "a.ipynb:5:3");
    cr_expect_eq(s.notebooks, 1);
    cr_expect_eq(s.python_files, 1);
    cr_expect_eq(s.lines, 12);
    ist_audit_source_free(&s);
}

Test(notebooks, cells_follow_each_other_and_use_the_project) {
    static const char text[] = "{" PYTHON ",\"cells\":[" CODE("\"from upload import put\"") "," CODE(
        "\"def step(y):\\n    z = y.cpu()\\n    put(z)\"") "]}";
    static const char module[] = "import torch\ndef put(x):\n    return x.cuda()\n";
    ist_audit_source s = {0};
    char where[PLACE];
    source_add(&s, "a.ipynb", text, sizeof text - 1);
    source_add(&s, "upload.py", module, sizeof module - 1);
    cr_assert_eq(ist_audit_source_finish(&s, "a", NULL), IST_OK);
    expect_place(&s, 0, "read_write_chain critical", "a.ipynb:2:2 in step");
    const ist_audit_finding *f = &s.report.findings[0];
    cr_assert_eq(f->hop_count, 3);
    cr_expect_str_eq(ist_audit_site_text(&s.log, s.log.hops[f->first_hop + 1].site, where, sizeof where),
                     "a.ipynb:2:3");
    cr_expect_str_eq(ist_audit_site_text(&s.log, f->partner_site, where, sizeof where), "upload.py:3 in put");
    ist_audit_source_free(&s);
}

static void expect_skipped(const char *text, const char *reason) {
    ist_audit_source s;
    source_audit(&s, "a.ipynb", text);
    cr_expect_eq(s.report.finding_count, 0);
    cr_expect_eq(s.python_files, 0);
    cr_assert_eq(s.skipped_count, reason != NULL, "%s", text);
    if (reason) cr_expect_str_eq(s.skipped[0].reason, reason, "%s", text);
    ist_audit_source_free(&s);
}

Test(notebooks, what_is_none_is_named) {
    expect_skipped("", "not a notebook");
    expect_skipped("z.cpu()", "not a notebook");
    expect_skipped("[]", "not a notebook");
    expect_skipped("{\"cells\":3}", "not a notebook");
    expect_skipped("{\"cells\":[]", "not a notebook");
    expect_skipped("{\"metadata\":{\"kernelspec\":{\"language\":\"R\"}},\"cells\":[]}",
                   "a notebook in another language");
}

Test(notebooks, odd_ones_are_read) {
    static const char *const all[] = {
        "{\"cells\":[]}", "{\"cells\":[3,null,{},{\"cell_type\":\"code\"},{\"cell_type\":\"code\",\"source\":[3,{}]}]}",
        "{\"cells\":[{\"cell_type\":\"code\",\"source\":\"\"},{\"cell_type\":\"code\",\"source\":\"\\n\\r\\n\\r\"}]}"};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        ist_audit_source s;
        source_audit(&s, "a.ipynb", all[k]);
        cr_expect_eq(s.skipped_count, 0);
        cr_expect_eq(s.notebooks, 1);
        ist_audit_source_free(&s);
    }
    ist_audit_source s; /* version 3 */
    source_audit(&s, "a.ipynb",
                 "{\"worksheets\":[{\"cells\":[{\"cell_type\":\"code\",\"input\":[\"x = 3\\n\",\"z.cpu()\"]}]}]}");
    expect_place(&s, 0, "download necessary", "a.ipynb:1:2");
    ist_audit_source_free(&s);
}

/* ---- kernels ---- */

#define KERNEL "__kernel __attribute__((reqd_work_group_size(8, 8, 1))) void scale(__global float *x)\n"

Test(kernels, are_counted_and_their_prints_found) {
    static const char text[] =
        "float half_of(float x) { return x / 2; } // printf(1)\n" KERNEL
        "{\n    if (x[0] > 3) {\n        printf(\"%f printf(\", x[0]);\n    }\n"
        "#ifdef DEBUG\n    printf(\"here\");\n#endif\n}\nkernel void other(void) { scale(0); }\n";
    ist_audit_source s;
    source_audit(&s, "a.cl", text);
    cr_expect_eq(s.kernel_files, 1);
    cr_expect_eq(s.c_files, 0);
    cr_expect_eq(s.kernels, 2);
    cr_expect_eq(s.report.finding_count, 2);
    expect_place(&s, 0, "kernel_prints medium", "a.cl:5 in scale");
    expect_place(&s, 1, "kernel_prints minor", "a.cl:8 in scale");
    ist_audit_source_free(&s);
}

Test(kernels, nothing_else_is_a_finding) {
    source_expect("a.cl", KERNEL "{ my_printf(1); printf; }\nvoid printf(int);\n", 2, "", "");
    source_expect("a.cl", "}}}} ((( {{ kernel", 1, "", "");
    source_expect("a.cl", "#if 0\nkernel void f() { printf(\"\"); }\n#endif\n#endif\n", 2, "", "");
}
