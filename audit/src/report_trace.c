/* A trace in Chrome's format: one row per thread, and a row of frames above. Written event by event: a long run has
 * more of them than fit in a tree. Transfers and waits have colours of their own. */
#include "audit/report.h"

#include <jansson.h>
#include <stdlib.h>

/* Name of a colour that the viewers know, NULL: the usual. */
static const char *colour_of(const ist_audit_event *e) {
    if (e->op == IST_AUDIT_WAIT || e->op == IST_AUDIT_POLL) return "terrible";
    if (ist_audit_is_upload(e)) return "bad";
    if (ist_audit_is_download(e)) return "yellow";
    return NULL;
}

/* Quoted; NULL when out of memory or not UTF-8. */
static char *quote(const char *text) {
    json_t *s = json_string(text);
    char *quoted = s ? json_dumps(s, JSON_ENCODE_ANY) : NULL;
    json_decref(s);
    return quoted;
}

static void write_event(const ist_audit_report *r, const ist_audit_event *e, FILE *out) {
    char place[512];
    char *name = quote(ist_audit_label(r->log, e->entry)), *label = quote(ist_audit_label(r->log, e->label));
    char *site = quote(ist_audit_site_text(r->log, e->site, place, sizeof place));
    const char *colour = colour_of(e);
    fprintf(
        out,
        ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,\"name\":%s,\"cat\":\"%s\",\"args\":{\"at\":%s,"
        "\"what\":%s,\"bytes\":%llu,\"frame\":%u,\"wait_ms\":%.4f,\"move_ms\":%.4f}",
        e->thread + 1, e->at_ms * 1e3, (e->wait_ms + e->move_ms) * 1e3, name ? name : "\"?\"", ist_audit_op_name(e->op),
        site ? site : "\"?\"", label ? label : "\"?\"", (unsigned long long)e->bytes, e->frame, e->wait_ms, e->move_ms);
    if (colour) fprintf(out, ",\"cname\":\"%s\"", colour);
    fputc('}', out);
    free(name);
    free(label);
    free(site);
}

typedef struct span {
    double from, to; /* ms; to < from: empty */
} span;

static void write_frames(const ist_audit_report *r, span *spans, FILE *out) {
    for (uint32_t f = 0; f <= r->frames.count; f++) spans[f] = (span){0, -1};
    for (size_t i = 0; i < r->log->event_count; i++) {
        const ist_audit_event *e = &r->log->events[i];
        span *s = &spans[e->frame];
        double end = e->at_ms + e->wait_ms + e->move_ms;
        if (s->to < s->from || e->at_ms < s->from) s->from = e->at_ms;
        if (end > s->to) s->to = end;
    }
    for (uint32_t f = 1; f <= r->frames.count; f++)
        if (spans[f].to >= spans[f].from)
            fprintf(out, ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":0,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"frame %u\"}",
                    spans[f].from * 1e3, (spans[f].to - spans[f].from) * 1e3, f);
}

ist_status ist_audit_write_trace(const ist_audit_report *r, FILE *out, ist_error *err) {
    span *spans = malloc(((size_t)r->frames.count + 1) * sizeof *spans);
    if (!spans) return ist_fail(err, IST_E_MEMORY, "out of memory for %u frames", r->frames.count);
    fprintf(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                 "{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"thread_name\",\"args\":{\"name\":\"frames\"}}");
    write_frames(r, spans, out);
    for (size_t i = 0; i < r->log->event_count; i++) write_event(r, &r->log->events[i], out);
    fprintf(out, "\n]}\n");
    free(spans);
    return ferror(out) ? ist_fail(err, IST_E_IO, "the trace could not be written") : IST_OK;
}
