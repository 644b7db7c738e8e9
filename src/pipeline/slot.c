/* A slot's memory, and the way from a packet to results. */
#include "pipeline/staging.h"
#include "pipeline/trust.h"

#include "base/mem.h"
#include "graph/nodes.h"

#include <stdlib.h>
#include <string.h>

ist_status ist_slot_create(ist_engine *e, ist_slot *s, ist_error *err) {
    size_t batch = (size_t)e->config.batch, objects = batch * (size_t)e->objects;
    s->geometry = calloc(batch, sizeof *s->geometry);
    s->frames = calloc(batch, sizeof *s->frames);
    s->objects = calloc(objects, sizeof *s->objects);
    if (e->selection) s->crops = calloc(1, sizeof *s->crops);
    if (!s->geometry || !s->frames || !s->objects || (e->selection && !s->crops))
        return ist_fail(err, IST_E_MEMORY, "engine: out of host memory for %zu objects", objects);
    return ist_slot_prepare(e, s, err);
}

static void release(ist_engine *e, cl_mem *buffer) {
    ist_plan *plans[IST_PLANS_MAX];
    int count = ist_engine_plans(e, plans);
    for (int i = 0; i < count; i++) ist_plan_unbind(plans[i], *buffer);
    ist_buffer_release(e->device, buffer);
}

void ist_slot_destroy(ist_engine *e, ist_slot *s) {
    if (s->read_done) clReleaseEvent(s->read_done);
    if (e->device) {
        release(e, &s->upload);
        release(e, &s->packet);
        release(e, &s->store);
        ist_pinned_release(e->device, &s->staging);
        ist_pinned_release(e->device, &s->landing);
    }
    free(s->geometry);
    free(s->frames);
    free(s->objects);
    free(s->overflow);
    free(s->crops);
    *s = (ist_slot){0};
}

/* Grows in steps of an eighth, so that a folder of slowly growing images does not allocate for each. */
static size_t with_headroom(size_t bytes) {
    return ist_align_up(bytes + bytes / 8, 4096);
}

static ist_status reserve_upload(ist_engine *e, ist_slot *s, size_t bytes, ist_error *err) {
    if (bytes <= s->upload_bytes) return IST_OK;
    bytes = with_headroom(bytes);
    s->upload_bytes = 0;
    s->geometry_count = 0; /* the tap tables go with the old staging */
    release(e, &s->upload);
    ist_pinned_release(e->device, &s->staging);
    IST_TRY(ist_buffer_create(e->device, bytes, "upload", &s->upload, err));
    IST_TRY(ist_pinned_create(e->device, bytes, "upload", &s->staging, err));
    memset(s->staging.data, 0, bytes);
    s->upload_bytes = bytes;
    return IST_OK;
}

static ist_status reserve_store(ist_engine *e, ist_slot *s, size_t words, ist_error *err) {
    if (!e->has_masks || words <= s->store_words) return IST_OK;
    size_t objects = (size_t)e->config.batch * (size_t)e->objects;
    words = with_headroom(words);
    if (words > UINT32_MAX / objects) /* places in the mask stream are 32-bit words */
        return ist_fail(err, IST_E_LIMIT, "mask store: %zu words for each of %zu objects, at most %u in all", words,
                        objects, UINT32_MAX);
    s->store_words = 0;
    release(e, &s->store);
    IST_TRY(ist_buffer_create(e->device, words * objects * sizeof(uint32_t), "mask store", &s->store, err));
    s->store_words = words;
    return IST_OK;
}

size_t ist_slot_packet_bytes(const ist_engine *e, const ist_slot *s) {
    size_t words = ist_packet_masks_at(e->config.batch, e->objects) + s->mask_words + s->logit_words;
    words += ist_trust_record_words(e->trust);
    if (ist_trust_reads_weights(e->trust)) words += s->weight_words;
    return words * sizeof(uint32_t);
}

static ist_status reserve_packet(ist_engine *e, ist_slot *s, size_t bytes, ist_error *err) {
    if (bytes <= s->packet_bytes) return IST_OK;
    bytes = with_headroom(bytes);
    s->packet_bytes = 0;
    release(e, &s->packet);
    ist_pinned_release(e->device, &s->landing);
    IST_TRY(ist_buffer_create(e->device, bytes, "packet", &s->packet, err));
    IST_TRY(ist_pinned_create(e->device, bytes, "packet", &s->landing, err));
    s->packet_bytes = bytes;
    return IST_OK;
}

ist_status ist_slot_reserve(ist_engine *e, ist_slot *s, size_t bytes, size_t store_words, ist_error *err) {
    IST_TRY(reserve_upload(e, s, bytes, err));
    size_t unread = ist_trust_reads_weights(e->trust) ? 0 : s->weight_words * sizeof(uint32_t);
    IST_TRY(reserve_packet(e, s, ist_slot_packet_bytes(e, s) + unread, err));
    return reserve_store(e, s, store_words, err);
}

