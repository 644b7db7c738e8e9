/* `audit` as a command: its options, its forms, the end that all forms have. What runs under audit is another program,
 * or sources that are only read; `isthmus audit` adds its own run. */
#ifndef AUDIT_APP_COMMAND_H
#define AUDIT_APP_COMMAND_H

#include "audit/report.h"

/* Its part of the command line; strings point into argv. */
typedef struct audit_options {
    const char *budget, *json, *sarif, *trace, *baseline, *report, *frame_kernel, *source;
    ist_audit_budget limits;
} audit_options;

/* Audits a run of its own with what is left of the command line without the options above; the exit code. */
typedef int audit_own(int argc, char **argv, audit_options *options);

/* The whole command; argv[0] is its name. Without `own` (NULL) there is no such form. Returns the exit code. */
int audit_command(int argc, char **argv, audit_own *own);

/* Judges, writes all reports; 0, CLI_OVER_BUDGET or the exit code of a failure. The text goes to `text_default`
 * ("-": standard output, "": standard error) unless --report names a file. */
int audit_conclude(ist_audit_log *log, const audit_options *options, const char *text_default);

#endif
