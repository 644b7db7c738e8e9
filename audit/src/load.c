/* The layer's recordings: see wire.h. Nothing in the file is trusted. */
#include "audit/load.h"

#include "audit/wire.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

typedef struct loader {
    ist_audit_log *log;
    uint64_t pid;
    uint32_t *sites, *labels; /* number in the file -> index in the log */
    size_t site_count, site_cap, label_count, label_cap;
} loader;

static bool ends_with_zero(const char *text, size_t room) {
    return memchr(text, '\0', room) != NULL;
}

static ist_status add_site(loader *l, const ist_audit_wire_site *s, size_t room, ist_error *err) {
    if (!ends_with_zero(s->module, room)) return IST_OK;
    if (!ist_grow((void **)&l->sites, &l->site_cap, l->site_count + 1, sizeof *l->sites))
        return ist_fail(err, IST_E_MEMORY, "out of memory for %zu places", l->site_count + 1);
    ist_audit_site site = {.address = s->address, .offset = s->offset, .outer = IST_AUDIT_NONE};
    if (s->outer < l->site_count) site.outer = l->sites[s->outer];
    char *module = *s->module ? ist_strdup(s->module) : NULL;
    if (*s->module && !module) return ist_fail(err, IST_E_MEMORY, "out of memory for the name of a module");
    site.module = module;
    ist_status status = ist_audit_add_site(l->log, &site, &l->sites[l->site_count], err);
    free(module);
    l->site_count += !status;
    return status;
}

static ist_status add_label(loader *l, const ist_audit_wire_label *s, size_t room, ist_error *err) {
    if (!ends_with_zero(s->text, room)) return IST_OK;
    if (!ist_grow((void **)&l->labels, &l->label_cap, l->label_count + 1, sizeof *l->labels))
        return ist_fail(err, IST_E_MEMORY, "out of memory for %zu names", l->label_count + 1);
    IST_TRY(ist_audit_add_label(l->log, s->text, &l->labels[l->label_count], err));
    l->label_count++;
    return IST_OK;
}

/* Handles and addresses of different processes are different things. */
static uint64_t of_process(const loader *l, uint64_t handle) {
    return handle ? handle ^ l->pid << 48 : 0;
}

/* `position`: of the record in the file. */
static ist_status add_event(loader *l, const ist_audit_wire_event *w, uint64_t position, ist_error *err) {
    if (w->op >= IST_AUDIT_OP_COUNT) return IST_OK;
    ist_audit_event e = {.op = w->op,
                         .flags = w->flags,
                         .thread = (uint32_t)(l->pid << 12) + w->thread,
                         .entry = w->entry < l->label_count ? l->labels[w->entry] : IST_AUDIT_NONE,
                         .site = w->site < l->site_count ? l->sites[w->site] : IST_AUDIT_NONE,
                         .label = w->label < l->label_count ? l->labels[w->label] : IST_AUDIT_NONE,
                         .shape = w->shape,
                         .repeat = w->repeat,
                         .queue = of_process(l, w->queue),
                         .object = of_process(l, w->object),
                         .offset = w->offset,
                         .bytes = w->bytes,
                         .host = of_process(l, w->host),
                         .hash = w->hash,
                         .at_ms = (double)w->start_ns * 1e-6,
                         .wait_ms = (double)w->wait_ns * 1e-6,
                         .move_ms = (double)w->move_ns * 1e-6};
    if (ist_audit_is_download(&e)) e.result = of_process(l, position);
    if (e.op == IST_AUDIT_WAIT) {
        e.result = of_process(l, e.offset);
        e.offset = 0;
    }
    return ist_audit_add_event(l->log, &e, err);
}

