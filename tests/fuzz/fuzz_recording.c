/* libFuzzer: any bytes as a recording of the audit layer, through judgement and a report, and as an older report.
 */
#include "audit/load.h"
#include "audit/report.h"
#include "audit/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One of the reports, since each takes longer than all the rest; what follows the last event says which. */
static void write_report(const ist_audit_report *report, const char *old, size_t length, FILE *out) {
    ist_audit_verdict verdict = {.text = "reads=1,writes=1,waits=1"};
    ist_audit_budget budget;
    size_t added, gone;
    if (ist_audit_parse_budget(verdict.text, &budget, NULL)) abort();
    if (ist_audit_check_budget(report, &budget, &verdict.breach, NULL)) abort();
    ist_status status = IST_OK;
    switch (length % 8) {
    case 1:
        status = ist_audit_write_json(report, &verdict, out, NULL);
        break;
    case 2:
        status = ist_audit_write_sarif(report, &verdict, out, NULL);
        break;
    case 3:
        status = ist_audit_write_trace(report, out, NULL);
        break;
    case 4:
        ist_audit_compare(report, old, length, out, &added, &gone, NULL); /* most are no report */
        break;
    default:
        ist_audit_write_text(report, &verdict, out);
    }
    if (status) abort();
}

/* The events after the header page; a page of the fuzzer's own would only be in its way. */
static char *with_header(const uint8_t *data, size_t size, size_t *total) {
    ist_audit_wire_header header = {.magic = IST_AUDIT_WIRE_MAGIC, .pid = 9};
    *total = IST_AUDIT_WIRE_HEADER + size;
    char *bytes = calloc(1, *total);
    if (!bytes) abort();
    memcpy(bytes, &header, sizeof header);
    if (size) memcpy(bytes + IST_AUDIT_WIRE_HEADER, data, size);
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ist_audit_log log = {0};
    ist_audit_frames frames;
    ist_audit_report report;
    size_t total;
    FILE *out = fopen("/dev/null", "w");
    char *bytes = with_header(data, size, &total);
    if (!out || ist_audit_load(&log, bytes, total, NULL)) abort();
    ist_audit_sort(&log);
    ist_audit_settle_copies(&log);
    if (ist_audit_merge_sites(&log, NULL) || ist_audit_find_frames(&log, NULL, &frames, NULL)) abort();
    if (ist_audit_judge(&log, frames, &report, NULL)) abort();
    write_report(&report, (const char *)data, size, out);
    ist_audit_report_free(&report);
    ist_audit_log_free(&log);
    free(bytes);
    fclose(out);
    return 0;
}