/* What isthmus.h says of a packet's words is what the kernels write. */
#define SAME(public, own) _Static_assert((int)(public) == (int)(own), #public)
SAME(IST_PACKET_IMAGES, IST_PK_IMAGES);
SAME(IST_PACKET_OBJECTS, IST_PK_OBJECTS);
SAME(IST_PACKET_STREAM_WORDS, IST_PK_MASK_WORDS);
SAME(IST_PACKET_STORED_WORDS, IST_PK_STORED_WORDS);
SAME(IST_PACKET_IMAGE_OBJECTS, IST_PI_OBJECTS);
SAME(IST_PACKET_IMAGE_DROPPED, IST_PI_DROPPED);
SAME(IST_PACKET_IMAGE_FIRST, IST_PI_FIRST);
SAME(IST_PACKET_IMAGE_WINDOW, IST_PI_WINDOW);
SAME(IST_PACKET_LABEL, IST_OB_LABEL);
SAME(IST_PACKET_SCORE, IST_OB_SCORE);
SAME(IST_PACKET_BOX, IST_OB_BOX);
SAME(IST_PACKET_QUERY, IST_OB_QUERY);
SAME(IST_PACKET_MATCH, IST_OB_MATCH);
SAME(IST_PACKET_MATCH_IOU, IST_OB_MATCH_IOU);
SAME(IST_PACKET_MASK_SCORE, IST_OB_MASK_SCORE);
SAME(IST_PACKET_STABILITY, IST_OB_STABILITY);
SAME(IST_PACKET_AREA, IST_OB_AREA);
SAME(IST_PACKET_MASK_BOX, IST_OB_MASK_BOX);
SAME(IST_PACKET_MASK_X0, IST_OB_X0);
SAME(IST_PACKET_MASK_Y0, IST_OB_Y0);
SAME(IST_PACKET_MASK_COLUMNS, IST_OB_COLUMNS);
SAME(IST_PACKET_MASK_COLUMN_WORDS, IST_OB_COLUMN_WORDS);
SAME(IST_PACKET_MASK_AT, IST_OB_OFFSET);
SAME(IST_PACKET_IMAGE, IST_OB_IMAGE);

ist_device_packet ist_slot_on_device(const ist_engine *e, const ist_slot *s) {
    size_t masks = ist_packet_masks_at(e->config.batch, e->objects);
    return (ist_device_packet){.packet = s->packet,
                               .store = s->store,
                               .queue = ist_device_queue(e->device),
                               .image_count = s->count,
                               .images_at = IST_PK_HEADER,
                               .image_words = IST_PK_IMAGE_WORDS,
                               .objects_at = ist_packet_objects_at(e->config.batch),
                               .object_words = IST_OB_WORDS,
                               .masks_at = masks,
                               .mask_words = s->mask_words,
                               .logits_at = masks + s->mask_words,
                               .logit_words = s->logit_words};
}

/* ---- unpacking ---- */

static float float_at(const uint32_t *words, size_t i) {
    float f;
    memcpy(&f, words + i, sizeof f);
    return f;
}

/* Masks beyond the packet: one read, which the frame's counters show. */
static ist_status fetch_overflow(ist_engine *e, ist_slot *s, size_t words, ist_error *err) {
    if (words > s->store_words * (size_t)e->config.batch * (size_t)e->objects)
        return ist_fail(err, IST_E_DEVICE, "packet: %zu mask words beyond it, more than the mask store holds", words);
    if (!ist_grow((void **)&s->overflow, &s->overflow_capacity, words, sizeof *s->overflow))
        return ist_fail(err, IST_E_MEMORY, "packet: out of host memory for %zu mask words", words);
    ist_frame_scope scope = {s->sequence, &s->counts};
    return ist_read(e->device, scope, s->store, 0, words * sizeof(uint32_t), s->overflow, NULL,
                    "masks beyond the packet", err);
}

/* Of an object of everything, which point was asked for it in which crop. */
static ist_status place_point(const ist_engine *e, const ist_slot *s, ist_object *o, ist_error *err) {
    if (!e->selection) return IST_OK;
    if (o->match < 0 || o->match >= e->grids.points)
        return ist_fail(err, IST_E_DEVICE, "packet: a mask of point %d of %d", o->match, e->grids.points);
    const ist_crop *crop = &s->crops->crops[ist_grid_point(&e->grids, s->crops->crops, o->match, &o->point[0], &o->point[1])];
    o->point[0] += crop->x0, o->point[1] += crop->y0;
    memcpy(o->crop_box, (int[4]){crop->x0, crop->y0, crop->x1, crop->y1}, sizeof o->crop_box);
    return IST_OK;
}

/* Where a mask's words lie; false when the record points outside what arrived. */
static bool mask_bits(const ist_engine *e, const ist_slot *s, const uint32_t *packet, size_t offset, size_t words,
                      const uint32_t **bits) {
    size_t total = packet[IST_PK_MASK_WORDS], stored = packet[IST_PK_STORED_WORDS];
    if (offset > total || words > total - offset) return false;
    if (offset + words <= stored) {
        *bits = packet + ist_packet_masks_at(e->config.batch, e->objects) + offset;
        return true;
    }
    if (offset < stored) return false; /* begins here and ends there */
    *bits = s->overflow + (offset - stored);
    return true;
}

