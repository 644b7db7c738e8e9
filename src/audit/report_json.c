/* JSON and SARIF 2.1.0, and the comparison with an earlier JSON report. */
#include "audit/report.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)
#define VERSION    TEXT(IST_VERSION_MAJOR) "." TEXT(IST_VERSION_MINOR) "." TEXT(IST_VERSION_PATCH)

enum { ID = 1600, PLACE = 512, SCHEMA = 1 };

/* Bytes that are not UTF-8 become '?': paths may hold anything. */
static json_t *string(const char *text) {
    json_t *s = json_string(text);
    if (s || !text) return s;
    char *copy = malloc(strlen(text) + 1);
    if (!copy) return NULL;
    size_t n = 0;
    for (; text[n]; n++) copy[n] = (unsigned char)text[n] < 0x80 ? text[n] : '?';
    copy[n] = '\0';
    s = json_string(copy);
    free(copy);
    return s;
}

static json_t *number(uint64_t value) {
    return json_integer((json_int_t)(value > INT64_MAX ? INT64_MAX : value));
}

/* Not more digits than the clock has. */
static json_t *milliseconds(double ms) {
    return json_real((double)(long long)(ms * 1e4 + 0.5) / 1e4);
}

static const ist_audit_site *site_of(const ist_audit_log *log, uint32_t site) {
    return site < log->site_count ? &log->sites[site] : NULL;
}

static void set_place(json_t *to, const ist_audit_log *log, uint32_t entry, uint32_t site) {
    const ist_audit_site *s = site_of(log, site);
    json_object_set_new(to, "entry", string(ist_audit_label(log, entry)));
    json_object_set_new(to, "file", s && s->file ? string(s->file) : json_null());
    json_object_set_new(to, "line", s && s->file && s->line > 0 ? json_integer(s->line) : json_null());
    json_object_set_new(to, "function", s && s->function ? string(s->function) : json_null());
    json_object_set_new(to, "module", s && s->module ? string(s->module) : json_null());
    json_object_set_new(to, "offset", s && s->module ? number(s->offset) : json_null());
}

static json_t *counts_object(const ist_audit_counts *c) {
    json_t *o = json_object();
    json_object_set_new(o, "writes", number(c->writes));
    json_object_set_new(o, "reads", number(c->reads));
    json_object_set_new(o, "waits", number(c->waits));
    json_object_set_new(o, "builds", number(c->builds));
    json_object_set_new(o, "launches", number(c->launches));
    json_object_set_new(o, "h2d_bytes", number(c->h2d_bytes));
    json_object_set_new(o, "d2h_bytes", number(c->d2h_bytes));
    return o;
}

static json_t *calls_object(const ist_audit_log *log) {
    uint64_t counts[IST_AUDIT_OP_COUNT];
    json_t *o = json_object();
    ist_audit_count_calls(log, counts);
    for (int op = 0; op < IST_AUDIT_OP_COUNT; op++) json_object_set_new(o, ist_audit_op_name(op), number(counts[op]));
    return o;
}

/* Source file, else module, else nothing; then the function. */
static void place_key(const ist_audit_log *log, uint32_t site, char *text, size_t size) {
    const ist_audit_site *s = site_of(log, site);
    const char *where = !s ? "" : s->file ? s->file : s->module ? s->module : "";
    if (s && s->module && !s->file && !s->function)
        snprintf(text, size, "%s+0x%llx", where, (unsigned long long)s->offset);
    else
        snprintf(text, size, "%s|%s", where, s && s->function ? s->function : "");
}

char *ist_audit_finding_id(const ist_audit_report *r, const ist_audit_finding *f, char *text, size_t size) {
    char from[PLACE], to[PLACE];
    place_key(r->log, f->site, from, sizeof from);
    int n =
        snprintf(text, size, "%s|%s|%s", ist_audit_category_name(f->category), ist_audit_label(r->log, f->entry), from);
    if (f->partner_entry != IST_AUDIT_NONE && n > 0 && (size_t)n < size) {
        place_key(r->log, f->partner_site, to, sizeof to);
        snprintf(text + n, size - (size_t)n, "|%s|%s", ist_audit_label(r->log, f->partner_entry), to);
    }
    return text;
}

