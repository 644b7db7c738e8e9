/* From events to findings: the rules in their order, then all events of one category and place together. */
#include "audit/judge.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Event indices by frame, in the order of the log within each. */
typedef struct frame_order {
    uint32_t *items;
    size_t *starts; /* [frames + 2] */
} frame_order;

static bool order_by_frame(const ist_audit_log *log, uint32_t frames, frame_order *order) {
    order->items = malloc((log->event_count + 1) * sizeof *order->items);
    order->starts = calloc((size_t)frames + 3, sizeof *order->starts);
    if (!order->items || !order->starts) return false;
    for (size_t i = 0; i < log->event_count; i++) order->starts[log->events[i].frame + 2]++;
    for (size_t f = 2; f < (size_t)frames + 3; f++) order->starts[f] += order->starts[f - 1];
    for (size_t i = 0; i < log->event_count; i++) order->items[order->starts[log->events[i].frame + 1]++] = (uint32_t)i;
    return true;
}

static void each_frame(ist_audit_judge_state *j, const frame_order *order,
                       void (*rule)(ist_audit_judge_state *, ist_audit_slice)) {
    for (uint32_t f = 0; f <= j->frames.count; f++)
        rule(j, (ist_audit_slice){order->items + order->starts[f], order->starts[f + 1] - order->starts[f], f});
}

static void claim_the_rest(ist_audit_judge_state *j) {
    for (size_t i = 0; i < j->log->event_count; i++) {
        const ist_audit_event *e = &j->log->events[i];
        if (!ist_audit_is_free(j, i)) continue;
        if (ist_audit_is_upload(e))
            ist_audit_claim_event(j, i, IST_AUDIT_CAT_UPLOAD, IST_AUDIT_NECESSARY);
        else if (ist_audit_is_download(e))
            ist_audit_claim_event(j, i, IST_AUDIT_CAT_DOWNLOAD, IST_AUDIT_NECESSARY);
        else if (e->op == IST_AUDIT_WAIT)
            ist_audit_claim_event(j, i, IST_AUDIT_CAT_WAIT, IST_AUDIT_NECESSARY);
    }
}

static ist_status apply_rules(ist_audit_judge_state *j, const frame_order *order, ist_error *err) {
    IST_TRY(ist_audit_rule_chains(j, err));
    each_frame(j, order, ist_audit_rule_scalars);
    each_frame(j, order, ist_audit_rule_round_trips);
    IST_TRY(ist_audit_rule_uploads(j, err));
    ist_audit_rule_single_events(j);
    ist_audit_rule_unfinished_work(j);
    each_frame(j, order, ist_audit_rule_wait_loops);
    each_frame(j, order, ist_audit_rule_mid_frame);
    each_frame(j, order, ist_audit_rule_flushes);
    claim_the_rest(j);
    return IST_OK;
}

/* ---- grouping ---- */

typedef struct groups {
    ist_audit_report *report;
    size_t cap;
    uint32_t *heads; /* [site + 1]: newest finding of the place, + 1 */
    uint32_t *next;  /* [finding]: older one of the same place, + 1 */
    size_t next_cap;
    uint64_t *in_frame; /* [finding]: count in the frame of the last event */
    size_t in_frame_cap;
    uint32_t *last_frame; /* [finding] */
    size_t last_frame_cap;
} groups;

static bool make_room(groups *g, size_t n) {
    return ist_grow((void **)&g->report->findings, &g->cap, n, sizeof *g->report->findings) &&
           ist_grow((void **)&g->next, &g->next_cap, n, sizeof *g->next) &&
           ist_grow((void **)&g->in_frame, &g->in_frame_cap, n, sizeof *g->in_frame) &&
           ist_grow((void **)&g->last_frame, &g->last_frame_cap, n, sizeof *g->last_frame);
}

/* Place of the finding that `key` belongs to; SIZE_MAX when out of memory. */
static size_t find_group(groups *g, const ist_audit_finding *key) {
    const ist_audit_log *log = g->report->log;
    uint32_t *head = &g->heads[key->site < log->site_count ? key->site : log->site_count];
    for (uint32_t k = *head; k; k = g->next[k - 1]) {
        const ist_audit_finding *f = &g->report->findings[k - 1];
        if (f->category == key->category && f->entry == key->entry && f->partner_site == key->partner_site &&
            f->partner_entry == key->partner_entry)
            return k - 1;
    }
    size_t n = g->report->finding_count;
    if (!make_room(g, n + 1)) return SIZE_MAX;
    g->report->findings[n] = *key;
    g->next[n] = *head;
    g->in_frame[n] = 0;
    g->last_frame[n] = UINT32_MAX;
    *head = (uint32_t)n + 1;
    g->report->finding_count++;
    return n;
}

