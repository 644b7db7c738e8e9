/* What the JSON writers share. */
#include "audit/report_parts.h"

#include <stdlib.h>
#include <string.h>

enum { PLACE = 512 };

/* Bytes that are not UTF-8 become '?': paths may hold anything. */
json_t *ist_audit_json_string(const char *text) {
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

json_t *ist_audit_json_number(uint64_t value) {
    return json_integer((json_int_t)(value > INT64_MAX ? INT64_MAX : value));
}

const ist_audit_site *ist_audit_site_at(const ist_audit_log *log, uint32_t site) {
    return site < log->site_count ? &log->sites[site] : NULL;
}

void ist_audit_json_place(json_t *to, const ist_audit_log *log, uint32_t entry, uint32_t site) {
    const ist_audit_site *s = ist_audit_site_at(log, site);
    json_object_set_new(to, "entry", ist_audit_json_string(ist_audit_label(log, entry)));
    json_object_set_new(to, "file", s && s->file ? ist_audit_json_string(s->file) : json_null());
    json_object_set_new(to, "line", s && s->file && s->line > 0 ? json_integer(s->line) : json_null());
    if (s && s->cell > 0) json_object_set_new(to, "cell", json_integer(s->cell));
    json_object_set_new(to, "function", s && s->function ? ist_audit_json_string(s->function) : json_null());
    json_object_set_new(to, "module", s && s->module ? ist_audit_json_string(s->module) : json_null());
    json_object_set_new(to, "offset", s && s->module ? ist_audit_json_number(s->offset) : json_null());
}

json_t *ist_audit_json_chain(const ist_audit_log *log, const ist_audit_finding *finding) {
    json_t *chain = json_array();
    if (finding->partner_entry == IST_AUDIT_NONE) return chain;
    json_t *down = json_object(), *up = json_object();
    ist_audit_json_place(down, log, finding->entry, finding->site);
    ist_audit_json_place(up, log, finding->partner_entry, finding->partner_site);
    json_array_append_new(chain, down);
    json_array_append_new(chain, up);
    return chain;
}

json_t *ist_audit_json_hops(const ist_audit_log *log, const ist_audit_finding *finding) {
    json_t *hops = json_array();
    for (uint32_t k = 0; k < finding->hop_count; k++) {
        const ist_audit_hop *hop = &log->hops[finding->first_hop + k];
        json_t *o = json_object();
        json_object_set_new(o, "step", json_string(ist_audit_step_name(hop->step)));
        ist_audit_json_place(o, log, hop->entry, hop->site);
        json_array_append_new(hops, o);
    }
    return hops;
}

/* Source file, else module, else nothing; then the function. */
static void place_key(const ist_audit_log *log, uint32_t site, char *text, size_t size) {
    const ist_audit_site *s = ist_audit_site_at(log, site);
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

ist_status ist_audit_json_dump(json_t *root, FILE *out, ist_error *err) {
    int failed = json_dumpf(root, out, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    json_decref(root);
    if (failed) return ist_fail(err, IST_E_IO, "the report could not be written");
    fputc('\n', out);
    return IST_OK;
}
