/* The comparison with an earlier JSON report. */
#include "audit/report_parts.h"

#include <string.h>

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
    else if (json_integer_value(json_object_get(root, "schema")) != IST_AUDIT_SCHEMA || !json_is_array(findings))
        status = ist_fail(err, IST_E_INPUT, "the older report is not a JSON report of isthmus audit, schema %d",
                          IST_AUDIT_SCHEMA);
    if (!status) json_array_foreach(findings, k, f) {
            const char *id = json_string_value(json_object_get(f, "id"));
            if (id && is_above(f)) add_id(ids, id);
        }
    json_decref(root);
    return status;
}

ist_status ist_audit_check_older(const char *old, size_t length, ist_error *err) {
    json_t *ids = json_object();
    ist_status status = old_ids(old, length, ids, err);
    json_decref(ids);
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
    char id[IST_AUDIT_ID];
    ist_status status = old_ids(old, length, before, err);
    for (size_t k = 0; !status && k < r->finding_count; k++) {
        if (r->findings[k].severity == IST_AUDIT_NECESSARY) continue;
        json_t *name = ist_audit_json_string(
            ist_audit_finding_id(r, &r->findings[k], id, sizeof id)); /* as the older report has it */
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
