/* The report on source code for people: totals, the worst, then everything. */
#include "audit/source.h"

#include <stdlib.h>
#include <string.h>

enum { WORST = 5, PLACE = 1024, MOST_FILES = 20 };

/* Names from the audited sources must not steer the terminal. */
static void put(FILE *out, const char *text) {
    for (const char *p = text; *p; p++) fputc((unsigned char)*p < 0x20 || *p == 0x7F ? '?' : *p, out);
}

static void put_counts(const uint64_t *counts, FILE *out) {
    for (int s = 0; s < IST_AUDIT_SEVERITY_COUNT; s++) fprintf(out, " %9llu", (unsigned long long)counts[s]);
}

/* ---- totals ---- */

static void put_categories(const ist_audit_report *r, FILE *out) {
    uint64_t counts[IST_AUDIT_CATEGORY_COUNT][IST_AUDIT_SEVERITY_COUNT] = {{0}};
    for (size_t k = 0; k < r->finding_count; k++) counts[r->findings[k].category][r->findings[k].severity]++;
    fprintf(out, "\nby category\n%20s  %9s %9s %9s %9s\n", "", "critical", "medium", "minor", "necessary");
    for (int c = 0; c < IST_AUDIT_CATEGORY_COUNT; c++) {
        uint64_t all = 0;
        for (int s = 0; s < IST_AUDIT_SEVERITY_COUNT; s++) all += counts[c][s];
        if (!all) continue;
        fprintf(out, "  %-20s", ist_audit_category_name(c));
        put_counts(counts[c], out);
        fputc('\n', out);
    }
}

static size_t write_files(const ist_audit_file_total *files, size_t count, FILE *out) {
    size_t shown = count < MOST_FILES ? count : MOST_FILES;
    for (size_t k = 0; k < shown; k++) {
        put_counts(files[k].severities, out);
        fputs("  ", out);
        put(out, files[k].path);
        fputc('\n', out);
    }
    return count - shown;
}

static void put_files(const ist_audit_source *s, FILE *out) {
    ist_audit_file_total *files;
    size_t count = 0;
    if (!s->report.finding_count) return;
    files = ist_audit_source_files(s, &count);
    if (!files) fputs("\nout of memory for the table by file\n", out);
    if (!files) return;
    fprintf(out, "\nby file\n %9s %9s %9s %9s\n", "critical", "medium", "minor", "necessary");
    size_t rest = write_files(files, count, out);
    if (rest) fprintf(out, "  and %zu more %s\n", rest, ist_plural(rest, "file", "files"));
    free(files);
}

/* ---- findings ---- */

/* The way of the data, a line for each hop: the step, the call, its place. */
static void put_hops(const ist_audit_report *r, const ist_audit_finding *f, FILE *out) {
    char place[PLACE];
    for (uint32_t k = 0; k < f->hop_count; k++) {
        const ist_audit_hop *hop = &r->log->hops[f->first_hop + k];
        fprintf(out, "            %s ", ist_audit_step_text(hop->step));
        put(out, ist_audit_label(r->log, hop->entry));
        fputs(" at ", out);
        put(out, ist_audit_site_text(r->log, hop->site, place, sizeof place));
        fputc('\n', out);
    }
}

static void put_finding(const ist_audit_report *r, const ist_audit_finding *f, FILE *out) {
    char place[PLACE];
    fprintf(out, "  %-9s %s: ", ist_audit_severity_name(f->severity), ist_audit_category_name(f->category));
    put(out, ist_audit_label(r->log, f->entry));
    fputs(" at ", out);
    put(out, ist_audit_site_text(r->log, f->site, place, sizeof place));
    fprintf(out, "\n            %s; runs in: %s%s\n", ist_audit_category_text(f->category),
            ist_audit_context_name(f->context), f->training ? ", training only" : "");
    put_hops(r, f, out);
    if (*ist_audit_finding_advice(f)) fprintf(out, "            advice: %s\n", ist_audit_finding_advice(f));
}

static void put_line(const ist_audit_report *r, const ist_audit_finding *f, FILE *out) {
    char place[PLACE];
    fprintf(out, "  %-9s %-20s %-8s %-8s ", ist_audit_severity_name(f->severity), ist_audit_category_name(f->category),
            ist_audit_context_name(f->context), f->training ? "training" : "");
    put(out, ist_audit_site_text(r->log, f->site, place, sizeof place));
    fputs("  ", out);
    put(out, ist_audit_label(r->log, f->entry));
    if (f->partner_site != IST_AUDIT_NONE) {
        fputs(" -> ", out);
        put(out, ist_audit_site_text(r->log, f->partner_site, place, sizeof place));
    }
    fputc('\n', out);
    put_hops(r, f, out);
}

void ist_audit_source_write_text(const ist_audit_source *s, FILE *out) {
    const ist_audit_report *r = &s->report;
    size_t above = r->finding_count - (size_t)r->severities[IST_AUDIT_NECESSARY];
    fputs("audit of the sources in ", out);
    put(out, s->log.program ? s->log.program : "");
    fprintf(out,
            "\n  files      %llu C and C++, %llu Python (%llu %s), %llu OpenCL C (%llu %s), %llu %s; %zu skipped\n",
            (unsigned long long)s->c_files, (unsigned long long)s->python_files, (unsigned long long)s->notebooks,
            ist_plural(s->notebooks, "notebook", "notebooks"), (unsigned long long)s->kernel_files,
            (unsigned long long)s->kernels, ist_plural(s->kernels, "kernel", "kernels"), (unsigned long long)s->lines,
            ist_plural(s->lines, "line", "lines"), s->skipped_count);
    fprintf(out, "  findings   ");
    for (int k = 0; k < IST_AUDIT_SEVERITY_COUNT; k++)
        fprintf(out, "%s%llu %s", k ? ", " : "", (unsigned long long)r->severities[k], ist_audit_severity_name(k));
    fprintf(out, "\n");
    if (s->log.dropped) fprintf(out, "  %llu more were not kept\n", (unsigned long long)s->log.dropped);
    if (r->finding_count) put_categories(r, out);
    put_files(s, out);
    if (above) fprintf(out, "\nworst\n");
    for (size_t k = 0; k < above && k < WORST; k++) put_finding(r, &r->findings[k], out);
    if (r->finding_count) fprintf(out, "\nall\n");
    for (size_t k = 0; k < r->finding_count; k++) put_line(r, &r->findings[k], out);
    if (s->skipped_count) fprintf(out, "\nskipped\n");
    for (size_t k = 0; k < s->skipped_count; k++) {
        fputs("  ", out);
        put(out, s->skipped[k].path);
        fputs(": ", out);
        put(out, s->skipped[k].reason);
        fputc('\n', out);
    }
}
