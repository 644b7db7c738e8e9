/* Rules about waiting and about objects made or released at the wrong time. */
#include "audit/judge.h"

/* ---- waits for nothing, releases that wait ---- */

typedef enum queue_work {
    WORK_UNKNOWN, /* some of it was waited for, or the log begins here */
    WORK_DONE,
    WORK_PENDING
} queue_work;

typedef struct queue_state {
    uint64_t queue; /* 0: free */
    queue_work work;
} queue_state;

enum { QUEUES = 64 };

static queue_state *find_queue(queue_state *table, uint64_t queue) {
    for (size_t k = 0; k < QUEUES; k++) {
        if (table[k].queue == queue) return &table[k];
        if (table[k].queue) continue;
        table[k] = (queue_state){queue, WORK_UNKNOWN};
        return &table[k];
    }
    return NULL;
}

static bool any_pending(const queue_state *table) {
    for (size_t k = 0; k < QUEUES; k++)
        if (table[k].work == WORK_PENDING) return true;
    return false;
}

/* A long release with nothing left to do, or after the last kernel's frame, is the driver tidying up. */
static void judge_release(ist_audit_judge_state *j, size_t i, const queue_state *table, size_t last_launch) {
    const ist_audit_event *e = &j->log->events[i];
    const double least_ms = 1.0;
    bool matters = e->frame || i < last_launch;
    if (matters && e->wait_ms >= least_ms && any_pending(table) && ist_audit_is_free(j, i))
        ist_audit_claim_event(j, i, IST_AUDIT_CAT_RELEASE, e->frame ? IST_AUDIT_MEDIUM : IST_AUDIT_MINOR);
}

/* Outside of frames a needless clFinish before the end of a program harms nobody. */
void ist_audit_rule_unfinished_work(ist_audit_judge_state *j) {
    queue_state table[QUEUES] = {{0}}, *q;
    size_t last_launch = 0;
    for (size_t i = 0; i < j->log->event_count; i++)
        if (j->log->events[i].op == IST_AUDIT_LAUNCH) last_launch = i;
    for (size_t i = 0; i < j->log->event_count; i++) {
        const ist_audit_event *e = &j->log->events[i];
        if (e->op == IST_AUDIT_RELEASE) judge_release(j, i, table, last_launch);
        if (!e->queue || e->op == IST_AUDIT_FLUSH || e->op == IST_AUDIT_RELEASE || e->op == IST_AUDIT_POLL ||
            e->op == IST_AUDIT_CONTEXT)
            continue;
        if (!(q = find_queue(table, e->queue))) continue;
        bool waits = ist_audit_is_wait(e), whole = e->flags & IST_AUDIT_WHOLE_QUEUE;
        if (e->op == IST_AUDIT_WAIT && q->work == WORK_DONE && e->frame && ist_audit_is_free(j, i))
            ist_audit_claim_event(j, i, IST_AUDIT_CAT_REDUNDANT_WAIT, IST_AUDIT_MINOR);
        if (!waits)
            q->work = WORK_PENDING;
        else if (whole)
            q->work = WORK_DONE;
        else if (q->work == WORK_PENDING || e->op != IST_AUDIT_WAIT)
            q->work = WORK_UNKNOWN;
    }
}

/* ---- waits in loops ---- */

static bool is_idle_wait(const ist_audit_judge_state *j, size_t i) {
    const ist_audit_event *e = &j->log->events[i];
    return e->op == IST_AUDIT_WAIT && !e->bytes && ist_audit_is_free(j, i);
}

/* Outside of frames: four from one place with kernels between them and no result taken. */
static void idle_runs(ist_audit_judge_state *j, ist_audit_slice slice) {
    enum { RUN = 4 };
    const ist_audit_event *ev = j->log->events;
    for (size_t k = 0; k < slice.count;) {
        size_t i = slice.items[k], members = 0, end = k;
        bool launched = true;
        if (!is_idle_wait(j, i)) {
            k++;
            continue;
        }
        for (; end < slice.count; end++) {
            const ist_audit_event *e = &ev[slice.items[end]];
            if (ist_audit_is_download(e)) break;
            if (e->op == IST_AUDIT_WAIT && (e->site != ev[i].site || !is_idle_wait(j, slice.items[end]) || !launched))
                break;
            members += e->op == IST_AUDIT_WAIT;
            launched = e->op == IST_AUDIT_LAUNCH || (launched && e->op != IST_AUDIT_WAIT);
        }
        for (size_t m = k; members >= RUN && m < end; m++)
            if (is_idle_wait(j, slice.items[m]))
                ist_audit_claim_event(j, slice.items[m], IST_AUDIT_CAT_WAIT_LOOP, IST_AUDIT_MEDIUM);
        k = end > k ? end : k + 1;
    }
}

