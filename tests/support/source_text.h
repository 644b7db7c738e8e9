/* Audits of source text held in memory, for tests. Header only. */
#ifndef SOURCE_TEXT_H
#define SOURCE_TEXT_H

#include "audit/source.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds exactly `count` bytes, in memory that ends with them. */
static inline void source_add(ist_audit_source *s, const char *path, const char *bytes, size_t count) {
    char *exact = malloc(count ? count : 1);
    ist_error err;
    cr_assert_not_null(exact);
    if (count) memcpy(exact, bytes, count);
    cr_assert_eq(ist_audit_source_add(s, path, 0, exact, count, &err), IST_OK, "%s: %s", path, err.text);
    free(exact);
}

/* The whole audit of one text. The report points into *s, which must stay where it is. */
static inline void source_audit(ist_audit_source *s, const char *path, const char *text) {
    *s = (ist_audit_source){0};
    source_add(s, path, text, strlen(text));
    cr_assert_eq(ist_audit_source_finish(s, path, NULL), IST_OK);
}

/* The finding at a line, NULL when there is none. */
static inline const ist_audit_finding *source_at(const ist_audit_source *s, int line) {
    for (size_t k = 0; k < s->report.finding_count; k++)
        if (s->log.sites[s->report.findings[k].site].line == line) return &s->report.findings[k];
    return NULL;
}

/* "category severity", with " training" behind it; "" when there is no finding. */
static inline const char *source_words(const ist_audit_finding *f, char *text, size_t size) {
    *text = '\0';
    if (f)
        snprintf(text, size, "%s %s%s", ist_audit_category_name(f->category), ist_audit_severity_name(f->severity),
                 f->training ? " training" : "");
    return text;
}

/* Exactly one finding, on this line, with these words and calls; none when `words` is "". */
static inline void source_expect(const char *path, const char *text, int line, const char *words, const char *calls) {
    ist_audit_source s;
    char have[96];
    source_audit(&s, path, text);
    const ist_audit_finding *f = source_at(&s, line);
    cr_expect_eq(s.report.finding_count, *words != '\0', "%zu findings in:\n%s", s.report.finding_count, text);
    cr_expect_str_eq(source_words(f, have, sizeof have), words, "'%s', not '%s', at line %d of:\n%s", have, words, line,
                     text);
    if (f) cr_expect_str_eq(ist_audit_label(&s.log, f->entry), calls, "in:\n%s", text);
    ist_audit_source_free(&s);
}

#endif
