/* The end of every form of `isthmus audit`: frames, findings, budget, reports. */
#include "audit.h"

#include "audit/report.h"
#include "io/atomic_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef ist_status writer(const ist_audit_report *report, const ist_audit_verdict *verdict, FILE *out, ist_error *err);

static ist_status write_trace(const ist_audit_report *report, const ist_audit_verdict *verdict, FILE *out,
                              ist_error *err) {
    (void)verdict;
    return ist_audit_write_trace(report, out, err);
}

/* To standard output for "-", else a file that appears complete or not at all. */
static ist_status write_to(const char *path, writer *write, const ist_audit_report *report,
                           const ist_audit_verdict *verdict, ist_error *err) {
    ist_atomic_file file;
    if (!path) return IST_OK;
    if (!strcmp(path, "-")) return write(report, verdict, stdout, err);
    IST_TRY(ist_atomic_begin(&file, path, err));
    ist_status status = write(report, verdict, file.stream, err);
    if (!status) return ist_atomic_commit(&file, err);
    ist_atomic_abort(&file);
    return status;
}

typedef struct text_parts {
    const char *baseline; /* NULL: no comparison */
    char *old;
    size_t length;
} text_parts;

static ist_status write_text(const ist_audit_report *report, const ist_audit_verdict *verdict, const text_parts *parts,
                             FILE *out, ist_error *err) {
    size_t added, gone;
    ist_audit_write_text(report, verdict, out);
    if (!parts->old) return IST_OK;
    if (!ist_audit_compare(report, parts->old, parts->length, out, &added, &gone, err)) return IST_OK;
    return ist_fail_context(err, "%s", parts->baseline);
}

static ist_status write_report(const char *path, const ist_audit_report *report, const ist_audit_verdict *verdict,
                               const text_parts *parts, ist_error *err) {
    ist_atomic_file file;
    if (!*path) return write_text(report, verdict, parts, stderr, err);
    if (!strcmp(path, "-")) return write_text(report, verdict, parts, stdout, err);
    IST_TRY(ist_atomic_begin(&file, path, err));
    ist_status status = write_text(report, verdict, parts, file.stream, err);
    if (!status) return ist_atomic_commit(&file, err);
    ist_atomic_abort(&file);
    return status;
}

static ist_status write_all(const ist_audit_report *report, const ist_audit_verdict *verdict, const audit_options *o,
                            const char *text_default, ist_error *err) {
    enum { MOST_BASELINE = 256 << 20 };
    text_parts parts = {.baseline = o->baseline};
    if (o->baseline) IST_TRY(ist_read_file(o->baseline, MOST_BASELINE, &parts.old, &parts.length, err));
    ist_status status = write_report(o->report ? o->report : text_default, report, verdict, &parts, err);
    free(parts.old);
    IST_TRY(status);
    IST_TRY(write_to(o->json, ist_audit_write_json, report, verdict, err));
    IST_TRY(write_to(o->sarif, ist_audit_write_sarif, report, verdict, err));
    return write_to(o->trace, write_trace, report, verdict, err);
}

int audit_conclude(ist_audit_log *log, const audit_options *o, const char *text_default) {
    ist_audit_frames frames;
    ist_audit_report report = {0};
    ist_audit_verdict verdict = {.text = o->budget};
    ist_error err;
    char text[1024];
    ist_status status = ist_audit_find_frames(log, o->frame_kernel, &frames, &err);
    if (!status) status = ist_audit_judge(log, frames, &report, &err);
    if (!status && o->budget) status = ist_audit_check_budget(&report, &o->limits, &verdict.breach, &err);
    if (!status) status = write_all(&report, &verdict, o, text_default, &err);
    int code = status ? cli_fail(CLI_FAILED, "%s", err.text) : CLI_SUCCESS;
    if (!status && o->budget && !frames.count)
        cli_note("no frames were recognised: the budget is for the whole run; --frame-kernel NAME tells where a frame "
                 "begins");
    if (!status && verdict.breach.what)
        code = cli_fail(CLI_OVER_BUDGET, "over budget: %s",
                        ist_audit_breach_text(&report, &verdict.breach, text, sizeof text));
    ist_audit_report_free(&report);
    return code;
}
