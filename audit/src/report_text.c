/* The report for people: summary, the worst, then everything. */
#include "audit/report.h"

#include <string.h>

enum { WORST = 5, PLACE = 512 };

const char *ist_audit_frame_source_text(ist_audit_frame_source source) {
    static const char *const texts[] = {"none", "given", "marker", "kernel", "pattern"};
    return texts[source];
}

static char *bytes_text(uint64_t bytes, char *text, size_t size) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes / 1024;
    int unit = 0;
    for (; value >= 1024 && unit < 3; unit++) value /= 1024;
    if (bytes < 1024)
        snprintf(text, size, "%d B", (int)bytes);
    else
        snprintf(text, size, "%.1f %s", value, units[unit]);
    return text;
}

/* " (packet)": what is moved, where the log says; launches name their kernel. */
static const char *object_text(const ist_audit_log *log, const ist_audit_event *e, char *text, size_t size) {
    const char *label = ist_audit_label(log, e->label);
    *text = '\0';
    if (*label) snprintf(text, size, " (%s)", label);
    return text;
}

char *ist_audit_breach_text(const ist_audit_report *r, const ist_audit_breach *b, char *text, size_t size) {
    const ist_audit_event *e = &r->log->events[b->event];
    char place[PLACE], object[PLACE], where[40] = "the run";
    if (b->frame) snprintf(where, sizeof where, "frame %u", b->frame);
    snprintf(text, size, "%s has %llu %s, the budget allows %llu: %s at %s%s", where, (unsigned long long)b->have,
             b->what, (unsigned long long)b->limit, ist_audit_label(r->log, e->entry),
             ist_audit_site_text(r->log, e->site, place, sizeof place), object_text(r->log, e, object, sizeof object));
    return text;
}

/* Names from the audited program must not steer the terminal. */
static void put(FILE *out, const char *text) {
    for (const char *p = text; *p; p++) fputc((unsigned char)*p < 0x20 || *p == 0x7F ? '?' : *p, out);
}

/* The engine's ledger has no launches. */
static void put_counts(FILE *out, const ist_audit_counts *c) {
    char up[32], down[32];
    fprintf(out, "writes=%llu (%s) reads=%llu (%s) waits=%llu builds=%llu", (unsigned long long)c->writes,
            bytes_text(c->h2d_bytes, up, sizeof up), (unsigned long long)c->reads,
            bytes_text(c->d2h_bytes, down, sizeof down), (unsigned long long)c->waits, (unsigned long long)c->builds);
    if (c->launches) fprintf(out, " launches=%llu", (unsigned long long)c->launches);
    fputc('\n', out);
}

/* "write 3, read 3, wait 4": what the program called, of each kind that occurs. */
static void put_calls(const ist_audit_log *log, FILE *out) {
    uint64_t counts[IST_AUDIT_OP_COUNT];
    const char *between = "";
    ist_audit_count_calls(log, counts);
    for (int op = 0; op < IST_AUDIT_OP_COUNT; op++) {
        if (!counts[op]) continue;
        fprintf(out, "%s%s %llu", between, ist_audit_op_name(op), (unsigned long long)counts[op]);
        between = ", ";
    }
    fputs(*between ? "\n" : "none\n", out);
}

static void put_summary(const ist_audit_report *r, FILE *out) {
    fputs("audit of ", out);
    put(out, r->log->program ? r->log->program : "a program");
    fputc('\n', out);
    if (r->frames.count) {
        fprintf(out, "  frames     %u (%s)\n  per frame  at most ", r->frames.count,
                ist_audit_frame_source_text(r->frames.source));
        put_counts(out, &r->most);
    } else {
        fprintf(out, "  frames     none recognised\n");
    }
    fprintf(out, "  whole run  ");
    put_counts(out, &r->total);
    fprintf(out, "  calls      ");
    put_calls(r->log, out);
    fprintf(out, "  host time  %.1f ms waiting, %.1f ms moving data\n", r->wait_ms, r->move_ms);
    fprintf(out, "  findings   ");
    for (int s = 0; s < IST_AUDIT_SEVERITY_COUNT; s++)
        fprintf(out, "%s%llu %s", s ? ", " : "", (unsigned long long)r->severities[s], ist_audit_severity_name(s));
    fputc('\n', out);
    if (r->log->dropped)
        fprintf(out, "  %llu later %s not recorded\n", (unsigned long long)r->log->dropped,
                ist_plural(r->log->dropped, "call was", "calls were"));
}