static json_t *finding_object(const ist_audit_report *r, const ist_audit_finding *f) {
    char id[ID];
    json_t *o = json_object();
    json_object_set_new(o, "id", string(ist_audit_finding_id(r, f, id, sizeof id)));
    json_object_set_new(o, "severity", string(ist_audit_severity_name(f->severity)));
    json_object_set_new(o, "category", string(ist_audit_category_name(f->category)));
    json_object_set_new(o, "text", string(ist_audit_category_text(f->category)));
    json_object_set_new(o, "advice", string(ist_audit_category_advice(f->category)));
    set_place(o, r->log, f->entry, f->site);
    const char *object = ist_audit_label(r->log, r->log->events[f->first].label);
    json_object_set_new(o, "object", *object ? string(object) : json_null());
    json_object_set_new(o, "thread", number(f->thread));
    json_object_set_new(o, "count", number(f->count));
    json_object_set_new(o, "bytes", number(f->bytes));
    json_object_set_new(o, "frames", number(f->frames));
    json_object_set_new(o, "most_per_frame", number(f->most_per_frame));
    json_object_set_new(o, "first_frame", number(r->log->events[f->first].frame));
    json_object_set_new(o, "wait_ms", milliseconds(f->wait_ms));
    json_object_set_new(o, "move_ms", milliseconds(f->move_ms));
    json_t *chain = json_array();
    if (f->partner_entry != IST_AUDIT_NONE) {
        json_t *down = json_object(), *up = json_object();
        set_place(down, r->log, f->entry, f->site);
        set_place(up, r->log, f->partner_entry, f->partner_site);
        json_array_append_new(chain, down);
        json_array_append_new(chain, up);
    }
    json_object_set_new(o, "chain", chain);
    return o;
}

static json_t *budget_object(const ist_audit_report *r, const ist_audit_verdict *v) {
    char text[1024];
    if (!v || !v->text) return json_null();
    json_t *o = json_object();
    json_object_set_new(o, "budget", string(v->text));
    json_object_set_new(o, "holds", json_boolean(!v->breach.what));
    if (v->breach.what) {
        const ist_audit_event *e = &r->log->events[v->breach.event];
        json_object_set_new(o, "text", string(ist_audit_breach_text(r, &v->breach, text, sizeof text)));
        json_object_set_new(o, "what", string(v->breach.what));
        json_object_set_new(o, "limit", number(v->breach.limit));
        json_object_set_new(o, "have", number(v->breach.have));
        json_object_set_new(o, "frame", number(v->breach.frame));
        set_place(o, r->log, e->entry, e->site);
    }
    return o;
}

static ist_status dump(json_t *root, FILE *out, ist_error *err) {
    int failed = json_dumpf(root, out, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    json_decref(root);
    if (failed) return ist_fail(err, IST_E_IO, "the report could not be written");
    fputc('\n', out);
    return IST_OK;
}

ist_status ist_audit_write_json(const ist_audit_report *r, const ist_audit_verdict *v, FILE *out, ist_error *err) {
    json_t *root = json_object(), *frames = json_object(), *severities = json_object(), *findings = json_array();
    json_object_set_new(root, "schema", json_integer(SCHEMA));
    json_object_set_new(root, "tool", string("isthmus audit"));
    json_object_set_new(root, "program", string(r->log->program ? r->log->program : ""));
    json_object_set_new(frames, "source", string(ist_audit_frame_source_text(r->frames.source)));
    json_object_set_new(frames, "count", number(r->frames.count));
    json_object_set_new(frames, "most", r->frames.count ? counts_object(&r->most) : json_null());
    json_object_set_new(root, "frames", frames);
    json_object_set_new(root, "total", counts_object(&r->total));
    json_object_set_new(root, "calls", calls_object(r->log));
    json_object_set_new(root, "wait_ms", milliseconds(r->wait_ms));
    json_object_set_new(root, "move_ms", milliseconds(r->move_ms));
    json_object_set_new(root, "events", number(r->log->event_count));
    json_object_set_new(root, "dropped", number(r->log->dropped));
    for (int s = 0; s < IST_AUDIT_SEVERITY_COUNT; s++)
        json_object_set_new(severities, ist_audit_severity_name(s), number(r->severities[s]));
    json_object_set_new(root, "severities", severities);
    json_object_set_new(root, "budget", budget_object(r, v));
    for (size_t k = 0; k < r->finding_count; k++) json_array_append_new(findings, finding_object(r, &r->findings[k]));
    json_object_set_new(root, "findings", findings);
    return dump(root, out, err);
}

/* ---- SARIF ---- */

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
    const ist_audit_site *s = site_of(log, site);
    char place[PLACE];
    json_t *location = json_object(), *physical = json_object();
    const char *path = !s ? NULL : s->file ? s->file : s->module;
    if (path) {
        json_object_set_new(physical, "artifactLocation", json_pack("{s:o}", "uri", uri(path)));
        if (s->file && s->line > 0) json_object_set_new(physical, "region", json_pack("{s:i}", "startLine", s->line));
        json_object_set(location, "physicalLocation", physical);
    }
    json_decref(physical);
    json_t *logical =
        json_pack("[{s:o}]", "fullyQualifiedName",
                  string(s && s->function ? s->function : ist_audit_site_text(log, site, place, sizeof place)));
    json_object_set_new(location, "logicalLocations", logical);
    if (message) json_object_set_new(location, "message", json_pack("{s:s}", "text", message));
    return location;
}

