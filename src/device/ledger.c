/* The transfer ledger: every crossing between host and device and every wait of the host passes through this file.
 *
 * What must hold: totals are exact; the ring keeps the latest entries; both are right when one thread enqueues while
 * another waits; nothing is allocated. A blocking transfer is two entries, the crossing and the wait: it waits for
 * earlier work first, as it would by itself, so that the two can be told apart. (The engine fills nothing.) */
#include "device/state.h"

#include "base/clock.h"

#include <string.h>

ist_status ist_ledger_init(ist_ledger *ledger, ist_error *err) {
    if (pthread_mutex_init(&ledger->lock, NULL)) return ist_fail(err, IST_E_MEMORY, "no mutex for the transfer ledger");
    ledger->opened_ms = ist_clock_ms();
    return IST_OK;
}

static void count(ist_transfers *t, ist_crossing kind, size_t bytes) {
    switch (kind) {
    case IST_CROSS_WRITE:
        t->writes++;
        t->h2d_bytes += bytes;
        break;
    case IST_CROSS_READ:
        t->reads++;
        t->d2h_bytes += bytes;
        break;
    case IST_CROSS_WAIT:
        t->waits++;
        break;
    case IST_CROSS_MAP:
    case IST_CROSS_UNMAP:
    case IST_CROSS_COPY:
    case IST_CROSS_FLUSH:
    case IST_CROSS_BUILD:
    case IST_CROSS_KINDS:
        break;
    }
}

void ist_ledger_record(ist_device *device, ist_frame_scope scope, const ist_ledger_entry *entry) {
    ist_ledger *l = &device->ledger;
    ist_ledger_entry copy = *entry;
    copy.frame = scope.frame;
    copy.at_ms -= l->opened_ms;
    pthread_mutex_lock(&l->lock);
    l->ring[l->recorded++ % IST_LEDGER_RING] = copy;
    count(&l->totals, copy.kind, copy.bytes);
    if (scope.counts) count(scope.counts, copy.kind, copy.bytes);
    pthread_mutex_unlock(&l->lock);
}

ist_ledger_entry ist_ledger_begin(ist_site site, ist_crossing kind, size_t bytes, const char *what) {
    return (ist_ledger_entry){.kind = kind, .bytes = bytes, .what = what, .at_ms = ist_clock_ms(), .site = site};
}

void ist_ledger_moved(ist_device *device, ist_frame_scope scope, ist_ledger_entry *entry) {
    entry->move_ms = ist_clock_ms() - entry->at_ms;
    ist_ledger_record(device, scope, entry);
}

static void waited(ist_device *device, ist_frame_scope scope, ist_ledger_entry *entry) {
    entry->wait_ms = ist_clock_ms() - entry->at_ms;
    ist_ledger_record(device, scope, entry);
}

cl_int ist_ledger_wait_first(ist_device *device, ist_ledger_entry *wait) {
    cl_int rc = clFinish(device->queue);
    wait->wait_ms = ist_clock_ms() - wait->at_ms;
    return rc;
}

void ist_ledger_totals(ist_device *device, ist_transfers *totals) {
    pthread_mutex_lock(&device->ledger.lock);
    *totals = device->ledger.totals;
    pthread_mutex_unlock(&device->ledger.lock);
}

int ist_ledger_recent(ist_device *device, ist_ledger_entry *entries, int capacity) {
    ist_ledger *l = &device->ledger;
    pthread_mutex_lock(&l->lock);
    uint64_t stored = l->recorded < IST_LEDGER_RING ? l->recorded : IST_LEDGER_RING;
    if (capacity < 0) capacity = 0;
    if (stored > (uint64_t)capacity) stored = (uint64_t)capacity;
    for (uint64_t i = 0; i < stored; i++) entries[i] = l->ring[(l->recorded - stored + i) % IST_LEDGER_RING];
    pthread_mutex_unlock(&l->lock);
    return (int)stored;
}

int ist_ledger_since(ist_device *device, uint64_t *cursor, uint64_t *missed, ist_ledger_entry *entries, int capacity) {
    ist_ledger *l = &device->ledger;
    int stored = 0;
    pthread_mutex_lock(&l->lock);
    uint64_t oldest = l->recorded < IST_LEDGER_RING ? 0 : l->recorded - IST_LEDGER_RING;
    if (*cursor < oldest) {
        *missed += oldest - *cursor;
        *cursor = oldest;
    }
    while (stored < capacity && *cursor < l->recorded) entries[stored++] = l->ring[(*cursor)++ % IST_LEDGER_RING];
    pthread_mutex_unlock(&l->lock);
    return stored;
}

/* ---- crossings ---- */