static bool add_to_group(groups *g, const ist_audit_claim *claim, size_t i) {
    const ist_audit_event *ev = g->report->log->events, *e = &ev[i];
    const ist_audit_event *at = claim->partner == IST_AUDIT_NONE ? e : &ev[claim->partner];
    ist_audit_finding key = {.severity = (ist_audit_severity)claim->severity,
                             .category = (ist_audit_category)claim->category,
                             .site = at->site,
                             .entry = at->entry,
                             .partner_site = at == e ? IST_AUDIT_NONE : e->site,
                             .partner_entry = at == e ? IST_AUDIT_NONE : e->entry,
                             .thread = at->thread,
                             .first = (size_t)(at - ev)};
    size_t n = find_group(g, &key);
    if (n == SIZE_MAX) return false;
    ist_audit_finding *f = &g->report->findings[n];
    if (key.severity < f->severity) f->severity = key.severity;
    if (at->frame != g->last_frame[n]) {
        g->last_frame[n] = at->frame;
        g->in_frame[n] = 0;
        f->frames += at->frame != 0;
    }
    f->count += e->repeat ? e->repeat : 1;
    bool counts = at->frame || !g->report->frames.count; /* set-up is no frame, unless all is one */
    if (++g->in_frame[n] > f->most_per_frame && counts) f->most_per_frame = g->in_frame[n];
    f->bytes += e->bytes + (at == e ? 0 : at->bytes);
    f->wait_ms += e->wait_ms + (at == e ? 0 : at->wait_ms);
    f->move_ms += e->move_ms + (at == e ? 0 : at->move_ms);
    return true;
}

/* What shows only in the whole: repetition makes a chain critical; what happens in one frame of many is a warm-up. */
static void adjust_severity(ist_audit_report *r) {
    for (size_t k = 0; k < r->finding_count; k++) {
        ist_audit_finding *f = &r->findings[k];
        bool once = f->frames == 1 && r->frames.count > 1;
        if (f->category == IST_AUDIT_CAT_CHAIN && f->count >= 3) f->severity = IST_AUDIT_CRITICAL;
        if (f->category == IST_AUDIT_CAT_BUILD && once) f->severity = IST_AUDIT_MEDIUM;
        if (f->category == IST_AUDIT_CAT_CREATE && once) f->severity = IST_AUDIT_MINOR;
        r->severities[f->severity]++;
    }
}

/* Worst first: severity, then time, bytes, count, order in the log. */
static int by_weight(const void *a, const void *b) {
    const ist_audit_finding *x = a, *y = b;
    double tx = x->wait_ms + x->move_ms, ty = y->wait_ms + y->move_ms;
    if (x->severity != y->severity) return x->severity < y->severity ? -1 : 1;
    if (tx != ty) return tx > ty ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->category < y->category ? -1 : x->category > y->category;
}

static bool group(const ist_audit_judge_state *j, ist_audit_report *report) {
    groups g = {.report = report, .heads = calloc(j->log->site_count + 1, sizeof *g.heads)};
    bool enough = g.heads != NULL;
    for (size_t i = 0; enough && i < j->log->event_count; i++) {
        const ist_audit_claim *c = &j->claims[i];
        bool pair = c->category == IST_AUDIT_CAT_CHAIN || c->category == IST_AUDIT_CAT_ROUND_TRIP;
        if (c->category == IST_AUDIT_UNCLAIMED || (pair && c->partner == IST_AUDIT_NONE))
            continue; /* with its upload */
        enough = add_to_group(&g, c, i);
    }
    free(g.heads);
    free(g.next);
    free(g.in_frame);
    free(g.last_frame);
    if (!enough) return false;
    adjust_severity(report);
    if (report->finding_count) qsort(report->findings, report->finding_count, sizeof *report->findings, by_weight);
    return true;
}

#define KEEP_MOST(field)                                                                                               \
    if (c.field > report->most.field) report->most.field = c.field

static void add_totals(const frame_order *order, ist_audit_report *report) {
    for (uint32_t f = 0; f <= report->frames.count; f++) {
        ist_audit_counts c = {0};
        for (size_t k = order->starts[f]; k < order->starts[f + 1]; k++) {
            const ist_audit_event *e = &report->log->events[order->items[k]];
            ist_audit_count(&c, e);
            ist_audit_count(&report->total, e);
            report->wait_ms += e->wait_ms;
            report->move_ms += e->move_ms;
        }
        if (!f) continue;
        KEEP_MOST(writes);
        KEEP_MOST(reads);
        KEEP_MOST(waits);
        KEEP_MOST(builds);
        KEEP_MOST(launches);
        KEEP_MOST(h2d_bytes);
        KEEP_MOST(d2h_bytes);
    }
}

ist_status ist_audit_judge(const ist_audit_log *log, ist_audit_frames frames, ist_audit_report *report,
                           ist_error *err) {
    ist_audit_judge_state j = {.log = log, .frames = frames};
    frame_order order = {0};
    *report = (ist_audit_report){.log = log, .frames = frames};
    j.claims = malloc((log->event_count + 1) * sizeof *j.claims);
    j.site_counts = calloc(log->site_count + 1, sizeof *j.site_counts);
    ist_status status = IST_OK;
    if (!j.claims || !j.site_counts || !order_by_frame(log, frames.count, &order))
        status = ist_fail(err, IST_E_MEMORY, "out of memory for %zu events", log->event_count);
    for (size_t i = 0; !status && i < log->event_count; i++)
        j.claims[i] = (ist_audit_claim){IST_AUDIT_UNCLAIMED, 0, IST_AUDIT_NONE};
    if (!status) status = apply_rules(&j, &order, err);
    if (!status && !group(&j, report)) status = ist_fail(err, IST_E_MEMORY, "out of memory for findings");
    if (!status) add_totals(&order, report);
    free(j.claims);
    free(j.site_counts);
    free(order.items);
    free(order.starts);
    if (status) ist_audit_report_free(report);
    return status;
}

void ist_audit_report_free(ist_audit_report *report) {
    free(report->findings);
    *report = (ist_audit_report){0};
}