static json_t *sarif_result(const ist_audit_report *r, const ist_audit_finding *f) {
    char text[1024], id[ID];
    snprintf(text, sizeof text, "%s: %s (%llu times, %llu bytes, %.2f ms waiting, %.2f ms moving). %s",
             ist_audit_label(r->log, f->entry), ist_audit_category_text(f->category), (unsigned long long)f->count,
             (unsigned long long)f->bytes, f->wait_ms, f->move_ms, ist_audit_category_advice(f->category));
    json_t *o = json_object();
    json_object_set_new(o, "ruleId", string(ist_audit_category_name(f->category)));
    json_object_set_new(o, "level", string(level_of(f->severity)));
    json_object_set_new(o, "message", json_pack("{s:o}", "text", string(text)));
    json_object_set_new(o, "locations", json_pack("[o]", sarif_location(r->log, f->site, NULL)));
    if (f->partner_entry != IST_AUDIT_NONE)
        json_object_set_new(o, "relatedLocations",
                            json_pack("[o]", sarif_location(r->log, f->partner_site, "the data goes up again here")));
    json_object_set_new(o, "partialFingerprints",
                        json_pack("{s:o}", "isthmusFinding/v1", string(ist_audit_finding_id(r, f, id, sizeof id))));
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
                               string(ist_audit_breach_text(r, &v->breach, text, sizeof text)), "locations", location));
    }
    json_t *driver = json_pack("{s:s, s:s, s:o}", "name", "isthmus audit", "version", VERSION, "rules", sarif_rules());
    json_t *root = json_pack("{s:s, s:s, s:[{s:{s:o}, s:s, s:o}]}", "$schema",
                             "https://json.schemastore.org/sarif-2.1.0.json", "version", "2.1.0", "runs", "tool",
                             "driver", driver, "columnKind", "utf16CodeUnits", "results", results);
    if (!root) return ist_fail(err, IST_E_MEMORY, "out of memory for the report");
    return dump(root, out, err);
}

/* ---- comparison ---- */

static bool is_above(const json_t *finding) {
    const char *severity = json_string_value(json_object_get(finding, "severity"));
    return severity && strcmp(severity, ist_audit_severity_name(IST_AUDIT_NECESSARY)) != 0;
}

/* id -> number of findings that have it. */
static void add_id(json_t *ids, const char *id) {
    json_int_t have = json_integer_value(json_object_get(ids, id));
    json_object_set_new(ids, id, json_integer(have + 1));
}

static ist_status old_ids(const char *old, size_t length, json_t *ids, ist_error *err) {
    json_error_t at;
    json_t *root = json_loadb(old, length, 0, &at), *findings = json_object_get(root, "findings"), *f;
    size_t k;
    ist_status status = IST_OK;
    if (!root)
        status = ist_fail(err, IST_E_INPUT, "the older report is no JSON: %s, line %d", at.text, at.line);
    else if (json_integer_value(json_object_get(root, "schema")) != SCHEMA || !json_is_array(findings))
        status =
            ist_fail(err, IST_E_INPUT, "the older report is not a JSON report of isthmus audit, schema %d", SCHEMA);
    if (!status) json_array_foreach(findings, k, f) {
            const char *id = json_string_value(json_object_get(f, "id"));
            if (id && is_above(f)) add_id(ids, id);
        }
    json_decref(root);
    return status;
}

/* Writes ids that `a` has more often than `b`; returns how many findings that are. */
static size_t write_difference(json_t *a, json_t *b, const char *word, FILE *out) {
    const char *id;
    json_t *count;
    size_t total = 0;
    json_object_foreach(a, id, count) {
        json_int_t more = json_integer_value(count) - json_integer_value(json_object_get(b, id));
        for (; more > 0; more--, total++) {
            fprintf(out, "  %s  ", word);
            for (const char *p = id; *p; p++) fputc(*p == '|' ? ' ' : (unsigned char)*p < 0x20 ? '?' : *p, out);
            fputc('\n', out);
        }
    }
    return total;
}

ist_status ist_audit_compare(const ist_audit_report *r, const char *old, size_t length, FILE *out, size_t *added,
                             size_t *gone, ist_error *err) {
    json_t *before = json_object(), *now = json_object();
    char id[ID];
    ist_status status = old_ids(old, length, before, err);
    for (size_t k = 0; !status && k < r->finding_count; k++) {
        if (r->findings[k].severity == IST_AUDIT_NECESSARY) continue;
        json_t *name = string(ist_audit_finding_id(r, &r->findings[k], id, sizeof id)); /* as the older report has it */
        if (name) add_id(now, json_string_value(name));
        json_decref(name);
    }
    if (!status) {
        fprintf(out, "\nagainst the older report\n");
        *added = write_difference(now, before, "new ", out);
        *gone = write_difference(before, now, "gone", out);
        if (!*added && !*gone) fprintf(out, "  nothing is new, nothing is gone\n");
    }
    json_decref(before);
    json_decref(now);
    return status;
}
