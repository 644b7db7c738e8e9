/* The end of every form of the command: frames, findings, budget, reports. */
#include "parts.h"

#include "io/atomic_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ist_status audit_write(const char *path, audit_writer *write, void *what, ist_error *err) {
    ist_atomic_file file;
    if (!path) return IST_OK;
    if (!*path) return write(what, stderr, err);
    if (!strcmp(path, "-")) return write(what, stdout, err);
    IST_TRY(ist_atomic_begin(&file, path, err));
    ist_status status = write(what, file.stream, err);
    if (!status) return ist_atomic_commit(&file, err);
    ist_atomic_abort(&file);
    return status;
}

static bool is_stdout(const char *path) {
    return path && !strcmp(path, "-");
}

const char *audit_text_place(const audit_options *o, const char *text_default) {
    if (o->report) return o->report;
    return is_stdout(o->json) || is_stdout(o->sarif) || is_stdout(o->trace) ? "" : text_default;
}

enum { MOST_BASELINE = 256 << 20 };

static ist_status check_baseline(const char *baseline, ist_error *err) {
    char *old;
    size_t length;
    IST_TRY(ist_read_file(baseline, MOST_BASELINE, &old, &length, err));
    ist_status status = ist_audit_check_older(old, length, err);
    free(old);
    return status ? ist_fail_context(err, "%s", baseline) : IST_OK;
}

int audit_check_files(const audit_options *o) {
    const char *written[] = {o->report, o->json, o->sarif, o->trace};
    static const char *const names[] = {"report", "json", "sarif", "trace"};
    ist_error err;
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        for (size_t k = 0; k < i; k++)
            if (written[i] && written[k] && !strcmp(written[i], written[k]))
                return cli_usage("audit", "--%s and --%s both write to '%s'", names[k], names[i], written[i]);
    ist_status status = o->baseline ? check_baseline(o->baseline, &err) : IST_OK;
    for (size_t i = 0; i < sizeof written / sizeof *written && !status; i++)
        if (written[i] && *written[i] && strcmp(written[i], "-") != 0) status = ist_atomic_try(written[i], &err);
    return status ? cli_fail(CLI_FAILED, "%s", err.text) : CLI_SUCCESS;
}

ist_status audit_compare(const ist_audit_report *report, const char *baseline, FILE *out, ist_error *err) {
    char *old;
    size_t length, added, gone;
    if (!baseline) return IST_OK;
    IST_TRY(ist_read_file(baseline, MOST_BASELINE, &old, &length, err));
    ist_status status = ist_audit_compare(report, old, length, out, &added, &gone, err);
    free(old);
    return status ? ist_fail_context(err, "%s", baseline) : IST_OK;
}

typedef struct outcome {
    const ist_audit_report *report;
    const ist_audit_verdict *verdict;
    const char *baseline; /* NULL: no comparison */
} outcome;

static ist_status write_text(void *what, FILE *out, ist_error *err) {
    const outcome *o = what;
    ist_audit_write_text(o->report, o->verdict, out);
    return audit_compare(o->report, o->baseline, out, err);
}

static ist_status write_json(void *what, FILE *out, ist_error *err) {
    return ist_audit_write_json(((outcome *)what)->report, ((outcome *)what)->verdict, out, err);
}

static ist_status write_sarif(void *what, FILE *out, ist_error *err) {
    return ist_audit_write_sarif(((outcome *)what)->report, ((outcome *)what)->verdict, out, err);
}

static ist_status write_trace(void *what, FILE *out, ist_error *err) {
    return ist_audit_write_trace(((outcome *)what)->report, out, err);
}

static ist_status write_all(const ist_audit_report *report, const ist_audit_verdict *verdict, const audit_options *o,
                            const char *text_default, ist_error *err) {
    outcome what = {report, verdict, o->baseline};
    IST_TRY(audit_write(audit_text_place(o, text_default), write_text, &what, err));
    IST_TRY(audit_write(o->json, write_json, &what, err));
    IST_TRY(audit_write(o->sarif, write_sarif, &what, err));
    return audit_write(o->trace, write_trace, &what, err);
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
