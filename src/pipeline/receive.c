/* Receive: the one wait of a batch, then its packet becomes results. Release gives the slot back. */
#include "pipeline/engine.h"

#include "base/clock.h"

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

void ist_engine_release(ist_engine *e, const ist_result *result) {
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->config.frames_in_flight; i++)
        if (&e->slots[i].result == result && e->slots[i].state == IST_SLOT_OUT) e->slots[i].state = IST_SLOT_FREE;
    pthread_mutex_unlock(&e->lock);
}
