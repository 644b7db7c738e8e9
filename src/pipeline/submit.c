/* Submit: lay out the upload and fill it (staging.h), enqueue one write, the frame and one read. Nothing waits here but
 * the making of room for images larger than any before, and ist_engine_encode, whose upload has one place only. */
#include "pipeline/staging.h"
#include "pipeline/trust.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* The images' embeddings, from an upload that is there. */
static ist_status enqueue_encoder(ist_engine *e, const ist_slot *s, const ist_image *images, cl_mem embedding,
                                  ist_frame_scope scope, ist_error *err) {
    cl_mem pixels = images[0].cl_buffer ? (cl_mem)images[0].cl_buffer : s->upload;
    IST_TRY(ist_plan_bind(e->encoder, IST_EXT_UPLOAD, s->upload, err));
    IST_TRY(ist_plan_bind(e->encoder, IST_EXT_PIXELS, pixels, err));
    IST_TRY(ist_plan_bind(e->encoder, IST_EXT_EMBEDDING, embedding, err));
    return ist_plan_replay_for(e->encoder, scope, err);
}

/* Sections of the decoder that no prompt of the batch needs. */
static unsigned left_out(const ist_submission *b) {
    unsigned out = 1u << IST_SECTION_FEW | 1u << IST_SECTION_MANY;
    for (int i = 0; i < b->count; i++)
        for (int k = 0; k < b->images[i].prompt_count; k++) {
            bool many = ist_points_of(&b->images[i].prompts[k]) > IST_FEW_PLACES;
            out &= ~(1u << (many ? IST_SECTION_MANY : IST_SECTION_FEW));
        }
    return out;
}

static ist_status enqueue_plans(ist_engine *e, ist_slot *s, const ist_submission *b, ist_frame_scope scope,
                                ist_error *err) {
    cl_mem pixels = b->images[0].cl_buffer ? (cl_mem)b->images[0].cl_buffer : s->upload;
    cl_mem embedding = b->embedding ? b->embedding->buffer : e->embedding;
    if (b->crops) return ist_everything_enqueue(e, s, pixels, scope, err);
    if (e->detection) return ist_tiles_enqueue(e, s, pixels, scope, err);
    IST_TRY(ist_plan_bind(e->plan, IST_EXT_UPLOAD, s->upload, err));
    if (e->encoder)
        IST_TRY(ist_plan_bind(e->plan, IST_EXT_EMBEDDING, embedding, err));
    else
        IST_TRY(ist_plan_bind(e->plan, IST_EXT_PIXELS, pixels, err));
    IST_TRY(ist_plan_bind(e->plan, IST_EXT_PACKET, s->packet, err));
    if (e->has_masks) IST_TRY(ist_plan_bind(e->plan, IST_EXT_STORE, s->store, err));
    if (e->encoder && !b->embedding) IST_TRY(enqueue_encoder(e, s, b->images, embedding, scope, err));
    ist_plan_leave_out(e->plan, left_out(b));
    return ist_plan_replay_for(e->plan, scope, err);
}

static ist_status enqueue_frame(ist_engine *e, ist_slot *s, const ist_submission *b, size_t bytes, bool reset,
                                ist_error *err) {
    ist_frame_scope scope = {s->sequence, &s->counts};
    s->device_start = ist_clock_ms();
    IST_TRY(ist_write(e->device, scope, s->upload, 0, bytes, s->staging.data, false, "upload", err));
    IST_TRY(enqueue_plans(e, s, b, scope, err));
    if (e->trust) IST_TRY(ist_trust_enqueue(e, e->trust, s, &b->images[0], reset, err));
    if (e->config.readback == IST_READBACK_NONE)
        IST_TRY(ist_mark(e->device, &s->read_done, "packet", err));
    else
        IST_TRY(ist_read(e->device, scope, s->packet, 0, ist_slot_packet_bytes(e, s), s->landing.data, &s->read_done,
                         "packet", err));
    return ist_flush(e->device, scope, err);
}

/* The oldest slot of a cancelled batch, which has been waited for; NULL when there is none. The wait is that batch's.
 */
static ist_slot *reclaim_slot(ist_engine *e) {
    ist_slot *slot = NULL;
    ist_error lost = {0};
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->config.frames_in_flight; i++) {
        ist_slot *s = &e->slots[i];
        if (s->state == IST_SLOT_CANCELLED && (!slot || s->sequence < slot->sequence)) slot = s;
    }
    if (slot) slot->state = IST_SLOT_FILLING;
    pthread_mutex_unlock(&e->lock);
    if (!slot || !ist_wait(e->device, (ist_frame_scope){slot->sequence, &slot->counts}, &slot->read_done,
                           "cancelled batch", &lost))
        return slot;
    pthread_mutex_lock(&e->lock);
    slot->state = IST_SLOT_FREE;
    e->lost = lost;
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* The staged one if there is one. *idle: the device has nothing to do until this batch arrives. */
static ist_slot *take_free_slot(ist_engine *e, bool *idle, ist_error *err) {
    ist_slot *slot = e->staged;
    pthread_mutex_lock(&e->lock);
    *idle = !ist_engine_oldest(e);
    bool full = !e->lost.code && !slot;
    for (int i = 0; i < e->config.frames_in_flight; i++) full = full && e->slots[i].state != IST_SLOT_FREE;
    pthread_mutex_unlock(&e->lock);
    if (full && (slot = reclaim_slot(e))) return slot;
    pthread_mutex_lock(&e->lock);
    if (e->lost.code) {
        slot = NULL;
        if (err) *err = e->lost;
    } else {
        for (int i = 0; i < e->config.frames_in_flight && !slot; i++)
            if (e->slots[i].state == IST_SLOT_FREE) slot = &e->slots[i];
        if (slot)
            slot->state = IST_SLOT_FILLING;
        else
            ist_fail(err, IST_E_STATE, "submit: %d batches are in flight, receive and release one first",
                     e->config.frames_in_flight);
    }
    pthread_mutex_unlock(&e->lock);
    return slot;
}