static void put_finding(const ist_audit_report *r, const ist_audit_finding *f, FILE *out) {
    char place[PLACE], object[PLACE], bytes[32];
    fprintf(out, "  %-9s %s: ", ist_audit_severity_name(f->severity), ist_audit_category_name(f->category));
    put(out, ist_audit_label(r->log, f->entry));
    fputs(" at ", out);
    put(out, ist_audit_site_text(r->log, f->site, place, sizeof place));
    put(out, object_text(r->log, &r->log->events[f->first], object, sizeof object));
    fprintf(out, "\n            %s; %llu %s", ist_audit_category_text(f->category), (unsigned long long)f->count,
            ist_plural(f->count, "time", "times"));
    if (f->frames) fprintf(out, " in %u %s", f->frames, ist_plural(f->frames, "frame", "frames"));
    fprintf(out, ", %s, %.2f ms waiting, %.2f ms moving\n", bytes_text(f->bytes, bytes, sizeof bytes), f->wait_ms,
            f->move_ms);
    if (f->partner_site != IST_AUDIT_NONE || f->partner_entry != IST_AUDIT_NONE) {
        fputs("            goes up again with ", out);
        put(out, ist_audit_label(r->log, f->partner_entry));
        fputs(" at ", out);
        put(out, ist_audit_site_text(r->log, f->partner_site, place, sizeof place));
        fputc('\n', out);
    }
    if (*ist_audit_category_advice(f->category))
        fprintf(out, "            advice: %s\n", ist_audit_category_advice(f->category));
}

void ist_audit_write_text(const ist_audit_report *r, const ist_audit_verdict *verdict, FILE *out) {
    size_t above = r->finding_count - (size_t)r->severities[IST_AUDIT_NECESSARY];
    char text[1024];
    put_summary(r, out);
    if (verdict && verdict->text && verdict->breach.what) {
        fputs("  budget     broken: ", out);
        put(out, ist_audit_breach_text(r, &verdict->breach, text, sizeof text));
        fputc('\n', out);
    } else if (verdict && verdict->text) {
        fprintf(out, "  budget     %s holds\n", verdict->text);
    }
    if (above) fprintf(out, "\nworst\n");
    for (size_t k = 0; k < above && k < WORST; k++) put_finding(r, &r->findings[k], out);
    if (!r->finding_count) return;
    fprintf(out, "\nall\n  %-9s %-18s %10s %10s %10s %10s  place\n", "severity", "category", "times", "bytes",
            "wait ms", "move ms");
    for (size_t k = 0; k < r->finding_count; k++) {
        const ist_audit_finding *f = &r->findings[k];
        char bytes[32], place[PLACE], object[PLACE];
        fprintf(out, "  %-9s %-18s %10llu %10s %10.2f %10.2f  ", ist_audit_severity_name(f->severity),
                ist_audit_category_name(f->category), (unsigned long long)f->count,
                bytes_text(f->bytes, bytes, sizeof bytes), f->wait_ms, f->move_ms);
        put(out, ist_audit_label(r->log, f->entry));
        fputc(' ', out);
        put(out, ist_audit_site_text(r->log, f->site, place, sizeof place));
        put(out, object_text(r->log, &r->log->events[f->first], object, sizeof object));
        fputc('\n', out);
    }
}
