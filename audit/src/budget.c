/* Budgets: "reads=1,writes=1,waits=1,bytes=4M" per frame, and the call that goes over. */
#include "audit/audit.h"

#include <stdlib.h>
#include <string.h>

/* Field of ist_audit_budget, how it is counted. */
#define LIMITS(X)                                                                                                      \
    X(reads, c->reads)                                                                                                 \
    X(writes, c->writes)                                                                                               \
    X(waits, c->waits)                                                                                                 \
    X(bytes, c->h2d_bytes + c->d2h_bytes)                                                                              \
    X(builds, c->builds)

static bool parse_number(const char *p, const char *end, uint64_t *out) {
    uint64_t value = 0;
    const char *start = p;
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        if (value > (UINT64_MAX >> 34)) return false; /* leaves room for the unit */
        value = value * 10 + (uint64_t)(*p - '0');
    }
    if (p == start) return false;
    if (p < end) {
        int shift = *p == 'K' || *p == 'k' ? 10 : *p == 'M' || *p == 'm' ? 20 : *p == 'G' || *p == 'g' ? 30 : 0;
        if (!shift) return false;
        value <<= shift;
        p++;
    }
    *out = value;
    return p == end;
}

ist_status ist_audit_parse_budget(const char *text, ist_audit_budget *budget, ist_error *err) {
    *budget = (ist_audit_budget){UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    for (const char *p = text;;) {
        const char *end = p + strcspn(p, ","), *equals = memchr(p, '=', (size_t)(end - p));
        uint64_t *field = NULL;
        size_t n = equals ? (size_t)(equals - p) : 0;
#define X(name, value)                                                                                                 \
    if (n == strlen(#name) && !memcmp(p, #name, n)) field = &budget->name;
        LIMITS(X)
#undef X
        if (!field)
            return ist_fail(err, IST_E_ARGUMENT,
                            "budget: '%.*s' is none of reads=N, writes=N, waits=N, bytes=N, builds=N", (int)(end - p),
                            p);
        if (!parse_number(equals + 1, end, field))
            return ist_fail(err, IST_E_ARGUMENT, "budget: '%.*s' has no number such as 1, 64K, 4M", (int)(end - p), p);
        if (!*end) return IST_OK;
        p = end + 1;
    }
}

void ist_audit_count(ist_audit_counts *c, const ist_audit_event *e) {
    if (ist_audit_is_upload(e)) {
        c->writes++;
        c->h2d_bytes += e->bytes;
    }
    if (ist_audit_is_download(e)) {
        c->reads++;
        c->d2h_bytes += e->bytes;
    }
    if (ist_audit_is_wait(e)) c->waits++;
    if (e->op == IST_AUDIT_BUILD) c->builds++;
    if (e->op == IST_AUDIT_LAUNCH) c->launches++;
}

/* What of `c` is over; leaves `breach->what` alone when nothing is. */
static void compare(const ist_audit_counts *c, const ist_audit_budget *b, ist_audit_breach *breach) {
#define X(name, value)                                                                                                 \
    if (!breach->what && (value) > b->name) {                                                                          \
        breach->what = #name;                                                                                          \
        breach->limit = b->name;                                                                                       \
        breach->have = (value);                                                                                        \
    }
    LIMITS(X)
#undef X
}

ist_status ist_audit_check_budget(const ist_audit_report *report, const ist_audit_budget *budget,
                                  ist_audit_breach *breach, ist_error *err) {
    const ist_audit_log *log = report->log;
    bool whole = !report->frames.count;
    ist_audit_counts *counts = calloc((size_t)report->frames.count + 1, sizeof *counts);
    *breach = (ist_audit_breach){0};
    if (!counts) return ist_fail(err, IST_E_MEMORY, "out of memory for %u frames", report->frames.count);
    for (size_t i = 0; i < log->event_count && !breach->what; i++) {
        const ist_audit_event *e = &log->events[i];
        if ((!whole && !e->frame) || e->frame > report->frames.count) continue;
        ist_audit_count(&counts[e->frame], e);
        compare(&counts[e->frame], budget, breach);
        breach->frame = e->frame;
        breach->event = i;
    }
    free(counts);
    return IST_OK;
}
