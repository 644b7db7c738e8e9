/* SARIF 2.1.0, for code review tools. */
#include "audit/report_parts.h"

#include <string.h>

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)
#define VERSION    TEXT(IST_VERSION_MAJOR) "." TEXT(IST_VERSION_MINOR) "." TEXT(IST_VERSION_PATCH)

enum { PLACE = 512 };

static const char *level_of(ist_audit_severity severity) {
    return severity == IST_AUDIT_CRITICAL ? "error" : severity == IST_AUDIT_MEDIUM ? "warning" : "note";
}

/* Percent-encoded; absolute paths become file URIs. */
static json_t *uri(const char *path) {
    char text[3 * 1024 + 8];
    size_t n = 0;
    if (*path == '/') n = (size_t)snprintf(text, sizeof text, "file://");
    for (const unsigned char *p = (const unsigned char *)path; *p && n + 4 < sizeof text; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
                     strchr("-._~/+", *p) != NULL;
        n += (size_t)snprintf(text + n, sizeof text - n, plain ? "%c" : "%%%02X", *p);
    }
    return json_string(text);
}

static json_t *sarif_location(const ist_audit_log *log, uint32_t site, const char *message) {
    const ist_audit_site *s = ist_audit_site_at(log, site);
    char place[PLACE];
    json_t *location = json_object(), *physical = json_object();
    const char *path = !s ? NULL : s->file ? s->file : s->module;
    if (path) {
        json_object_set_new(physical, "artifactLocation", json_pack("{s:o}", "uri", uri(path)));
        if (s->file && s->line > 0 && !s->cell)
            json_object_set_new(physical, "region", json_pack("{s:i}", "startLine", s->line));
        json_object_set(location, "physicalLocation", physical);
    }
    json_decref(physical);
    json_t *logical = json_pack(
        "[{s:o}]", "fullyQualifiedName",
        ist_audit_json_string(s && s->function ? s->function : ist_audit_site_text(log, site, place, sizeof place)));
    json_object_set_new(location, "logicalLocations", logical);
    if (message) json_object_set_new(location, "message", json_pack("{s:s}", "text", message));
    return location;
}

/* Source code has no numbers but says how often it runs. */
static void sarif_message(const ist_audit_report *r, const ist_audit_finding *f, char *text, size_t size) {
    const char *entry = ist_audit_label(r->log, f->entry), *what = ist_audit_category_text(f->category);
    if (f->context == IST_AUDIT_CONTEXT_RUN)
        snprintf(text, size, "%s: %s (%llu %s, %llu %s, %.2f ms waiting, %.2f ms moving). %s", entry, what,
                 (unsigned long long)f->count, ist_plural(f->count, "time", "times"), (unsigned long long)f->bytes,
                 ist_plural(f->bytes, "byte", "bytes"), f->wait_ms, f->move_ms, ist_audit_category_advice(f->category));
    else
        snprintf(text, size, "%s: %s (%s%s). %s", entry, what, ist_audit_context_name(f->context),
                 f->training ? ", training" : "", ist_audit_finding_advice(f));
}

/* The way of the data, hop by hop; NULL when it is not known. */
static json_t *sarif_flow(const ist_audit_report *r, const ist_audit_finding *f) {
    json_t *locations = json_array();
    if (!f->hop_count) {
        json_decref(locations);
        return NULL;
    }
    for (uint32_t k = 0; k < f->hop_count; k++) {
        const ist_audit_hop *hop = &r->log->hops[f->first_hop + k];
        char text[PLACE];
        snprintf(text, sizeof text, "%s %s", ist_audit_step_text(hop->step), ist_audit_label(r->log, hop->entry));
        json_t *location = sarif_location(r->log, hop->site, NULL);
        json_object_set_new(location, "message", json_pack("{s:o}", "text", ist_audit_json_string(text)));
        json_array_append_new(locations, json_pack("{s:o}", "location", location));
    }
    return json_pack("[{s:[{s:o}]}]", "threadFlows", "locations", locations);
}

static json_t *sarif_result(const ist_audit_report *r, const ist_audit_finding *f) {
    char text[1024], id[IST_AUDIT_ID];
    sarif_message(r, f, text, sizeof text);
    json_t *o = json_object();
    json_object_set_new(o, "ruleId", ist_audit_json_string(ist_audit_category_name(f->category)));
    json_object_set_new(o, "level", ist_audit_json_string(level_of(f->severity)));
    json_object_set_new(o, "message", json_pack("{s:o}", "text", ist_audit_json_string(text)));
    json_object_set_new(o, "locations", json_pack("[o]", sarif_location(r->log, f->site, NULL)));
    if (f->partner_entry != IST_AUDIT_NONE)
        json_object_set_new(o, "relatedLocations",
                            json_pack("[o]", sarif_location(r->log, f->partner_site, "the data goes up again here")));
    json_t *flow = sarif_flow(r, f);
    if (flow) json_object_set_new(o, "codeFlows", flow);
    json_object_set_new(
        o, "partialFingerprints",
        json_pack("{s:o}", "isthmusFinding/v1", ist_audit_json_string(ist_audit_finding_id(r, f, id, sizeof id))));
    return o;
}

static json_t *sarif_rules(void) {
    json_t *rules = json_array();
    for (int c = 0; c < IST_AUDIT_CATEGORY_COUNT; c++) {
        if (!*ist_audit_category_advice(c)) continue;
        json_array_append_new(rules, json_pack("{s:s, s:{s:s}, s:{s:s}}", "id", ist_audit_category_name(c),
                                               "shortDescription", "text", ist_audit_category_text(c), "help", "text",
                                               ist_audit_category_advice(c)));
    }
    json_array_append_new(rules, json_pack("{s:s, s:{s:s}, s:{s:s}}", "id", "budget", "shortDescription", "text",
                                           "a frame goes over the budget", "help", "text",
                                           "remove the call, or raise the budget on purpose"));
    return rules;
}

ist_status ist_audit_write_sarif(const ist_audit_report *r, const ist_audit_verdict *v, FILE *out, ist_error *err) {
    json_t *results = json_array();
    char text[1024];
    for (size_t k = 0; k < r->finding_count; k++)
        if (r->findings[k].severity != IST_AUDIT_NECESSARY)
            json_array_append_new(results, sarif_result(r, &r->findings[k]));
    if (v && v->text && v->breach.what) {
        json_t *location = sarif_location(r->log, r->log->events[v->breach.event].site, NULL);
        json_array_append_new(
            results, json_pack("{s:s, s:s, s:{s:o}, s:[o]}", "ruleId", "budget", "level", "error", "message", "text",
                               ist_audit_json_string(ist_audit_breach_text(r, &v->breach, text, sizeof text)),
                               "locations", location));
    }
    json_t *driver = json_pack("{s:s, s:s, s:o}", "name", "isthmus audit", "version", VERSION, "rules", sarif_rules());
    json_t *root = json_pack("{s:s, s:s, s:[{s:{s:o}, s:s, s:o}]}", "$schema",
                             "https://json.schemastore.org/sarif-2.1.0.json", "version", "2.1.0", "runs", "tool",
                             "driver", driver, "columnKind", "utf16CodeUnits", "results", results);
    if (!root) return ist_fail(err, IST_E_MEMORY, "out of memory for the report");
    return ist_audit_json_dump(root, out, err);
}