ist_status ist_write_at(ist_site site, ist_device *device, ist_frame_scope scope, cl_mem dst, size_t offset,
                        size_t bytes, const void *src, bool blocking, const char *what, ist_error *err) {
    ist_ledger_entry wait = ist_ledger_begin(site, IST_CROSS_WAIT, 0, what);
    cl_int rc = blocking ? ist_ledger_wait_first(device, &wait) : CL_SUCCESS;
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clFinish", "%s", what);
    ist_ledger_entry write = ist_ledger_begin(site, IST_CROSS_WRITE, bytes, what);
    rc = clEnqueueWriteBuffer(device->queue, dst, blocking ? CL_TRUE : CL_FALSE, offset, bytes, src, 0, NULL, NULL);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clEnqueueWriteBuffer", "%s, %zu bytes", what, bytes);
    if (blocking) ist_ledger_record(device, scope, &wait);
    ist_ledger_moved(device, scope, &write);
    return IST_OK;
}

ist_status ist_read_at(ist_site site, ist_device *device, ist_frame_scope scope, cl_mem src, size_t offset,
                       size_t bytes, void *dst, cl_event *done, const char *what, ist_error *err) {
    ist_ledger_entry wait = ist_ledger_begin(site, IST_CROSS_WAIT, 0, what);
    if (done) *done = NULL;
    cl_int rc = done ? CL_SUCCESS : ist_ledger_wait_first(device, &wait);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clFinish", "%s", what);
    ist_ledger_entry read = ist_ledger_begin(site, IST_CROSS_READ, bytes, what);
    rc = clEnqueueReadBuffer(device->queue, src, done ? CL_FALSE : CL_TRUE, offset, bytes, dst, 0, NULL, done);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clEnqueueReadBuffer", "%s, %zu bytes", what, bytes);
    if (!done) ist_ledger_record(device, scope, &wait);
    ist_ledger_moved(device, scope, &read);
    return IST_OK;
}

ist_status ist_wait_at(ist_site site, ist_device *device, ist_frame_scope scope, cl_event *event, const char *what,
                       ist_error *err) {
    ist_ledger_entry wait = ist_ledger_begin(site, IST_CROSS_WAIT, 0, what);
    cl_int rc = clWaitForEvents(1, event);
    if (rc == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) {
        cl_int of_command = 0;
        if (clGetEventInfo(*event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof of_command, &of_command, NULL) ==
                CL_SUCCESS &&
            of_command < 0)
            rc = of_command;
    }
    clReleaseEvent(*event);
    *event = NULL;
    waited(device, scope, &wait);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clWaitForEvents", "%s", what);
    return IST_OK;
}

ist_status ist_event_ended(cl_event event, bool *done, const char *what, ist_error *err) {
    cl_int status = CL_QUEUED,
           rc = clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
    *done = rc == CL_SUCCESS && status <= CL_COMPLETE;
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clGetEventInfo", "%s", what);
    return IST_OK;
}

ist_status ist_mark(ist_device *device, cl_event *reached, const char *what, ist_error *err) {
    *reached = NULL;
    cl_int rc = clEnqueueMarkerWithWaitList(device->queue, 0, NULL, reached);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clEnqueueMarkerWithWaitList", "%s", what);
    return IST_OK;
}

ist_status ist_finish_at(ist_site site, ist_device *device, ist_frame_scope scope, const char *what, ist_error *err) {
    IST_TRY(ist_device_ready(device, err));
    ist_ledger_entry wait = ist_ledger_begin(site, IST_CROSS_WAIT, 0, what);
    cl_int rc = clFinish(device->queue);
    cl_int side = device->side ? clFinish(device->side) : CL_SUCCESS;
    if (rc == CL_SUCCESS) rc = side;
    waited(device, scope, &wait);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clFinish", "%s", what);
    return IST_OK;
}

ist_status ist_flush_at(ist_site site, ist_device *device, ist_frame_scope scope, ist_error *err) {
    return ist_flush_lane(site, device, scope, IST_LANE_MAIN, err);
}

ist_status ist_flush_lane(ist_site site, ist_device *device, ist_frame_scope scope, ist_lane lane, ist_error *err) {
    ist_ledger_entry flush =
        ist_ledger_begin(site, IST_CROSS_FLUSH, 0, lane == IST_LANE_SIDE ? "second queue" : "queue");
    cl_int rc = clFlush(ist_lane_queue(device, lane));
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clFlush", "device %s", device->facts.name);
    ist_ledger_moved(device, scope, &flush);
    return IST_OK;
}

ist_status ist_copy_at(ist_site site, ist_device *device, ist_frame_scope scope, cl_mem src, size_t src_offset,
                       cl_mem dst, size_t dst_offset, size_t bytes, const char *what, ist_error *err) {
    ist_ledger_entry copy = ist_ledger_begin(site, IST_CROSS_COPY, bytes, what);
    cl_int rc = clEnqueueCopyBuffer(device->queue, src, dst, src_offset, dst_offset, bytes, 0, NULL, NULL);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clEnqueueCopyBuffer", "%s, %zu bytes", what, bytes);
    ist_ledger_moved(device, scope, &copy);
    return IST_OK;
}