/* Low-resolution logits of object k; NULL where they were not asked for. */
static const float *low_res_of(const ist_engine *e, const ist_slot *s, const uint32_t *packet, size_t k) {
    size_t side = (size_t)e->config.segmenter_size / IST_LOGIT_PIXELS, words = side * side;
    size_t at = ist_packet_masks_at(e->config.batch, e->objects) + s->mask_words;
    if ((k + 1) * words > s->logit_words) return NULL;
    return (const float *)(packet + at + k * words);
}

static ist_status unpack_object(const ist_engine *e, const ist_slot *s, const uint32_t *packet, const uint32_t *r,
                                ist_object *o, ist_error *err) {
    *o = (ist_object){.label = (int)r[IST_OB_LABEL],
                      .score = float_at(r, IST_OB_SCORE),
                      .query = (int)r[IST_OB_QUERY],
                      .match = (int)r[IST_OB_MATCH],
                      .match_iou = float_at(r, IST_OB_MATCH_IOU),
                      .mask_score = float_at(r, IST_OB_MASK_SCORE),
                      .stability = float_at(r, IST_OB_STABILITY),
                      .area = (int)r[IST_OB_AREA]};
    for (int i = 0; i < 4; i++) {
        o->box[i] = float_at(r, (size_t)(IST_OB_BOX + i));
        o->mask_box[i] = (int)r[IST_OB_MASK_BOX + i];
    }
    IST_TRY(place_point(e, s, o, err));
    size_t columns = r[IST_OB_COLUMNS], words = r[IST_OB_COLUMN_WORDS];
    if (!columns || !words) return IST_OK;
    o->mask = (ist_mask){(int)r[IST_OB_X0], (int)r[IST_OB_Y0], (int)columns, (int)words, NULL};
    if (!mask_bits(e, s, packet, r[IST_OB_OFFSET], columns * words, &o->mask.bits))
        return ist_fail(err, IST_E_DEVICE, "packet: a mask of %zu x %zu words at %u lies outside the packet", columns,
                        words, r[IST_OB_OFFSET]);
    return IST_OK;
}

static ist_status unpack_frame(const ist_engine *e, ist_slot *s, int i, ist_error *err) {
    const uint32_t *packet = s->landing.data;
    const uint32_t *block = packet + IST_PK_HEADER + (size_t)i * IST_PK_IMAGE_WORDS;
    size_t count = block[IST_PI_OBJECTS], first = block[IST_PI_FIRST];
    size_t capacity = (size_t)e->config.batch * (size_t)e->objects;
    if (count > (size_t)e->objects || first > capacity || count > capacity - first)
        return ist_fail(err, IST_E_DEVICE, "packet: image %d has %zu objects from %zu of %zu", i, count, first,
                        capacity);
    ist_frame *f = &s->frames[i];
    f->object_count = (int)count;
    f->dropped = (int)block[IST_PI_DROPPED];
    if (s->automatic[i]) {
        f->window_low = (int)(block[IST_PI_WINDOW] & 0xffff);
        f->window_high = (int)(block[IST_PI_WINDOW] >> 16) + 1;
    }
    f->objects = s->objects + first;
    for (size_t k = first; k < first + count; k++) {
        IST_TRY(unpack_object(e, s, packet, packet + ist_packet_objects_at(e->config.batch) + k * IST_OB_WORDS,
                              &s->objects[k], err));
        s->objects[k].low_res = low_res_of(e, s, packet, k);
    }
    return IST_OK;
}

/* A batch that was not read: its frames without their objects. */
static ist_status leave_packed(ist_slot *s) {
    for (int i = 0; i < s->count; i++) {
        s->frames[i].object_count = s->frames[i].dropped = 0;
        s->frames[i].objects = NULL;
    }
    return IST_OK;
}

static ist_status unpack(ist_engine *e, ist_slot *s, ist_error *err) {
    const uint32_t *packet = s->landing.data;
    size_t total = packet[IST_PK_MASK_WORDS], stored = packet[IST_PK_STORED_WORDS];
    if (packet[IST_PK_IMAGES] != (uint32_t)s->count || stored > s->mask_words || stored > total)
        return ist_fail(err, IST_E_DEVICE, "packet: %u images and %zu of %zu mask words arrived for %d images",
                        packet[IST_PK_IMAGES], stored, total, s->count);
    if (total > stored) IST_TRY(fetch_overflow(e, s, total - stored, err));
    for (int i = 0; i < s->count; i++) IST_TRY(unpack_frame(e, s, i, err));
    return e->trust ? ist_trust_unpack(e, e->trust, s, err) : IST_OK;
}

ist_status ist_slot_unpack(ist_engine *e, ist_slot *s, ist_error *err) {
    s->result.frame_count = s->count;
    s->result.frames = s->frames;
    s->result.device = ist_slot_on_device(e, s);
    return e->config.readback == IST_READBACK_NONE ? leave_packed(s) : unpack(e, s, err);
}
