/* Rules about data: chains, round trips, values one by one, unchanged uploads, uploads for nothing. */
#include "audit/judge.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
    SCALAR_BYTES = 16,    /* up to four floats are values, not arrays */
    LEAST_CONTENT = 16,   /* shorter contents are equal by chance */
    TABLE = 1 << 14,      /* contents remembered; a newer one takes the place of an older */
    RECENT = 64,          /* downloads whose host ranges are remembered */
    RANGES = 32,          /* last writes remembered per object, in both rules about uploads */
    OBJECTS = 1 << 12,    /* followed; more than these are not */
    LARGE_BYTES = 1 << 16 /* an unchanged upload of this size in every frame is critical */
};

/* ---- chains ---- */

typedef struct chain_state {
    uint32_t down[TABLE], up[TABLE]; /* event + 1 of the last download, first upload, with this content */
    uint32_t recent[RECENT];         /* event + 1 of downloads whose host range nothing has used since */
    size_t next;
} chain_state;

static bool same_content(const ist_audit_event *a, const ist_audit_event *b) {
    return a->hash && a->hash == b->hash && a->bytes == b->bytes;
}

static bool overlaps(const ist_audit_event *a, const ist_audit_event *b) {
    return a->host && b->host && a->host < b->host + b->bytes && b->host < a->host + a->bytes;
}

static void claim_pair(ist_audit_judge_state *j, size_t download, size_t upload, ist_audit_category category) {
    const ist_audit_event *ev = j->log->events;
    ist_audit_severity severity = ev[download].frame && ev[upload].frame ? IST_AUDIT_CRITICAL : IST_AUDIT_MEDIUM;
    if (ist_audit_is_free(j, download)) ist_audit_claim_event(j, download, category, severity);
    ist_audit_claim_event(j, upload, category, severity);
    j->claims[upload].partner = (uint32_t)download;
}

/* Is there a launch of its frame before `from`, or after it? */
static bool launch_near(const ist_audit_log *log, size_t from, bool before) {
    uint32_t frame = log->events[from].frame;
    for (size_t i = from, steps = 0; steps < 4096; steps++) {
        if (before ? i == 0 : i + 1 >= log->event_count) return false;
        i = before ? i - 1 : i + 1;
        if (log->events[i].op == IST_AUDIT_LAUNCH && log->events[i].frame == frame) return true;
    }
    return false;
}

/* The upload's data, or its place in host memory, came down before: the chain's download, or SIZE_MAX. Outside of
 * frames, host memory that is used again for other data tells nothing. */
static size_t find_download(const ist_audit_judge_state *j, chain_state *s, size_t upload,
                            ist_audit_category *category) {
    const ist_audit_event *ev = j->log->events, *u = &ev[upload];
    size_t slot = (size_t)(u->hash % TABLE), found = SIZE_MAX;
    if (u->hash && u->bytes >= LEAST_CONTENT && s->down[slot]) {
        size_t d = s->down[slot] - 1;
        bool sent_first = s->up[slot] && s->up[slot] - 1 < d && same_content(&ev[s->up[slot] - 1], u);
        if (same_content(&ev[d], u) && !sent_first) found = d;
    }
    *category = IST_AUDIT_CAT_CHAIN;
    for (size_t k = 0; k < RECENT; k++) {
        uint32_t *entry = &s->recent[(s->next + RECENT - 1 - k) % RECENT];
        if (!*entry || !overlaps(&ev[*entry - 1], u)) continue;
        size_t d = *entry - 1;
        *entry = 0; /* whatever it held, the host memory has a new use */
        if (found != SIZE_MAX || !u->frame || ev[d].frame != u->frame || same_content(&ev[d], u)) continue;
        if (!launch_near(j->log, d, true) || !launch_near(j->log, upload, false)) continue;
        found = d;
        *category = IST_AUDIT_CAT_ROUND_TRIP;
    }
    return found;
}