/* Something was enqueued and something else was not: the engine is as before once the queue is empty, or lost. */
static void undo(ist_engine *e, ist_slot *s) {
    ist_error lost = {0};
    if (s->read_done) clReleaseEvent(s->read_done);
    s->read_done = NULL;
    if (ist_finish(e->device, (ist_frame_scope){0}, "after a failed submit", &lost)) {
        pthread_mutex_lock(&e->lock);
        e->lost = lost;
        pthread_mutex_unlock(&e->lock);
    }
}

static void forget_pixels(ist_engine *e, cl_mem pixels) {
    if (e->detection) ist_plan_unbind(e->detection, pixels);
    ist_plan_unbind(e->encoder ? e->encoder : e->plan, pixels);
}

static void set_free(ist_engine *e, ist_slot *s) {
    pthread_mutex_lock(&e->lock);
    s->state = IST_SLOT_FREE;
    pthread_mutex_unlock(&e->lock);
}

static ist_status submit(ist_engine *e, ist_submission *b, ist_error *err) {
    double start = ist_clock_ms();
    ist_crops_layout crops = {.grid = 0};
    ist_tile_layout tiles = {.tiles = 0};
    if (e->detection) IST_TRY(ist_tiles_of(&e->tiles, b->images[0].width, b->images[0].height, &tiles, err));
    if (e->selection)
        IST_TRY(ist_crops_of(&e->everything, b->images[0].width, b->images[0].height, crops.crops, err));
    ist_error own = {0};
    bool idle;
    ist_slot *s = take_free_slot(e, &idle, &own);
    if (!s) {
        if (err) *err = own;
        return own.code;
    }
    ist_upload_layout layout;
    if (e->selection) *(b->crops = s->crops) = crops;
    layout.tiles = tiles;
    ist_staging_lay_out(e, s, b, &layout);
    if (s == e->staged && ist_staging_find(e, s, b, &layout, &own)) {
        set_free(e, s);
        if (err) *err = own;
        return own.code;
    }
    s->tiles = layout.tiles;
    s->counts = (ist_transfers){0};
    s->sequence = ++e->sequence;
    s->count = b->count;
    s->mask_words = layout.mask_words;
    s->logit_words = layout.logit_words;
    s->weight_words = ist_trust_weight_words(e->trust, b->images[0].width, b->images[0].height);
    s->submit_start = start;
    pthread_mutex_lock(&e->lock);
    bool reset = e->reset_tracks;
    pthread_mutex_unlock(&e->lock);
    ist_status st = IST_OK;
    if (layout.bytes / sizeof(uint32_t) > UINT32_MAX)
        st = ist_fail(err, IST_E_LIMIT, "submit: %zu bytes in one batch", layout.bytes);
    if (!st) st = ist_slot_reserve(e, s, layout.bytes, layout.store_words, err);
    if (!st) st = ist_everything_reserve(e, &b->images[0], err);
    if (!st) st = ist_tiles_reserve(e, tiles.tiles, err);
    if (!st && e->trust) st = ist_trust_reserve(e, e->trust, b->images[0].width, b->images[0].height, err);
    if (!st) {
        ist_staging_fill(e, s, b, &layout, reset, idle);
        st = enqueue_frame(e, s, b, layout.bytes, reset, err);
        if (b->images[0].cl_buffer) /* may be gone before the next frame */
            forget_pixels(e, b->images[0].cl_buffer);
        if (st) undo(e, s);
    }
    if (!st) e->track_half = !e->track_half;
    if (!st && e->trust) ist_trust_advance(e->trust);
    if (!st) e->staged = NULL;
    s->submit_ms = ist_clock_ms() - start;
    pthread_mutex_lock(&e->lock);
    s->state = st ? IST_SLOT_FREE : IST_SLOT_FLYING;
    if (!st && reset) e->reset_tracks = false;
    pthread_mutex_unlock(&e->lock);
    return st;
}

ist_status ist_engine_submit(ist_engine *e, const ist_image *images, int count, ist_error *err) {
    return submit(e, &(ist_submission){.images = images, .count = count, .decodes = true}, err);
}

