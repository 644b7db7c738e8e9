/* The report on source code as JSON. */
#include "audit/source.h"

#include "audit/report_parts.h"

#include <stdlib.h>

static json_t *finding_object(const ist_audit_report *r, const ist_audit_finding *f) {
    char id[IST_AUDIT_ID];
    json_t *o = json_object();
    json_object_set_new(o, "id", ist_audit_json_string(ist_audit_finding_id(r, f, id, sizeof id)));
    json_object_set_new(o, "severity", json_string(ist_audit_severity_name(f->severity)));
    json_object_set_new(o, "category", json_string(ist_audit_category_name(f->category)));
    json_object_set_new(o, "text", json_string(ist_audit_category_text(f->category)));
    json_object_set_new(o, "advice", json_string(ist_audit_finding_advice(f)));
    ist_audit_json_place(o, r->log, f->entry, f->site);
    json_object_set_new(o, "context", json_string(ist_audit_context_name(f->context)));
    json_object_set_new(o, "training", json_boolean(f->training));
    json_object_set_new(o, "count", ist_audit_json_number(f->count));
    json_object_set_new(o, "bytes", json_null());
    json_object_set_new(o, "chain", ist_audit_json_chain(r->log, f));
    json_object_set_new(o, "hops", ist_audit_json_hops(r->log, f));
    return o;
}

static json_t *severities_object(const uint64_t *counts) {
    json_t *o = json_object();
    for (int s = 0; s < IST_AUDIT_SEVERITY_COUNT; s++)
        json_object_set_new(o, ist_audit_severity_name(s), ist_audit_json_number(counts[s]));
    return o;
}

static json_t *categories_object(const ist_audit_report *r) {
    json_t *o = json_object();
    for (int c = 0; c < IST_AUDIT_CATEGORY_COUNT; c++) {
        uint64_t counts[IST_AUDIT_SEVERITY_COUNT] = {0}, all = 0;
        for (size_t k = 0; k < r->finding_count; k++)
            if ((int)r->findings[k].category == c) counts[r->findings[k].severity]++, all++;
        if (all) json_object_set_new(o, ist_audit_category_name(c), severities_object(counts));
    }
    return o;
}

/* NULL when out of memory. */
static json_t *files_array(const ist_audit_source *s) {
    size_t count = 0;
    ist_audit_file_total *files = ist_audit_source_files(s, &count);
    json_t *array = files ? json_array() : NULL;
    for (size_t k = 0; k < count; k++) {
        json_t *o = severities_object(files[k].severities);
        json_object_set_new(o, "file", ist_audit_json_string(files[k].path));
        json_array_append_new(array, o);
    }
    free(files);
    return array;
}

static json_t *skipped_array(const ist_audit_source *s) {
    json_t *array = json_array();
    for (size_t k = 0; k < s->skipped_count; k++) {
        json_t *o = json_object();
        json_object_set_new(o, "file", ist_audit_json_string(s->skipped[k].path));
        json_object_set_new(o, "reason", ist_audit_json_string(s->skipped[k].reason));
        json_array_append_new(array, o);
    }
    return array;
}

ist_status ist_audit_source_write_json(const ist_audit_source *s, FILE *out, ist_error *err) {
    json_t *files = files_array(s);
    if (!files) return ist_fail(err, IST_E_MEMORY, "out of memory for a table of files");
    json_t *root = json_object(), *findings = json_array();
    const ist_audit_report *r = &s->report;
    json_object_set_new(root, "schema", json_integer(IST_AUDIT_SCHEMA));
    json_object_set_new(root, "tool", json_string("isthmus audit"));
    json_object_set_new(root, "source", ist_audit_json_string(s->log.program ? s->log.program : ""));
    json_object_set_new(root, "c_files", ist_audit_json_number(s->c_files));
    json_object_set_new(root, "python_files", ist_audit_json_number(s->python_files));
    json_object_set_new(root, "notebooks", ist_audit_json_number(s->notebooks));
    json_object_set_new(root, "kernel_files", ist_audit_json_number(s->kernel_files));
    json_object_set_new(root, "kernels", ist_audit_json_number(s->kernels));
    json_object_set_new(root, "lines", ist_audit_json_number(s->lines));
    json_object_set_new(root, "dropped", ist_audit_json_number(s->log.dropped));
    json_object_set_new(root, "severities", severities_object(r->severities));
    json_object_set_new(root, "categories", categories_object(r));
    json_object_set_new(root, "files", files);
    json_object_set_new(root, "skipped", skipped_array(s));
    for (size_t k = 0; k < r->finding_count; k++) json_array_append_new(findings, finding_object(r, &r->findings[k]));
    json_object_set_new(root, "findings", findings);
    return ist_audit_json_dump(root, out, err);
}