ist_status ist_audit_load(ist_audit_log *log, const void *bytes, size_t count, ist_error *err) {
    ist_audit_wire_header header;
    loader l = {.log = log};
    ist_status status = IST_OK;
    if (count < IST_AUDIT_WIRE_HEADER)
        return ist_fail(err, IST_E_INPUT, "%zu %s no recording", count, ist_plural(count, "byte is", "bytes are"));
    memcpy(&header, bytes, sizeof header);
    if (header.magic != IST_AUDIT_WIRE_MAGIC) return ist_fail(err, IST_E_INPUT, "not a recording of the audit layer");
    l.pid = header.pid;
    log->dropped += header.dropped;
    const char *at = (const char *)bytes + IST_AUDIT_WIRE_HEADER, *end = (const char *)bytes + count;
    while (!status && (size_t)(end - at) >= sizeof(ist_audit_wire_record)) {
        ist_audit_wire_record head;
        memcpy(&head, at, sizeof head);
        if (head.type == IST_AUDIT_WIRE_END || head.size < sizeof head || head.size % 8 ||
            head.size > (size_t)(end - at))
            break;
        const void *record = at;
        if (head.type == IST_AUDIT_WIRE_EVENT && head.size >= sizeof(ist_audit_wire_event))
            status = add_event(&l, record, (uint64_t)(at - (const char *)bytes), err);
        else if (head.type == IST_AUDIT_WIRE_SITE && head.size > sizeof(ist_audit_wire_site))
            status = add_site(&l, record, head.size - sizeof(ist_audit_wire_site), err);
        else if (head.type == IST_AUDIT_WIRE_LABEL && head.size > sizeof(ist_audit_wire_label))
            status = add_label(&l, record, head.size - sizeof(ist_audit_wire_label), err);
        at += head.size;
    }
    free(l.sites);
    free(l.labels);
    return status;
}

static int by_time(const void *a, const void *b) {
    const ist_audit_event *x = a, *y = b;
    return x->at_ms < y->at_ms ? -1 : x->at_ms > y->at_ms;
}

void ist_audit_sort(ist_audit_log *log) {
    enum { KNOWN = 256 };
    uint32_t threads[KNOWN], count = 0;
    if (!log->event_count) return;
    qsort(log->events, log->event_count, sizeof *log->events, by_time);
    double start = log->events[0].at_ms;
    for (size_t i = 0; i < log->event_count; i++) {
        ist_audit_event *e = &log->events[i];
        uint32_t k = 0;
        while (k < count && threads[k] != e->thread) k++;
        if (k == count && count < KNOWN) threads[count++] = e->thread;
        e->thread = k;
        e->at_ms -= start;
    }
}

/* ---- copies to and from host memory ---- */

typedef struct staging {
    uint64_t object;
    bool crossed; /* a call has moved its contents since the last copy, in the direction of the pass */
} staging;

enum { STAGINGS = 256 }; /* buffers in host memory; copies of more keep no direction */

static staging *find_staging(staging *list, size_t count, uint64_t object) {
    for (size_t k = 0; k < count; k++)
        if (list[k].object == object) return &list[k];
    return NULL;
}

/* One direction: uploads come before their copy, downloads after it. */
static void settle(ist_audit_log *log, staging *list, size_t count, bool down) {
    uint16_t flag = down ? IST_AUDIT_FROM_DEVICE : IST_AUDIT_TO_DEVICE;
    for (size_t k = 0; k < count; k++) list[k].crossed = false;
    for (size_t n = 0; n < log->event_count; n++) {
        ist_audit_event *e = &log->events[down ? log->event_count - 1 - n : n];
        bool copy = e->op == IST_AUDIT_COPY, moves = down ? ist_audit_is_download(e) : ist_audit_is_upload(e);
        if (!moves) continue;
        staging *s = find_staging(list, count, copy ? e->host : e->object);
        if (copy && (!s || s->crossed)) e->flags &= (uint16_t)~flag;
        if (s) s->crossed = !copy;
    }
}

void ist_audit_settle_copies(ist_audit_log *log) {
    staging list[STAGINGS];
    size_t count = 0;
    for (size_t i = 0; i < log->event_count; i++) {
        const ist_audit_event *e = &log->events[i];
        bool copy = e->op == IST_AUDIT_COPY && e->host;
        if (copy && count < STAGINGS && !find_staging(list, count, e->host)) list[count++].object = e->host;
    }
    settle(log, list, count, true);
    settle(log, list, count, false);
    for (size_t i = 0; i < log->event_count; i++)
        if (log->events[i].op == IST_AUDIT_COPY) log->events[i].host = 0;
}