ist_status ist_audit_rule_chains(ist_audit_judge_state *j, ist_error *err) {
    const ist_audit_log *log = j->log;
    chain_state *s = calloc(1, sizeof *s);
    if (!s) return ist_fail(err, IST_E_MEMORY, "out of memory for chains");
    for (size_t i = 0; i < log->event_count; i++) {
        const ist_audit_event *e = &log->events[i];
        size_t slot = (size_t)(e->hash % TABLE);
        if (ist_audit_is_upload(e)) {
            ist_audit_category category;
            size_t d = find_download(j, s, i, &category);
            if (d != SIZE_MAX)
                claim_pair(j, d, i, category);
            else if (e->hash && (!s->up[slot] || !same_content(&log->events[s->up[slot] - 1], e)))
                s->up[slot] = (uint32_t)i + 1;
        }
        if (ist_audit_is_download(e)) {
            if (e->hash) s->down[slot] = (uint32_t)i + 1;
            if (e->host) s->recent[s->next++ % RECENT] = (uint32_t)i + 1;
        }
    }
    free(s);
    return IST_OK;
}

/* A download the host has waited for, then an upload, then a kernel, all after a kernel of the same frame. */
void ist_audit_rule_round_trips(ist_audit_judge_state *j, ist_audit_slice slice) {
    const ist_audit_event *ev = j->log->events;
    size_t down = SIZE_MAX, up = SIZE_MAX;
    bool launched = false, waited = false;
    if (!slice.frame) return;
    for (size_t k = 0; k < slice.count; k++) {
        size_t i = slice.items[k];
        if (ev[i].op == IST_AUDIT_LAUNCH) {
            if (up != SIZE_MAX) {
                claim_pair(j, down, up, IST_AUDIT_CAT_ROUND_TRIP);
                down = up = SIZE_MAX;
            }
            launched = true;
        } else if (ist_audit_is_download(&ev[i]) && launched && ist_audit_is_free(j, i)) {
            down = i;
            waited = false;
        }
        if (down != SIZE_MAX && ist_audit_is_wait(&ev[i])) waited = true;
        if (ist_audit_is_upload(&ev[i]) && down != SIZE_MAX && waited && ist_audit_is_free(j, i)) up = i;
    }
}

/* ---- one by one ---- */

static bool is_scalar(const ist_audit_judge_state *j, size_t i, bool down) {
    const ist_audit_event *e = &j->log->events[i];
    return ist_audit_is_free(j, i) && e->bytes <= SCALAR_BYTES && e->op != IST_AUDIT_CREATE &&
           (down ? ist_audit_is_download(e) : ist_audit_is_upload(e));
}

/* Outside of frames: four in a row from one place, no other transfer or kernel in between. */
static void scalar_runs(ist_audit_judge_state *j, ist_audit_slice slice, bool down) {
    const ist_audit_event *ev = j->log->events;
    enum { RUN = 4 };
    for (size_t k = 0; k < slice.count;) {
        size_t i = slice.items[k], members = 0, end = k;
        if (!is_scalar(j, i, down)) {
            k++;
            continue;
        }
        for (; end < slice.count; end++) {
            const ist_audit_event *e = &ev[slice.items[end]];
            bool member = is_scalar(j, slice.items[end], down) && e->site == ev[i].site;
            if (!member && e->op != IST_AUDIT_WAIT && e->op != IST_AUDIT_FLUSH) break;
            members += member;
        }
        for (size_t m = k; members >= RUN && m < end; m++)
            if (is_scalar(j, slice.items[m], down))
                ist_audit_claim_event(j, slice.items[m], down ? IST_AUDIT_CAT_SCALAR_READ : IST_AUDIT_CAT_SCALAR_WRITE,
                                      down ? IST_AUDIT_MEDIUM : IST_AUDIT_MINOR);
        k = end;
    }
}

