/* The parts of the command. Private to audit/app. */
#ifndef AUDIT_APP_PARTS_H
#define AUDIT_APP_PARTS_H

#include "cli.h"
#include "command.h"

/* Runs argv[0] with the layer, fills the log with what was seen, gives the program's exit code (128 + signal) in *code.
 * 0 or the exit code of a failure of our own. */
int audit_run_program(char **argv, ist_audit_log *log, int *code);

/* Source file and line of every place that debug information knows; equal places become one. */
ist_status audit_resolve(ist_audit_log *log, ist_error *err);

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
