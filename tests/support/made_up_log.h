/* Logs made by hand, for tests of the audit. Header only.
 *
 * A place is a line of "made.c": place 1 is line 1 and so on. Handles, host addresses and hashes are small numbers of
 * the test's choice; each event begins one millisecond after the one before. */
#ifndef MADE_UP_LOG_H
#define MADE_UP_LOG_H

#include "audit/audit.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { MADE_PLACES = 64 };

static inline ist_audit_log made_log(void) {
    ist_audit_log log = {0};
    for (int i = 0; i <= MADE_PLACES; i++) {
        uint32_t index;
        ist_audit_site site = {.file = i ? "made.c" : NULL, .function = i ? "step" : NULL, .line = i};
        cr_assert_eq(ist_audit_add_site(&log, &site, &index, NULL), IST_OK);
    }
    return log;
}

/* What differs from event to event; `kernel` names launches. */
typedef struct made_event {
    uint16_t flags;
    uint32_t thread, frame, shape;
    uint64_t queue, object, offset, bytes, host, hash, repeat, result;
    double wait_ms, move_ms;
    const char *kernel;
} made_event;

static inline void made_add_(ist_audit_log *log, ist_audit_op op, uint32_t place, made_event m) {
    char entry[64];
    uint32_t name = IST_AUDIT_NONE, label = IST_AUDIT_NONE;
    snprintf(entry, sizeof entry, "call_%s", ist_audit_op_name((int)op));
    cr_assert_eq(ist_audit_add_label(log, entry, &name, NULL), IST_OK);
    if (m.kernel) cr_assert_eq(ist_audit_add_label(log, m.kernel, &label, NULL), IST_OK);
    ist_audit_event e = {.op = (uint16_t)op,
                         .flags = m.flags,
                         .thread = m.thread,
                         .entry = name,
                         .site = place,
                         .label = label,
                         .frame = m.frame,
                         .shape = m.shape,
                         .repeat = m.repeat ? m.repeat : 1,
                         .queue = m.queue,
                         .object = m.object,
                         .offset = m.offset,
                         .bytes = m.bytes,
                         .result = m.result,
                         .host = m.host,
                         .hash = m.hash,
                         .at_ms = (double)log->event_count,
                         .wait_ms = m.wait_ms,
                         .move_ms = m.move_ms};
    cr_assert_eq(ist_audit_add_event(log, &e, NULL), IST_OK);
}

#define MADE_ADD(log, op, place, ...) made_add_(log, IST_AUDIT_##op, place, (made_event){__VA_ARGS__})
#define MADE_LAUNCH(log, place, name) MADE_ADD(log, LAUNCH, place, .kernel = name, .queue = 1)

/* Finds frames and judges; the caller frees the report. */
static inline ist_audit_report made_judge(ist_audit_log *log, const char *kernel) {
    ist_audit_frames frames;
    ist_audit_report report;
    cr_assert_eq(ist_audit_find_frames(log, kernel, &frames, NULL), IST_OK);
    cr_assert_eq(ist_audit_judge(log, frames, &report, NULL), IST_OK);
    return report;
}

/* The finding of a category at a place, or NULL. */
static inline const ist_audit_finding *made_find(const ist_audit_report *r, ist_audit_category category,
                                                 uint32_t place) {
    for (size_t k = 0; k < r->finding_count; k++)
        if (r->findings[k].category == category && r->findings[k].site == place) return &r->findings[k];
    return NULL;
}

static inline size_t made_above(const ist_audit_report *r) {
    return r->finding_count - (size_t)r->severities[IST_AUDIT_NECESSARY];
}

#endif