static void scalars(ist_audit_judge_state *j, ist_audit_slice slice, bool down) {
    const ist_audit_event *ev = j->log->events;
    enum { PER_FRAME = 3 };
    for (size_t k = 0; k < slice.count; k++)
        if (is_scalar(j, slice.items[k], down)) ++*ist_audit_site_counter(j, &ev[slice.items[k]]);
    for (size_t k = 0; k < slice.count; k++) {
        size_t i = slice.items[k];
        if (!is_scalar(j, i, down) || *ist_audit_site_counter(j, &ev[i]) < PER_FRAME) continue;
        ist_audit_claim_event(j, i, down ? IST_AUDIT_CAT_SCALAR_READ : IST_AUDIT_CAT_SCALAR_WRITE,
                              down ? IST_AUDIT_CRITICAL : IST_AUDIT_MEDIUM);
    }
    for (size_t k = 0; k < slice.count; k++) *ist_audit_site_counter(j, &ev[slice.items[k]]) = 0;
}

void ist_audit_rule_scalars(ist_audit_judge_state *j, ist_audit_slice slice) {
    for (int down = 0; down < 2; down++) {
        if (slice.frame)
            scalars(j, slice, down);
        else
            scalar_runs(j, slice, down);
    }
}

/* ---- unchanged uploads ---- */

typedef struct written_range {
    uint64_t offset, bytes, hash;
    uint32_t shape;
} written_range;

typedef struct object_state {
    uint64_t object; /* 0: free */
    bool is_read;    /* downloads show that kernels write it */
    written_range ranges[RANGES];
    uint32_t unused[RANGES]; /* event + 1 of uploads that nothing has used or overwritten; 0: free */
    size_t next;
} object_state;

typedef struct object_table {
    object_state *items;
    size_t count; /* a power of two */
} object_table;

/* Room for each event to have an object of its own, as far as OBJECTS go. */
static object_table make_object_table(const ist_audit_log *log) {
    object_table t = {.count = 1};
    while (t.count < OBJECTS && t.count < 2 * log->event_count) t.count *= 2;
    t.items = calloc(t.count, sizeof *t.items);
    return t;
}

static object_state *find_object(const object_table *table, uint64_t object) {
    size_t at = (size_t)((object * 0x9E3779B97F4A7C15u) >> 40) % table->count;
    for (size_t k = 0; k < table->count; k++, at = (at + 1) % table->count) {
        object_state *o = &table->items[at];
        if (!o->object) o->object = object;
        if (o->object == object) return o;
    }
    return NULL; /* too many objects to follow */
}

/* Notes what is written; true when it was there already. */
static bool note_upload(object_state *o, const ist_audit_event *e) {
    bool same = false;
    for (size_t k = 0; k < RANGES; k++) {
        written_range *r = &o->ranges[k];
        bool apart = r->offset >= e->offset + e->bytes || e->offset >= r->offset + r->bytes;
        if (!r->hash || (apart && !r->shape && !e->shape)) continue;
        same = same || (e->hash && r->offset == e->offset && r->bytes == e->bytes && r->hash == e->hash &&
                        r->shape == e->shape);
        r->hash = 0;
    }
    o->ranges[o->next++ % RANGES] = (written_range){e->offset, e->bytes, e->hash, e->shape};
    return same;
}

static void unchanged(ist_audit_judge_state *j, const object_table *table) {
    const ist_audit_log *log = j->log;
    object_state *o;
    for (size_t i = 0; i < log->event_count; i++)
        if (ist_audit_is_download(&log->events[i]) && log->events[i].object &&
            (o = find_object(table, log->events[i].object)))
            o->is_read = true;
    for (size_t i = 0; i < log->event_count; i++) {
        const ist_audit_event *e = &log->events[i];
        if (!e->object || !(o = find_object(table, e->object))) continue;
        if (e->op == IST_AUDIT_RELEASE || e->op == IST_AUDIT_COPY || e->op == IST_AUDIT_FILL ||
            e->op == IST_AUDIT_CREATE)
            memset(o->ranges, 0, sizeof o->ranges);
        if (!ist_audit_is_upload(e) || !note_upload(o, e) || o->is_read || !ist_audit_is_free(j, i)) continue;
        ist_audit_severity severity = IST_AUDIT_MINOR; /* a kernel may have changed it */
        if (e->flags & IST_AUDIT_CONSTANT)
            severity = e->frame && e->bytes >= LARGE_BYTES ? IST_AUDIT_CRITICAL : IST_AUDIT_MEDIUM;
        ist_audit_claim_event(j, i, IST_AUDIT_CAT_REDUNDANT_UPLOAD, severity);
    }
}