/* The slot stays free, and the next batch's: no other thread takes one. */
ist_status ist_engine_stage(ist_engine *e, const ist_image *images, int count, void **pixels, ist_error *err) {
    ist_image bare[IST_MAX_BATCH];
    ist_crops_layout crops = {.grid = 0};
    ist_submission b = {.images = bare, .count = count, .decodes = true};
    ist_upload_layout layout;
    ist_error own = {0};
    bool idle;
    for (int i = 0; i < count; i++)
        bare[i] = (ist_image){.width = images[i].width, .height = images[i].height, .format = images[i].format};
    if (e->detection) IST_TRY(ist_tiles_of(&e->tiles, bare[0].width, bare[0].height, &layout.tiles, err));
    if (e->selection)
        IST_TRY(ist_crops_of(&e->everything, bare[0].width, bare[0].height, (b.crops = &crops)->crops, err));
    ist_slot *s = take_free_slot(e, &idle, &own);
    if (!s) {
        if (err) *err = own;
        return own.code;
    }
    e->staged = NULL;
    ist_staging_lay_out(e, s, &b, &layout);
    size_t bytes = layout.bytes + ist_staging_most_words(e, count) * sizeof(uint32_t);
    ist_status st = IST_OK;
    if (bytes / sizeof(uint32_t) > UINT32_MAX) st = ist_fail(err, IST_E_LIMIT, "stage: %zu bytes in one batch", bytes);
    if (!st) st = ist_slot_reserve(e, s, bytes, 0, err);
    for (int i = 0; i < count && !st; i++)
        pixels[i] = (unsigned char *)s->staging.data + layout.images[i].pixel_byte;
    if (!st) e->staged = s;
    set_free(e, s);
    return st;
}

ist_status ist_engine_submit_prompts(ist_engine *e, const ist_embedding *embedding, const ist_prompt *prompts,
                                     int count, uint64_t tag, ist_error *err) {
    const ist_image image = {.width = embedding->width,
                             .height = embedding->height,
                             .format = IST_RGB8,
                             .prompts = prompts,
                             .prompt_count = count,
                             .tag = tag};
    return submit(e, &(ist_submission){.images = &image, .count = 1, .embedding = embedding, .decodes = true}, err);
}

/* ---- embeddings ---- */

static ist_status encode(ist_engine *e, ist_embedding *k, const ist_image *image, ist_error *err) {
    ist_slot *s = &e->encoding;
    ist_frame_scope scope = {++e->sequence, &k->counts};
    ist_upload_layout layout;
    ist_image bare = *image; /* what is to be found in it comes later */
    bare.prompt_count = bare.target_count = 0;
    const ist_submission b = {.images = &bare, .count = 1};
    ist_staging_lay_out(e, s, &b, &layout);
    s->mask_words = s->logit_words = 0;
    if (layout.bytes / sizeof(uint32_t) > UINT32_MAX)
        return ist_fail(err, IST_E_LIMIT, "encode: %zu bytes in one image", layout.bytes);
    IST_TRY(ist_slot_reserve(e, s, layout.bytes, 0, err));
    ist_staging_fill(e, s, &b, &layout, false, true);
    IST_TRY(ist_write(e->device, scope, s->upload, 0, layout.bytes, s->staging.data, true, "upload", err));
    ist_status status = enqueue_encoder(e, s, image, k->buffer, scope, err);
    ist_plan_unbind(e->encoder, image->cl_buffer);
    return status ? status : ist_flush(e->device, scope, err);
}

ist_status ist_engine_encode(ist_engine *e, const ist_image *image, ist_embedding **embedding, ist_error *err) {
    pthread_mutex_lock(&e->lock);
    ist_error lost = e->lost;
    pthread_mutex_unlock(&e->lock);
    if (lost.code && err) *err = lost;
    if (lost.code) return lost.code;
    if (e->embedding_count >= e->config.max_embeddings)
        return ist_fail(
            err, IST_E_LIMIT,
            "encode: %d embeddings of %zu bytes are alive, as many as config.max_embeddings allows; release "
            "one first",
            e->embedding_count, e->embedding_bytes);
    ist_embedding *k = calloc(1, sizeof *k);
    if (!k) return ist_fail(err, IST_E_MEMORY, "encode: out of host memory");
    *k = (ist_embedding){.next = e->embeddings, .width = image->width, .height = image->height};
    e->embeddings = k;
    e->embedding_count++;
    ist_status status = ist_buffer_create(e->device, e->embedding_bytes, "embedding", &k->buffer, err);
    if (!status && (status = encode(e, k, image, err))) undo(e, &e->encoding);
    if (status)
        ist_engine_forget(e, k);
    else
        *embedding = k;
    return status;
}

void ist_engine_forget(ist_engine *e, ist_embedding *embedding) {
    ist_embedding **at = &e->embeddings;
    while (*at && *at != embedding) at = &(*at)->next;
    if (!*at) return;
    *at = embedding->next;
    e->embedding_count--;
    ist_plan_unbind(e->plan, embedding->buffer);
    ist_plan_unbind(e->encoder, embedding->buffer);
    ist_buffer_release(e->device, &embedding->buffer);
    free(embedding);
}
