/* The JSON report of something that ran. */
#include "audit/report_parts.h"

/* Not more digits than the clock has. */
static json_t *milliseconds(double ms) {
    const double most = 1e14; /* sums of hostile recordings */
    return json_real(ms < most ? (double)(long long)(ms * 1e4 + 0.5) / 1e4 : most);
}

static json_t *counts_object(const ist_audit_counts *c) {
    json_t *o = json_object();
    json_object_set_new(o, "writes", ist_audit_json_number(c->writes));
    json_object_set_new(o, "reads", ist_audit_json_number(c->reads));
    json_object_set_new(o, "waits", ist_audit_json_number(c->waits));
    json_object_set_new(o, "builds", ist_audit_json_number(c->builds));
    json_object_set_new(o, "launches", ist_audit_json_number(c->launches));
    json_object_set_new(o, "h2d_bytes", ist_audit_json_number(c->h2d_bytes));
    json_object_set_new(o, "d2h_bytes", ist_audit_json_number(c->d2h_bytes));
    return o;
}

static json_t *calls_object(const ist_audit_log *log) {
    uint64_t counts[IST_AUDIT_OP_COUNT];
    json_t *o = json_object();
    ist_audit_count_calls(log, counts);
    for (int op = 0; op < IST_AUDIT_OP_COUNT; op++)
        json_object_set_new(o, ist_audit_op_name(op), ist_audit_json_number(counts[op]));
    return o;
}

static json_t *finding_object(const ist_audit_report *r, const ist_audit_finding *f) {
    char id[IST_AUDIT_ID];
    json_t *o = json_object();
    json_object_set_new(o, "id", ist_audit_json_string(ist_audit_finding_id(r, f, id, sizeof id)));
    json_object_set_new(o, "severity", ist_audit_json_string(ist_audit_severity_name(f->severity)));
    json_object_set_new(o, "category", ist_audit_json_string(ist_audit_category_name(f->category)));
    json_object_set_new(o, "text", ist_audit_json_string(ist_audit_category_text(f->category)));
    json_object_set_new(o, "advice", ist_audit_json_string(ist_audit_category_advice(f->category)));
    ist_audit_json_place(o, r->log, f->entry, f->site);
    const char *object = ist_audit_label(r->log, r->log->events[f->first].label);
    json_object_set_new(o, "object", *object ? ist_audit_json_string(object) : json_null());
    json_object_set_new(o, "thread", ist_audit_json_number(f->thread));
    json_object_set_new(o, "count", ist_audit_json_number(f->count));
    json_object_set_new(o, "bytes", ist_audit_json_number(f->bytes));
    json_object_set_new(o, "frames", ist_audit_json_number(f->frames));
    json_object_set_new(o, "most_per_frame", ist_audit_json_number(f->most_per_frame));
    json_object_set_new(o, "first_frame", ist_audit_json_number(r->log->events[f->first].frame));
    json_object_set_new(o, "wait_ms", milliseconds(f->wait_ms));
    json_object_set_new(o, "move_ms", milliseconds(f->move_ms));
    json_object_set_new(o, "chain", ist_audit_json_chain(r->log, f));
    return o;
}

static json_t *budget_object(const ist_audit_report *r, const ist_audit_verdict *v) {
    char text[1024];
    if (!v || !v->text) return json_null();
    json_t *o = json_object();
    json_object_set_new(o, "budget", ist_audit_json_string(v->text));
    json_object_set_new(o, "holds", json_boolean(!v->breach.what));
    if (v->breach.what) {
        const ist_audit_event *e = &r->log->events[v->breach.event];
        json_object_set_new(o, "text", ist_audit_json_string(ist_audit_breach_text(r, &v->breach, text, sizeof text)));
        json_object_set_new(o, "what", ist_audit_json_string(v->breach.what));
        json_object_set_new(o, "limit", ist_audit_json_number(v->breach.limit));
        json_object_set_new(o, "have", ist_audit_json_number(v->breach.have));
        json_object_set_new(o, "frame", ist_audit_json_number(v->breach.frame));
        ist_audit_json_place(o, r->log, e->entry, e->site);
    }
    return o;
}

ist_status ist_audit_write_json(const ist_audit_report *r, const ist_audit_verdict *v, FILE *out, ist_error *err) {
    json_t *root = json_object(), *frames = json_object(), *severities = json_object(), *findings = json_array();
    json_object_set_new(root, "schema", json_integer(IST_AUDIT_SCHEMA));
    json_object_set_new(root, "tool", ist_audit_json_string("isthmus audit"));
    json_object_set_new(root, "program", ist_audit_json_string(r->log->program ? r->log->program : ""));
    json_object_set_new(frames, "source", ist_audit_json_string(ist_audit_frame_source_text(r->frames.source)));
    json_object_set_new(frames, "count", ist_audit_json_number(r->frames.count));
    json_object_set_new(frames, "most", r->frames.count ? counts_object(&r->most) : json_null());
    json_object_set_new(root, "frames", frames);
    json_object_set_new(root, "total", counts_object(&r->total));
    json_object_set_new(root, "calls", calls_object(r->log));
    json_object_set_new(root, "wait_ms", milliseconds(r->wait_ms));
    json_object_set_new(root, "move_ms", milliseconds(r->move_ms));
    json_object_set_new(root, "events", ist_audit_json_number(r->log->event_count));
    json_object_set_new(root, "dropped", ist_audit_json_number(r->log->dropped));
    for (int s = 0; s < IST_AUDIT_SEVERITY_COUNT; s++)
        json_object_set_new(severities, ist_audit_severity_name(s), ist_audit_json_number(r->severities[s]));
    json_object_set_new(root, "severities", severities);
    json_object_set_new(root, "budget", budget_object(r, v));
    for (size_t k = 0; k < r->finding_count; k++) json_array_append_new(findings, finding_object(r, &r->findings[k]));
    json_object_set_new(root, "findings", findings);
    return ist_audit_json_dump(root, out, err);
}