/* ---- uploads for nothing ---- */

enum { BITS = 128 }; /* ist_audit_object_bit */

/* What a copy or a migration takes is not known: it may be all. False: the event takes nothing without saying so. */
static bool note_use(size_t last_use[BITS], const ist_audit_event *e, size_t i) {
    bool launch = e->op == IST_AUDIT_LAUNCH;
    if (!launch && e->op != IST_AUDIT_COPY && e->op != IST_AUDIT_MIGRATE) return false;
    for (unsigned b = 0; b < BITS; b++) {
        uint64_t untaken = launch ? (b < 64 ? e->hash : e->offset) >> b % 64 & 1 : 0;
        if (!untaken) last_use[b] = i + 1;
    }
    return true;
}

/* Of one object. */
static bool may_touch(const ist_audit_event *a, const ist_audit_event *b) {
    return a->shape || b->shape || (a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes);
}

static bool covers(const ist_audit_event *over, const ist_audit_event *under) {
    if (over->shape == IST_AUDIT_NO_SHAPE || over->shape != under->shape) return false;
    if (over->shape) return over->offset == under->offset && over->bytes == under->bytes;
    return over->offset <= under->offset && under->offset + under->bytes <= over->offset + over->bytes;
}

/* An upload of the same contents again is the other rule's. A map to write is no use: what it brings down goes up
 * again. */
static void claim_overwritten(ist_audit_judge_state *j, size_t under, size_t over) {
    const ist_audit_event *e = &j->log->events[under];
    if (!ist_audit_is_free(j, under) || j->claims[over].category == IST_AUDIT_CAT_REDUNDANT_UPLOAD) return;
    ist_audit_severity severity = !e->frame                 ? IST_AUDIT_MINOR
                                  : e->bytes >= LARGE_BYTES ? IST_AUDIT_CRITICAL
                                                            : IST_AUDIT_MEDIUM;
    ist_audit_claim_event(j, under, IST_AUDIT_CAT_OVERWRITTEN, severity);
}

/* `i` reads the object or writes to it. */
static void look_at_unused(ist_audit_judge_state *j, object_state *o, size_t i, size_t last_use) {
    const ist_audit_event *ev = j->log->events, *e = &ev[i];
    bool reads = ist_audit_is_download(e), uploads = ist_audit_is_upload(e) && e->bytes;
    for (size_t k = 0; k < RANGES; k++) {
        uint32_t *unused = &o->unused[k];
        if (!*unused) continue;
        const ist_audit_event *under = &ev[*unused - 1];
        bool covered = (uploads || e->op == IST_AUDIT_FILL) && covers(e, under);
        if (covered && *unused > last_use) claim_overwritten(j, *unused - 1, i);
        if (covered || *unused <= last_use || (reads && may_touch(e, under))) *unused = 0;
    }
    if (uploads) o->unused[o->next++ % RANGES] = (uint32_t)i + 1;
}

static void overwritten(ist_audit_judge_state *j, const object_table *table) {
    const ist_audit_log *log = j->log;
    size_t last_use[BITS] = {0}; /* event + 1 */
    object_state *o;
    for (size_t i = 0; i < log->event_count; i++) {
        const ist_audit_event *e = &log->events[i];
        if (note_use(last_use, e, i)) continue;
        if (!e->object || !(o = find_object(table, e->object))) continue;
        if (e->op == IST_AUDIT_CREATE) memset(o->unused, 0, sizeof o->unused); /* the handle comes again */
        look_at_unused(j, o, i, last_use[ist_audit_object_bit(e->object)]);
    }
}

ist_status ist_audit_rule_uploads(ist_audit_judge_state *j, ist_error *err) {
    const object_table table = make_object_table(j->log);
    if (!table.items) return ist_fail(err, IST_E_MEMORY, "out of memory for %zu objects", table.count);
    unchanged(j, &table);
    overwritten(j, &table);
    free(table.items);
    return IST_OK;
}
