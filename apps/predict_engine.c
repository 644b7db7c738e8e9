/* The engine's side of `isthmus predict`: batches in, results out, several batches in flight.
 *
 * Submits while there is room and decoded images wait, else receives the oldest batch. An image that the engine refuses
 * fails alone: the batch is tried again image by image. What a lost device had in flight goes to the other engines;
 * when none is left, the run fails. */
#include "frame_copy.h"
#include "predict_slots.h"

#include "base/mem.h"
#include "pipeline/profile.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_BATCH = 64, MAX_IN_FLIGHT = 8 };

typedef struct batch {
    size_t images[MAX_BATCH]; /* places in the work list */
    size_t count;
} batch;

typedef struct engine_side {
    predict_flow *flow;
    ist_engine *engine;
    bool lost;
    batch ring[MAX_IN_FLIGHT];
    size_t head, in_flight, capacity;
    int sequence; /* the tracks' */
} engine_side;

static bool is_fatal(ist_status status) {
    return status == IST_E_DEVICE || status == IST_E_BUILD || status == IST_E_NO_DEVICE || status == IST_E_STATE;
}

/* Images of a batch that leave the engine. */
static void set_states(predict_flow *f, const batch *b, predict_state state) {
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < b->count; i++) predict_slot_at(f, b->images[i])->state = state;
    f->flying -= b->count;
    pthread_cond_signal(&f->work);
    if (f->engines > 1) pthread_cond_broadcast(&f->decoded);
    pthread_mutex_unlock(&f->lock);
}

/* With the lock held. */
static void return_batch(predict_flow *f, const batch *b) {
    for (size_t i = 0; i < b->count; i++) f->returned[f->returned_count++] = b->images[i];
    f->flying -= b->count;
}

/* The engine can do no more: what it has in flight, and `b` beside that (NULL: nothing), goes to the others. */
static void lose_engine(engine_side *e, const batch *b, const ist_error *err) {
    predict_flow *f = e->flow;
    ist_engine_info info;
    pthread_mutex_lock(&f->lock);
    size_t before = f->returned_count;
    if (--f->working == 0) predict_fail_flow(f, err);
    for (; e->in_flight; e->in_flight--, e->head = (e->head + 1) % MAX_IN_FLIGHT) return_batch(f, &e->ring[e->head]);
    if (b) return_batch(f, b);
    if (f->working && !ist_engine_describe(e->engine, &info, NULL))
        cli_note("%s (device %d): %s; its %zu %s to the other devices", info.device.name, info.device.index, err->text,
                 f->returned_count - before, ist_plural(f->returned_count - before, "image goes", "images go"));
    predict_wake_all(f);
    pthread_mutex_unlock(&f->lock);
    e->lost = true;
}

static bool has_failed(predict_flow *f) {
    pthread_mutex_lock(&f->lock);
    bool failed = f->failed;
    pthread_mutex_unlock(&f->lock);
    return failed;
}

static void fail_images(predict_flow *f, const batch *b, const ist_error *err) {
    for (size_t i = 0; i < b->count; i++) {
        predict_slot *slot = predict_slot_at(f, b->images[i]);
        slot->status = err->code;
        slot->err = *err;
    }
    set_states(f, b, SLOT_READY);
}

/* With the lock held: nothing more will be decoded before the engine takes a batch, since what waits for it fills the
 * window or the memory by itself. */
static bool is_stuck(const predict_flow *f) {
    return f->next_commit == f->next_engine && predict_is_full(f);
}

/* With the lock held: looks for the next batch. True when one is complete, or when the list ends; *end is where it
 * ends. Images that did not decode lie in between and are no part of it; those at the front do not wait for a batch, so
 * that it can be empty. */
static bool find_batch(const predict_flow *f, batch *b, size_t *end) {
    const predict_slot *first = NULL;
    size_t k = f->next_engine;
    b->count = 0;
    for (; k < f->limit && b->count < f->batch; k++) {
        const predict_slot *slot = predict_slot_at(f, k);
        bool begun = k < f->next_decode;
        if (!begun || slot->state != SLOT_DECODED) {
            if (b->count ? begun || !is_stuck(f) : k == f->next_engine) return false;
            break;
        }
        if (slot->status) continue;
        if (!first) first = slot;
        if ((f->job->options->track || f->job->options->judges) && slot->source->sequence != first->source->sequence)
            break;
        b->images[b->count++] = k;
    }
    *end = k;
    return true;
}

/* With the lock held: a batch of images that a lost engine left. */
static void take_returned(predict_flow *f, batch *b) {
    b->count = f->returned_count < f->batch ? f->returned_count : f->batch;
    memcpy(b->images, f->returned, b->count * sizeof *b->images);
    f->returned_count -= b->count;
    memmove(f->returned, f->returned + b->count, f->returned_count * sizeof *f->returned);
    f->flying += b->count;
}

