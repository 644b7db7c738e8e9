/* The parts of `isthmus audit`. Used by audit_*.c and cmd_audit.c only. */
#ifndef APPS_AUDIT_H
#define APPS_AUDIT_H

#include "audit/report.h"
#include "cli.h"

/* Its part of the command line; strings point into argv. */
typedef struct audit_options {
    const char *budget, *json, *sarif, *trace, *baseline, *report, *frame_kernel, *source;
    ist_audit_budget limits;
} audit_options;

/* Runs argv[0] with the layer, fills the log with what was seen, gives the program's exit code (128 + signal) in *code.
 * 0 or the exit code of a failure of our own. */
int audit_run_program(char **argv, ist_audit_log *log, int *code);

/* Runs `predict` with this command line and concludes; the exit code. A run that failed goes before a broken budget,
 * and that before a run of which some inputs failed: what it saw of the others is complete. Without a budget the
 * engine's own promise holds: one write, one read and one wait per submission. */
int audit_run_own(int argc, char **argv, audit_options *options);

/* Source file and line of every place that debug information knows; equal places become one. */
ist_status audit_resolve(ist_audit_log *log, ist_error *err);

/* Judges, writes all reports; 0, CLI_OVER_BUDGET or the exit code of a failure. The text goes to `text_default`
 * ("-": standard output, "": standard error) unless --report names a file. */
int audit_conclude(ist_audit_log *log, const audit_options *options, const char *text_default);

/* Reads the sources in options->source and concludes; the exit code (CLI_PARTIAL: some could not be read). */
int audit_source(const audit_options *options);

typedef ist_status audit_writer(void *what, FILE *out, ist_error *err);

/* To standard output for "-", to standard error for "", nowhere for NULL, else a file that appears complete or not at
 * all. */
ist_status audit_write(const char *path, audit_writer *write, void *what, ist_error *err);

/* Before anything is run: whether what the options name can be written and --baseline is a report. 0, or the exit code
 * after a sentence. */
int audit_check_files(const audit_options *options);

/* Where the text goes: where --report says, to standard error when another report takes standard output, else to
 * `text_default`. */
const char *audit_text_place(const audit_options *options, const char *text_default);

/* What is new and what is gone since the JSON report `baseline` (NULL: nothing to compare with). */
ist_status audit_compare(const ist_audit_report *report, const char *baseline, FILE *out, ist_error *err);

#endif
