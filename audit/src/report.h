/* Reports: text for people, JSON and SARIF for programs, a trace for chrome://tracing and Perfetto. README.md in this
 * folder describes the formats. Writers write to an open stream; what a failing disk does shows when it is closed. */
#ifndef IST_AUDIT_REPORT_H
#define IST_AUDIT_REPORT_H

#include "audit/audit.h"

#include <stdio.h>

/* What the check against a budget said; `text` NULL: there was none. */
typedef struct ist_audit_verdict {
    const char *text; /* the budget as given */
    ist_audit_breach breach;
} ist_audit_verdict;

void ist_audit_write_text(const ist_audit_report *report, const ist_audit_verdict *verdict, FILE *out);
ist_status ist_audit_write_json(const ist_audit_report *report, const ist_audit_verdict *verdict, FILE *out,
                                ist_error *err);
ist_status ist_audit_write_sarif(const ist_audit_report *report, const ist_audit_verdict *verdict, FILE *out,
                                 ist_error *err);
ist_status ist_audit_write_trace(const ist_audit_report *report, FILE *out, ist_error *err);

/* Findings above 'necessary' that are new, and those of `old` (the text of an earlier JSON report) that are gone, to
 * `out`; their numbers to *added and *gone. Lines may move: a finding is known by category, call, file and function.
 * IST_E_INPUT when `old` is no such report. */
ist_status ist_audit_compare(const ist_audit_report *report, const char *old, size_t length, FILE *out, size_t *added,
                             size_t *gone, ist_error *err);
/* Whether `old` is such a report, to be asked before there is one to compare it with. */
ist_status ist_audit_check_older(const char *old, size_t length, ist_error *err);

/* The sentence about a breach: "frame 3 makes 2 reads, the budget allows 1: clEnqueueReadBuffer at a.c:10". */
char *ist_audit_breach_text(const ist_audit_report *report, const ist_audit_breach *breach, char *text, size_t size);

/* What a finding is known by in comparisons. */
char *ist_audit_finding_id(const ist_audit_report *report, const ist_audit_finding *finding, char *text, size_t size);

/* "repeating pattern" and so on. */
const char *ist_audit_frame_source_text(ist_audit_frame_source source);

#endif