/* Takes the next batch; waits for it when `wait`. False when the work list is through and no engine can lose images any
 * more, or when the run has failed. */
static bool take_batch(predict_flow *f, batch *b, bool wait) {
    bool more = true;
    pthread_mutex_lock(&f->lock);
    for (b->count = 0;;) {
        size_t end = 0;
        predict_poll_interrupt(f);
        more = !f->failed && (f->next_engine < f->limit || f->returned_count || (f->engines > 1 && f->flying));
        if (!more) break;
        if (f->returned_count) {
            take_returned(f, b);
            break;
        }
        if (f->next_engine < f->limit && find_batch(f, b, &end)) {
            for (size_t k = f->next_engine; k < end; k++) {
                predict_slot *slot = predict_slot_at(f, k);
                slot->state = slot->status ? SLOT_READY : SLOT_IN_FLIGHT;
            }
            f->next_engine = end;
            f->flying += b->count;
            pthread_cond_signal(&f->work); /* room, and what did not decode */
            if (f->engines > 1) pthread_cond_broadcast(&f->decoded);
            if (b->count) break;
            continue;
        }
        b->count = 0;
        if (!wait) break;
        struct timespec until; /* wakes now and then to notice an interrupt */
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000;
        if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
        pthread_cond_timedwait(&f->decoded, &f->lock, &until);
    }
    pthread_mutex_unlock(&f->lock);
    return more;
}

static void drop_pixels(predict_flow *f, const batch *b) {
    if (f->job->options->save & PREDICT_SAVE_OVERLAY) return;
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < b->count; i++) predict_drop_pixels(f, predict_slot_at(f, b->images[i]), false);
    pthread_mutex_unlock(&f->lock);
}

static ist_status submit_images(engine_side *e, const batch *b, ist_image *images, ist_error *err) {
    predict_flow *f = e->flow;
    predict_job *job = f->job;
    for (size_t i = 0; i < b->count; i++) {
        const ist_image given = images[i];
        const predict_slot *slot = predict_slot_at(f, b->images[i]);
        const ist_target_list *targets = ist_targets_find(&job->targets, slot->source->path, slot->source->name);
        images[i] = (ist_image){.width = slot->image.width,
                                .height = slot->image.height,
                                .format = slot->image.format,
                                .stride = slot->image.stride,
                                .pixels = slot->image.pixels,
                                .targets = targets ? targets->items : NULL,
                                .target_count = targets ? (int)targets->count : 0,
                                .tag = b->images[i],
                                .prompts = given.prompts,
                                .prompt_count = given.prompt_count};
        IST_TRY(predict_set_window(job->options, &slot->image, slot->source->path, &images[i], err));
    }
    int sequence = predict_slot_at(f, b->images[0])->source->sequence;
    bool linked = job->options->track || job->options->judges;
    if (linked && sequence != e->sequence) IST_TRY(ist_reset_tracks(e->engine, err));
    IST_TRY(ist_submit(e->engine, images, (int)b->count, err));
    e->sequence = sequence;
    e->ring[(e->head + e->in_flight++) % MAX_IN_FLIGHT] = *b;
    if (f->engines == 1) drop_pixels(f, b); /* the engine has its own copy */
    return IST_OK;
}

/* With the prompts of each image, of which the engine has its own copy afterwards. */
static ist_status submit(engine_side *e, const batch *b, ist_error *err) {
    ist_image images[MAX_BATCH] = {0};
    predict_prompts prompts[MAX_BATCH] = {0};
    const predict_job *job = e->flow->job;
    ist_status status = IST_OK;
    for (size_t i = 0; i < b->count && job->options->segment && !status; i++) {
        status = predict_prompts_of(job, predict_slot_at(e->flow, b->images[i])->source, &prompts[i], err);
        images[i].prompts = prompts[i].list;
        images[i].prompt_count = prompts[i].count;
    }
    if (!status) status = submit_images(e, b, images, err);
    for (size_t i = 0; i < b->count; i++) predict_prompts_free(&prompts[i]);
    return status;
}

/* Into one block that the slot owns. */
static ist_status copy_frame(predict_slot *slot, const ist_frame *frame, ist_error *err) {
    slot->storage = malloc(frame_copy_bytes(frame) + 1);
    if (!slot->storage)
        return ist_fail(err, IST_E_MEMORY, "%s: out of memory for %d objects", slot->source->path, frame->object_count);
    frame_copy(frame, slot->storage, &slot->frame);
    return IST_OK;
}

