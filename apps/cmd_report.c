/* isthmus report: one HTML file that shows a finished run, for people without the folder. It asks nothing of anywhere,
 * and nothing in it runs but the page's own script. */
#include "cli.h"
#include "page.h"
#include "report.h"

#include "io/atomic_file.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum { OPTION_PICTURES = 256, DEFAULT_PICTURES = 24, MOST_PICTURES = 100000 };

const cli_option cmd_report_options[] = {
    {"output", 'o', "FILE", "where to write the page (DIR/report.html)"},
    {"pictures", OPTION_PICTURES, "N", "show N of the pictures, evenly over the run (24); the file has them in it"},
    {NULL, 0, NULL, NULL},
};

/* The page while it is written. */
typedef struct page_file {
    const report *r;
    FILE *stream;
    ist_text text; /* not yet in the file */
    size_t shown;
} page_file;

static ist_status flush(page_file *p, ist_error *err) {
    IST_TRY(ist_text_status(&p->text, err));
    if (p->text.length)
        fwrite(p->text.data, 1, p->text.length, p->stream); /* committing asks whether all was written */
    ist_text_clear(&p->text);
    return IST_OK;
}

static ist_status put_policy(page_file *p, const char *page, ist_error *err) {
    char script[PAGE_DIGEST], style[PAGE_DIGEST];
    IST_TRY(page_digest(page, "script", script, err));
    IST_TRY(page_digest(page, "style", style, err));
    ist_text_printf(
        &p->text,
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-%s'; "
        "style-src 'sha256-%s'; img-src data:; base-uri 'none'; form-action 'none'\">",
        script, style);
    return IST_OK;
}

static void put_limit(page_file *p) {
    const report *r = p->r;
    if (r->pictures < r->images)
        ist_text_printf(&p->text, "<p>%zu of %zu pictures are here, evenly over the run; --pictures N shows more.</p>",
                        r->pictures, r->images);
}

static void put_classes(page_file *p) {
    for (size_t i = 0; i < p->r->class_count; i++) {
        ist_text_printf(&p->text, "<option value=\"%zu\">", i);
        report_put_text(&p->text, p->r->classes[i].name);
        ist_text_put(&p->text, "</option>\n");
    }
}

static ist_status put_frame(void *arg, size_t index, const json_t *frame, ist_error *err) {
    page_file *p = arg;
    if (!report_shows(p->r, index)) return IST_OK;
    p->shown++;
    IST_TRY(report_put_picture(&p->text, p->r, frame, err));
    return flush(p, err);
}

/* What stands in the place of a mark of the page. */
static ist_status put_part(page_file *p, const char *page, const char *mark, ist_error *err) {
    if (!strncmp(mark, "policy", 6)) return put_policy(p, page, err);
    if (!strncmp(mark, "summary", 7)) report_put_summary(&p->text, p->r);
    if (!strncmp(mark, "limit", 5)) put_limit(p);
    if (!strncmp(mark, "classes", 7)) put_classes(p);
    if (!strncmp(mark, "pictures", 8)) return report_each_frame(p->r, put_frame, p, err);
    return IST_OK;
}

static ist_status write_page(page_file *p, ist_error *err) {
    const char *page = page_text("report");
    for (const char *at = page, *mark; *at;) {
        mark = strstr(at, "<!--");
        ist_text_add(&p->text, at, mark ? (size_t)(mark - at) : strlen(at));
        if (!mark) break;
        IST_TRY(put_part(p, page, mark + 4, err));
        at = strstr(mark, "-->") + 3;
    }
    return flush(p, err);
}

/* `output` NULL: report.html in the folder. */
static ist_status write_file(page_file *p, const char *output, long *bytes, ist_error *err) {
    ist_atomic_file file;
    IST_TRY(output ? ist_atomic_begin(&file, output, err)
                   : ist_atomic_begin_in(&file, p->r->folder, "report.html", err));
    p->stream = file.stream;
    ist_status status = write_page(p, err);
    *bytes = ftell(file.stream);
    if (status)
        ist_atomic_abort(&file);
    else
        status = ist_atomic_commit(&file, err);
    ist_text_free(&p->text);
    return status;
}

static int run(report *r, const char *output) {
    page_file p = {.r = r};
    ist_error err;
    long bytes = 0;
    ist_status status = output ? ist_atomic_try(output, &err) : IST_OK;
    if (!status) status = report_read(r, &err);
    if (!status) status = write_file(&p, output, &bytes, &err);
    if (status) return cli_fail(CLI_FAILED, "%s", err.text);
    cli_note("%s%s: %zu of %zu pictures, %.1f MB", output ? output : r->folder, output ? "" : "/report.html", p.shown,
             r->images, (double)bytes / 1e6);
    return CLI_SUCCESS;
}

int cmd_report(int argc, char **argv) {
    const char *value, *output = NULL;
    int id, pictures = DEFAULT_PICTURES, code = CLI_SUCCESS;
    while ((id = cli_next("report", cmd_report_options, argc, argv, &value, &code)) != CLI_END) {
        if (id == CLI_STOP) return code;
        if (id == 'o') output = value;
        if (id == OPTION_PICTURES && !cli_parse_int(value, 0, MOST_PICTURES, &pictures))
            return cli_usage("report", "--pictures: '%s' is not a whole number from 0 to %d", value, MOST_PICTURES);
    }
    if (argc - optind != 1 || !*argv[optind]) return cli_usage("report", "name one folder that predict has written");
    report r = {.folder = argv[optind], .pictures = (size_t)pictures};
    code = run(&r, output);
    report_free(&r);
    return code;
}
