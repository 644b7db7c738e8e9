/* Receive: the one wait of a batch, then its packet becomes results. Release gives the slot back. */
#include "pipeline/engine.h"

#include "base/clock.h"

#include <time.h>

ist_slot *ist_engine_oldest(ist_engine *e) {
    ist_slot *oldest = NULL;
    for (int i = 0; i < e->config.frames_in_flight; i++) {
        ist_slot *s = &e->slots[i];
        if (s->state == IST_SLOT_FLYING && (!oldest || s->sequence < oldest->sequence)) oldest = s;
    }
    return oldest;
}

ist_status ist_engine_idle(ist_engine *e, ist_error *err) {
    pthread_mutex_lock(&e->lock);
    ist_error lost = e->lost;
    bool idle = !ist_engine_oldest(e);
    pthread_mutex_unlock(&e->lock);
    if (lost.code && err) *err = lost;
    if (lost.code || idle) return lost.code;
    return ist_fail(err, IST_E_STATE, "batches are in flight, receive them first");
}

/* The device was lost: the oldest batch in flight, if any, ends without a result. */
static ist_status abandon(ist_engine *e, ist_slot *s, const ist_error *lost, ist_error *err) {
    if (s) {
        clReleaseEvent(s->read_done);
        s->read_done = NULL;
        pthread_mutex_lock(&e->lock);
        s->state = IST_SLOT_FREE;
        pthread_mutex_unlock(&e->lock);
    }
    if (err) *err = *lost;
    return lost->code;
}

ist_status ist_engine_receive(ist_engine *e, const ist_result **result, ist_error *err) {
    *result = NULL;
    pthread_mutex_lock(&e->lock);
    ist_slot *s = ist_engine_oldest(e);
    ist_error gone = e->lost;
    pthread_mutex_unlock(&e->lock);
    if (gone.code) return abandon(e, s, &gone, err);
    if (!s) return ist_fail(err, IST_E_STATE, "receive: nothing is in flight");

    double start = ist_clock_ms();
    ist_error own = {0};
    ist_status st = ist_wait(e->device, (ist_frame_scope){s->sequence, &s->counts}, &s->read_done, "packet", &own);
    bool lost = st != IST_OK; /* a queue that failed once does not recover */
    double end = ist_clock_ms();
    s->result.wait_ms = end - start;
    e->busy_ms += end - (s->device_start > e->busy_until ? s->device_start : e->busy_until);
    e->busy_until = end;
    if (!st) st = ist_slot_unpack(e, s, &own);
    s->result.transfers = s->counts;
    s->result.submit_ms = s->submit_ms;
    s->result.total_ms = ist_clock_ms() - s->submit_start;

    pthread_mutex_lock(&e->lock);
    s->state = st ? IST_SLOT_FREE : IST_SLOT_OUT;
    if (lost) e->lost = own;
    pthread_mutex_unlock(&e->lock);
    if (st && err) *err = own;
    if (!st) *result = &s->result;
    return st;
}

/* Sleeps until `s` has ended or the time is over; how long one sleep is, is a sixteenth of the time since the start. */
static ist_status wait_for(ist_slot *s, double timeout_ms, bool *ended, ist_error *err) {
    double start = ist_clock_ms();
    for (;;) {
        IST_TRY(ist_event_ended(s->read_done, ended, "packet", err));
        double waited = ist_clock_ms() - start, nap = waited / 16;
        if (*ended || waited >= timeout_ms) return IST_OK;
        if (nap < 0.02) nap = 0.02;
        if (nap > 1) nap = 1;
        if (nap > timeout_ms - waited) nap = timeout_ms - waited;
        nanosleep(&(struct timespec){.tv_nsec = (long)(nap * 1e6)}, NULL);
    }
}

ist_status ist_engine_receive_for(ist_engine *e, double timeout_ms, const ist_result **result, ist_error *err) {
    pthread_mutex_lock(&e->lock);
    ist_slot *s = ist_engine_oldest(e);
    bool lost = e->lost.code != IST_OK, ended = true;
    pthread_mutex_unlock(&e->lock);
    if (s && !lost) IST_TRY(wait_for(s, timeout_ms, &ended, err));
    return ended ? ist_engine_receive(e, result, err) : IST_OK;
}

ist_status ist_engine_cancel(ist_engine *e, int *cancelled, ist_error *err) {
    pthread_mutex_lock(&e->lock);
    ist_error lost = e->lost;
    int count = 0;
    for (int i = 0; i < e->config.frames_in_flight && !lost.code; i++)
        if (e->slots[i].state == IST_SLOT_FLYING) e->slots[i].state = IST_SLOT_CANCELLED, count++;
    pthread_mutex_unlock(&e->lock);
    if (cancelled) *cancelled = count;
    if (lost.code && err) *err = lost;
    return lost.code;
}

ist_status ist_engine_submitted(ist_engine *e, ist_device_packet *device, ist_error *err) {
    const ist_slot *last = NULL;
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->config.frames_in_flight; i++) {
        const ist_slot *s = &e->slots[i];
        if (s->state == IST_SLOT_FLYING && (!last || s->sequence > last->sequence)) last = s;
    }
    if (last) *device = ist_slot_on_device(e, last), device->done = last->read_done;
    pthread_mutex_unlock(&e->lock);
    return last ? IST_OK : ist_fail(err, IST_E_STATE, "ist_submitted: nothing is in flight");
}

void ist_engine_release(ist_engine *e, const ist_result *result) {
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->config.frames_in_flight; i++)
        if (&e->slots[i].result == result && e->slots[i].state == IST_SLOT_OUT) e->slots[i].state = IST_SLOT_FREE;
    pthread_mutex_unlock(&e->lock);
}