static ist_status take_results(predict_flow *f, const batch *b, const ist_result *result, ist_error *err) {
    if ((size_t)result->frame_count != b->count)
        return ist_fail(err, IST_E_STATE, "%d results came for %zu images", result->frame_count, b->count);
    for (size_t i = 0; i < b->count; i++) {
        predict_slot *slot = predict_slot_at(f, b->images[i]);
        if (result->frames[i].tag != b->images[i])
            return ist_fail(err, IST_E_STATE, "%s: the result is another image's", slot->source->path);
        slot->ms.submit = result->submit_ms;
        slot->ms.wait = result->wait_ms;
        slot->ms.total = result->total_ms;
        slot->transfers = result->transfers;
        slot->status = copy_frame(slot, &result->frames[i], &slot->err);
        if (!slot->status && !predict_detects(f->job->options))
            predict_settle_prompts(f->job, slot->source, slot->storage, slot->frame.object_count);
    }
    return IST_OK;
}

static void receive(engine_side *e) {
    predict_flow *f = e->flow;
    const batch *b = &e->ring[e->head];
    const ist_result *result = NULL;
    ist_error err;
    ist_status status = ist_receive(e->engine, &result, &err);
    bool fatal = status && is_fatal(status);
    if (!status) {
        status = take_results(f, b, result, &err);
        fatal = status != IST_OK;
        ist_release(e->engine, &result);
    }
    if (f->job->received) f->job->received(f->job->received_arg, e->engine);
    if (fatal) {
        lose_engine(e, NULL, &err);
        return;
    }
    e->head = (e->head + 1) % MAX_IN_FLIGHT;
    e->in_flight--;
    if (f->engines > 1) drop_pixels(f, b); /* kept for another engine until now */
    if (status)
        fail_images(f, b, &err);
    else
        set_states(f, b, SLOT_READY);
}

/* What to do with a batch that was refused: its images one by one, so that one bad image harms no other. */
static void submit_singly(engine_side *e, const batch *b, const ist_error *err) {
    predict_flow *f = e->flow;
    if (is_fatal(err->code)) {
        lose_engine(e, b, err);
        return;
    }
    if (b->count == 1) {
        fail_images(f, b, err);
        return;
    }
    while (e->in_flight) receive(e);
    batch rest = *b;
    while (rest.count && !has_failed(f) && !e->lost) {
        batch one = {.images = {rest.images[0]}, .count = 1};
        ist_error single;
        ist_status status = submit(e, &one, &single);
        if (status && is_fatal(status)) {
            lose_engine(e, &rest, &single);
            return;
        }
        memmove(rest.images, rest.images + 1, --rest.count * sizeof *rest.images);
        if (status)
            fail_images(f, &one, &single);
        else
            receive(e);
    }
    if (e->lost && rest.count) { /* by the receive: it returned what was in flight */
        pthread_mutex_lock(&f->lock);
        return_batch(f, &rest);
        predict_wake_all(f);
        pthread_mutex_unlock(&f->lock);
    }
}

static void run_engine(predict_flow *f, ist_engine *engine) {
    engine_side e = {.flow = f, .engine = engine, .capacity = (size_t)ist_config_default().frames_in_flight};
    if (e.capacity > MAX_IN_FLIGHT) e.capacity = MAX_IN_FLIGHT;
    bool more = true;
    double busy = ist_engine_busy_ms(engine);
    while (more || e.in_flight) {
        batch b = {.count = 0};
        ist_error err;
        if (more && e.in_flight < e.capacity) more = take_batch(f, &b, e.in_flight == 0);
        if (!b.count && e.in_flight)
            receive(&e);
        else if (b.count && submit(&e, &b, &err))
            submit_singly(&e, &b, &err);
        if (e.lost || has_failed(f)) break;
    }
    pthread_mutex_lock(&f->lock);
    f->totals->load.device_ms += ist_engine_busy_ms(engine) - busy;
    pthread_mutex_unlock(&f->lock);
}

typedef struct helper {
    predict_flow *flow;
    ist_engine *engine;
    pthread_t thread;
    bool started;
} helper;

static void *run_helper(void *context) {
    helper *h = context;
    run_engine(h->flow, h->engine);
    return NULL;
}

void predict_engines_run(predict_flow *f) {
    helper helpers[PREDICT_MAX_DEVICES - 1];
    int count = f->job->other_count;
    for (int i = 0; i < count; i++) {
        helpers[i] = (helper){.flow = f, .engine = f->job->others[i]};
        helpers[i].started = !pthread_create(&helpers[i].thread, NULL, run_helper, &helpers[i]);
        if (helpers[i].started) continue;
        pthread_mutex_lock(&f->lock);
        f->working--;
        pthread_mutex_unlock(&f->lock);
    }
    run_engine(f, f->job->engine);
    for (int i = 0; i < count; i++)
        if (helpers[i].started) pthread_join(helpers[i].thread, NULL);
}
