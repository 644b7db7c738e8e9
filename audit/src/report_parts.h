/* What the JSON writers share. Private to audit/src. */
#ifndef IST_AUDIT_REPORT_PARTS_H
#define IST_AUDIT_REPORT_PARTS_H

#include "audit/report.h"

#include <jansson.h>

enum { IST_AUDIT_ID = 1600, IST_AUDIT_SCHEMA = 1 };

/* Bytes that are not UTF-8 become '?': paths may hold anything. NULL gives NULL. */
json_t *ist_audit_json_string(const char *text);
json_t *ist_audit_json_number(uint64_t value);

/* NULL when there is no such place. */
const ist_audit_site *ist_audit_site_at(const ist_audit_log *log, uint32_t site);

/* Sets entry, file, line, function, module and offset; null where unknown. */
void ist_audit_json_place(json_t *to, const ist_audit_log *log, uint32_t entry, uint32_t site);

/* Places of a finding that has two ends, as an array: the way down, the way up; else an empty one. */
json_t *ist_audit_json_chain(const ist_audit_log *log, const ist_audit_finding *finding);

/* The way of a finding's data, as an array of places that each say which step it is; empty when it is not known. */
json_t *ist_audit_json_hops(const ist_audit_log *log, const ist_audit_finding *finding);

/* Writes and releases `root`. */
ist_status ist_audit_json_dump(json_t *root, FILE *out, ist_error *err);

#endif
