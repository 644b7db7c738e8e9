/* libFuzzer: any bytes as source files. The first byte chooses the language and the report, form feeds end a file of a
 * project of up to four. */
#include "audit/source.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold of every report. */
static void check(const ist_audit_source *s, size_t size) {
    const ist_audit_report *r = &s->report;
    uint64_t counted = 0;
    for (int k = 0; k < IST_AUDIT_SEVERITY_COUNT; k++) counted += r->severities[k];
    if (counted != r->finding_count) abort();
    for (size_t k = 0; k < r->finding_count; k++) {
        const ist_audit_finding *f = &r->findings[k];
        if (f->site >= s->log.site_count || f->entry >= s->log.label_count || !f->count) abort();
        if (s->log.sites[f->site].line < 1 || (size_t)s->log.sites[f->site].line > size + 1) abort();
        if (f->partner_site != IST_AUDIT_NONE && f->partner_site >= s->log.site_count) abort();
        if (f->first_hop + f->hop_count > s->log.hop_count) abort();
        for (uint32_t h = 0; h < f->hop_count; h++) {
            const ist_audit_hop *hop = &s->log.hops[f->first_hop + h];
            if (hop->site >= s->log.site_count || hop->entry >= s->log.label_count) abort();
            if ((hop->step == IST_AUDIT_STEP_DOWN) != (h == 0)) abort();
        }
        if (f->context == IST_AUDIT_CONTEXT_RUN) abort();
    }
}

/* One of them, since writing takes longer than reading the source: text, for most inputs. */
static void write_report(const ist_audit_source *s, int which, FILE *f) {
    if (which == 1) {
        if (ist_audit_source_write_json(s, f, NULL)) abort();
    } else if (which == 2) {
        if (ist_audit_write_sarif(&s->report, NULL, f, NULL)) abort();
    } else {
        ist_audit_source_write_text(s, f);
    }
}

/* In memory that ends with the file. */
static void add_file(ist_audit_source *s, const char *path, const uint8_t *data, size_t count) {
    char *exact = malloc(count ? count : 1);
    if (!exact) return;
    for (size_t i = 0; i < count; i++) exact[i] = (char)data[i];
    if (ist_audit_source_add(s, path, 0, exact, count, NULL)) abort();
    free(exact);
}

static void add_files(ist_audit_source *s, uint8_t kind, const uint8_t *data, size_t count) {
    static const char *const names[] = {"a.py", "b/__init__.py", "b/c.py", "d.py"};
    bool python = kind == 1;
    for (size_t k = 0; k < 4; k++) {
        size_t n = 0;
        while (n < count && (data[n] != '\f' || k == 3 || !python)) n++;
        add_file(s, python ? names[k] : kind == 0 ? "a.cpp" : kind == 2 ? "a.cl" : "a.ipynb", data, n);
        if (n == count) return;
        data += n + 1;
        count -= n + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { MOST = 768 }; /* the time goes with the length, and what a parser can get wrong fits into this */
    if (size > MOST) return 0;
    ist_audit_source s = {0};
    char *report = NULL;
    size_t length = 0;
    if (size) add_files(&s, (uint8_t)(data[0] % 2 + data[0] / 64 % 2 * 2), data + 1, size - 1);
    if (ist_audit_source_finish(&s, "fuzz", NULL)) abort();
    check(&s, size);
    FILE *f = open_memstream(&report, &length);
    if (f) {
        write_report(&s, size ? data[0] / 2 % 8 : 0, f);
        fclose(f);
    }
    free(report);
    ist_audit_source_free(&s);
    return 0;
}