void ist_audit_rule_wait_loops(ist_audit_judge_state *j, ist_audit_slice slice) {
    enum { CRITICAL_PER_FRAME = 3 };
    const ist_audit_event *ev = j->log->events;
    bool takes = false;
    if (!slice.frame) {
        idle_runs(j, slice);
        return;
    }
    for (size_t k = 0; k < slice.count; k++) {
        size_t i = slice.items[k];
        takes = takes || ist_audit_is_download(&ev[i]) || (ev[i].op == IST_AUDIT_WAIT && ev[i].bytes);
        if (is_idle_wait(j, i)) ++*ist_audit_site_counter(j, &ev[i]);
    }
    for (size_t k = 0; k < slice.count; k++) {
        size_t i = slice.items[k];
        uint32_t count = *ist_audit_site_counter(j, &ev[i]);
        if (!is_idle_wait(j, i) || (count < 2 && takes))
            continue; /* a frame may have its one wait apart from its read */
        ist_audit_claim_event(j, i, IST_AUDIT_CAT_WAIT_LOOP,
                              count >= CRITICAL_PER_FRAME ? IST_AUDIT_CRITICAL : IST_AUDIT_MEDIUM);
    }
    for (size_t k = 0; k < slice.count; k++) *ist_audit_site_counter(j, &ev[slice.items[k]]) = 0;
}

/* ---- the middle of a frame ---- */

/* From the end: what follows an event decides about it. */
void ist_audit_rule_mid_frame(ist_audit_judge_state *j, ist_audit_slice slice) {
    const ist_audit_event *ev = j->log->events;
    bool launch_follows = false, download_follows = false;
    if (!slice.frame) return;
    for (size_t k = slice.count; k-- > 0;) {
        size_t i = slice.items[k];
        const ist_audit_event *e = &ev[i];
        bool down = ist_audit_is_download(e), blocks = (e->flags & IST_AUDIT_BLOCKING) && e->op != IST_AUDIT_CREATE;
        if (ist_audit_is_free(j, i)) {
            if (e->op == IST_AUDIT_WAIT && launch_follows)
                ist_audit_claim_event(j, i, IST_AUDIT_CAT_WAIT_MID_FRAME, IST_AUDIT_MEDIUM);
            else if (blocks && (!down || launch_follows))
                ist_audit_claim_event(j, i, IST_AUDIT_CAT_BLOCKING, IST_AUDIT_MEDIUM);
            else if (blocks && download_follows)
                ist_audit_claim_event(j, i, IST_AUDIT_CAT_BLOCKING, IST_AUDIT_MINOR);
        }
        launch_follows = launch_follows || e->op == IST_AUDIT_LAUNCH;
        download_follows = download_follows || down;
    }
}

/* Flushes of one queue in a frame; where no handle is known (our own run), its name tells which. */
typedef struct queue_flushes {
    uint64_t queue;
    uint32_t label;
    size_t count;
} queue_flushes;

/* Queues beyond those that fit count with the last. */
static queue_flushes *flushes_of(queue_flushes *table, const ist_audit_event *e) {
    size_t k = 0;
    while (k < QUEUES - 1 && table[k].count && (table[k].queue != e->queue || table[k].label != e->label)) k++;
    if (!table[k].count) table[k] = (queue_flushes){e->queue, e->label, 0};
    return &table[k];
}

/* Of each queue there may be one at the end, and one before another queue waits for it. */
void ist_audit_rule_flushes(ist_audit_judge_state *j, ist_audit_slice slice) {
    enum { PER_FRAME = 3 };
    const ist_audit_event *ev = j->log->events;
    queue_flushes table[QUEUES] = {{0}};
    if (!slice.frame) return;
    for (size_t k = 0; k < slice.count; k++)
        if (ev[slice.items[k]].op == IST_AUDIT_FLUSH) flushes_of(table, &ev[slice.items[k]])->count++;
    for (size_t k = 0; k < slice.count; k++) {
        size_t i = slice.items[k];
        if (ev[i].op == IST_AUDIT_FLUSH && ist_audit_is_free(j, i) && flushes_of(table, &ev[i])->count >= PER_FRAME)
            ist_audit_claim_event(j, i, IST_AUDIT_CAT_FLUSH, IST_AUDIT_MINOR);
    }
}

/* ---- events that speak for themselves ---- */

static void claim_creation(ist_audit_judge_state *j, size_t i) {
    const ist_audit_event *e = &j->log->events[i];
    bool over_host = e->flags & IST_AUDIT_USE_HOST;
    if (e->op == IST_AUDIT_CREATE && (over_host || (e->frame && (e->flags & IST_AUDIT_TO_DEVICE))))
        ist_audit_claim_event(j, i, IST_AUDIT_CAT_HOST_POINTER, e->frame ? IST_AUDIT_MEDIUM : IST_AUDIT_MINOR);
    else if (e->frame)
        ist_audit_claim_event(j, i, IST_AUDIT_CAT_CREATE,
                              e->op == IST_AUDIT_CONTEXT  ? IST_AUDIT_CRITICAL
                              : e->op == IST_AUDIT_CREATE ? IST_AUDIT_MEDIUM
                                                          : IST_AUDIT_MINOR);
}

void ist_audit_rule_single_events(ist_audit_judge_state *j) {
    enum { POLLS = 4 };
    for (size_t i = 0; i < j->log->event_count; i++) {
        const ist_audit_event *e = &j->log->events[i];
        if (!ist_audit_is_free(j, i)) continue;
        if (e->op == IST_AUDIT_BUILD && e->frame)
            ist_audit_claim_event(j, i, IST_AUDIT_CAT_BUILD, IST_AUDIT_CRITICAL);
        else if (e->op == IST_AUDIT_POLL && e->repeat >= POLLS)
            ist_audit_claim_event(j, i, IST_AUDIT_CAT_POLL, IST_AUDIT_MEDIUM);
        else if (e->op == IST_AUDIT_CREATE || e->op == IST_AUDIT_KERNEL || e->op == IST_AUDIT_CONTEXT)
            claim_creation(j, i);
    }
}
