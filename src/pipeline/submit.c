/* Submit: lay out the upload, fill it, enqueue one write, the frame and one read. Nothing waits here but the making of
 * room for images larger than any before. */
#include "pipeline/engine.h"

#include "base/clock.h"
#include "base/mem.h"
#include "variants/upload.h"

#include <string.h>

/* Word offsets of one image's parts of the upload; 0 for parts it does not have. */
typedef struct image_layout {
    ist_slot_geometry geometry;
    size_t det_x, det_y, seg_x, seg_y, targets;
    size_t pixel_byte; /* in the upload, or in the caller's buffer */
    size_t row_bytes;
    int seg_w, seg_h;
} image_layout;

typedef struct upload_layout {
    image_layout images[IST_MAX_BATCH];
    size_t table_words; /* header, image blocks and tap tables: unchanged while the geometry is */
    size_t bytes;
    size_t store_words; /* per object, of the largest image */
    size_t mask_words;  /* room for masks in the packet */
} upload_layout;

static int channels_of(ist_pixel_format f) {
    return (int)f & 15;
}

static int sample_bytes_of(ist_pixel_format f) {
    return (int)f >> 4;
}

/* Of the tables for an image; what the slot had last is known, since counting taps takes some microseconds. */
static ist_slot_geometry geometry_of(const ist_engine *e, const ist_slot *s, int i, const ist_image *m,
                                     const image_layout *o) {
    ist_slot_geometry g = {.width = m->width, .height = m->height};
    if (s && i < s->geometry_count && s->geometry[i].width == m->width && s->geometry[i].height == m->height)
        return s->geometry[i];
    g.words[0] = ist_resize_taps_words(m->width, e->config.input_width);
    g.words[1] = ist_resize_taps_words(m->height, e->config.input_height);
    if (!e->has_masks) return g;
    g.words[2] = ist_resize_taps_words(m->width, o->seg_w);
    g.words[3] = ist_resize_taps_words(m->height, o->seg_h);
    return g;
}

/* Tables first: they stay where they are from frame to frame as long as the sizes do. Then targets, then pixels. `s` is
 * the slot that the batch goes to, or NULL. */
static void lay_out(const ist_engine *e, const ist_slot *s, const ist_image *images, int count, upload_layout *l) {
    size_t at = IST_UP_HEADER + (size_t)count * IST_IM_WORDS;
    l->store_words = l->mask_words = 0;
    for (int i = 0; i < count; i++) {
        const ist_image *m = &images[i];
        image_layout *o = &l->images[i];
        *o = (image_layout){.det_x = at};
        if (e->has_masks) ist_segmenter_size(e->config.segmenter_size, m->width, m->height, &o->seg_w, &o->seg_h);
        o->geometry = geometry_of(e, s, i, m, o);
        o->det_y = o->det_x + o->geometry.words[0];
        at = o->det_y + o->geometry.words[1];
        if (e->has_masks) {
            o->seg_x = at;
            o->seg_y = o->seg_x + o->geometry.words[2];
            at = o->seg_y + o->geometry.words[3];
            size_t words = (size_t)m->width * (size_t)ist_div_up(m->height, 32);
            if (words > l->store_words) l->store_words = words;
            words *= (size_t)e->config.max_objects;
            l->mask_words += words < IST_PACKET_MASK_WORDS ? words : IST_PACKET_MASK_WORDS;
        }
    }
    l->table_words = at;
    for (int i = 0; i < count; i++) {
        l->images[i].targets = at;
        at += (size_t)images[i].target_count * IST_TARGET_WORDS;
    }
    size_t byte = at * sizeof(uint32_t);
    for (int i = 0; i < count; i++) {
        const ist_image *m = &images[i];
        image_layout *o = &l->images[i];
        o->row_bytes = (size_t)m->width * (size_t)(channels_of(m->format) * sample_bytes_of(m->format));
        o->pixel_byte = m->cl_offset;
        if (m->cl_buffer) continue;
        o->pixel_byte = byte = ist_align_up(byte, 64);
        byte += o->row_bytes * (size_t)m->height;
    }
    l->bytes = ist_align_up(byte, 4);
}

/* Upload and packet of an RGB 1080p batch, at most eight images; the mask store needs no mapping. */
ist_status ist_slot_prepare(ist_engine *e, ist_slot *s, ist_error *err) {
    enum { WIDTH = 1920, HEIGHT = 1080, IMAGES = 8 };
    ist_image images[IMAGES];
    upload_layout layout;
    int count = e->config.batch < IMAGES ? e->config.batch : IMAGES;
    if (WIDTH * HEIGHT > e->config.max_pixels) return IST_OK;
    for (int i = 0; i < count; i++) images[i] = (ist_image){.width = WIDTH, .height = HEIGHT, .format = IST_RGB8};
    lay_out(e, NULL, images, count, &layout);
    s->mask_words = layout.mask_words;
    return ist_slot_reserve(e, s, layout.bytes, 0, err);
}

static bool same_geometry(const ist_slot *s, const ist_image *images, int count) {
    if (s->geometry_count != count) return false;
    for (int i = 0; i < count; i++)
        if (s->geometry[i].width != images[i].width || s->geometry[i].height != images[i].height) return false;
    return true;
}

static void fill_tables(const ist_engine *e, ist_slot *s, const ist_image *images, int count, const upload_layout *l) {
    uint32_t *up = s->staging.data;
    if (same_geometry(s, images, count)) return;
    for (int i = 0; i < count; i++) {
        const image_layout *o = &l->images[i];
        ist_resize_taps(images[i].width, e->config.input_width, up + o->det_x);
        ist_resize_taps(images[i].height, e->config.input_height, up + o->det_y);
        if (e->has_masks) {
            ist_resize_taps(images[i].width, o->seg_w, up + o->seg_x);
            ist_resize_taps(images[i].height, o->seg_h, up + o->seg_y);
        }
        s->geometry[i] = o->geometry;
    }
    s->geometry_count = count;
}

static void fill_targets(uint32_t *at, const ist_image *m) {
    for (int t = 0; t < m->target_count; t++, at += IST_TARGET_WORDS) {
        memcpy(at + IST_TARGET_BOX, m->targets[t].box, 4 * sizeof(float));
        memcpy(at + IST_TARGET_LABEL, &m->targets[t].label, sizeof(int));
    }
}

static void copy_pixels(const ist_engine *e, unsigned char *to, const ist_image *m, size_t row_bytes, bool hurry) {
    size_t stride = m->stride ? m->stride : row_bytes, bytes = row_bytes * (size_t)m->height;
    if (stride == row_bytes) {
        if (e->copier)
            ist_copier_copy(e->copier, to, m->pixels, bytes, hurry);
        else
            memcpy(to, m->pixels, bytes);
        return;
    }
    for (int y = 0; y < m->height; y++)
        memcpy(to + (size_t)y * row_bytes, (const unsigned char *)m->pixels + (size_t)y * stride, row_bytes);
}

static bool vertical_first(const ist_engine *e, const ist_image *m, int w, int h) {
    return ist_resize_vertical_first(e->config.resize_order, m->width, m->height, w, h);
}

static void fill_upload(const ist_engine *e, ist_slot *s, const ist_image *images, int count, const upload_layout *l,
                        bool reset, bool hurry) {
    uint32_t *up = s->staging.data;
    fill_tables(e, s, images, count, l);
    memset(up, 0, IST_UP_HEADER * sizeof *up);
    up[IST_UP_COUNT] = (uint32_t)count;
    up[IST_UP_FLAGS] = (reset ? IST_UP_RESET_TRACKS : 0u) | (e->track_half ? IST_UP_TRACK_HALF : 0u);
    up[IST_UP_PACKET_WORDS] = (uint32_t)s->mask_words;
    up[IST_UP_STORE_WORDS] = (uint32_t)s->store_words;
    for (int i = 0; i < count; i++) {
        const ist_image *m = &images[i];
        const image_layout *o = &l->images[i];
        size_t stride = m->cl_buffer && m->stride ? m->stride : o->row_bytes;
        ist_frame_image block = {.width = m->width,
                                 .height = m->height,
                                 .channels = channels_of(m->format),
                                 .sample_bytes = sample_bytes_of(m->format),
                                 .offset = o->pixel_byte,
                                 .stride = (uint32_t)stride,
                                 .det_x = (uint32_t)o->det_x,
                                 .det_y = (uint32_t)o->det_y,
                                 .seg_x = (uint32_t)o->seg_x,
                                 .seg_y = (uint32_t)o->seg_y,
                                 .targets = m->target_count,
                                 .target_at = (uint32_t)o->targets,
                                 .seg_side = e->config.segmenter_size,
                                 .det_vertical = vertical_first(e, m, e->config.input_width, e->config.input_height),
                                 .seg_vertical = e->has_masks && vertical_first(e, m, o->seg_w, o->seg_h)};
        ist_upload_image(up, i, &block);
        fill_targets(up + o->targets, m);
        if (!m->cl_buffer) copy_pixels(e, (unsigned char *)up + o->pixel_byte, m, o->row_bytes, hurry);
        s->frames[i] = (ist_frame){.tag = m->tag, .width = m->width, .height = m->height};
    }
}

static ist_status enqueue_frame(ist_engine *e, ist_slot *s, const ist_image *images, size_t bytes, ist_error *err) {
    ist_frame_scope scope = {s->sequence, &s->counts};
    s->device_start = ist_clock_ms();
    cl_mem pixels = images[0].cl_buffer ? (cl_mem)images[0].cl_buffer : s->upload;
    IST_TRY(ist_plan_bind(e->plan, IST_EXT_UPLOAD, s->upload, err));
    IST_TRY(ist_plan_bind(e->plan, IST_EXT_PIXELS, pixels, err));
    IST_TRY(ist_plan_bind(e->plan, IST_EXT_PACKET, s->packet, err));
    if (e->has_masks) IST_TRY(ist_plan_bind(e->plan, IST_EXT_STORE, s->store, err));
    IST_TRY(ist_write(e->device, scope, s->upload, 0, bytes, s->staging.data, false, "upload", err));
    IST_TRY(ist_plan_replay_for(e->plan, scope, err));
    IST_TRY(ist_read(e->device, scope, s->packet, 0, ist_slot_packet_bytes(e, s), s->landing.data, &s->read_done,
                     "packet", err));
    return ist_flush(e->device, scope, err);
}

/* *idle: the device has nothing to do until this batch arrives. */
static ist_slot *take_free_slot(ist_engine *e, bool *idle, ist_error *err) {
    ist_slot *slot = NULL;
    pthread_mutex_lock(&e->lock);
    *idle = !ist_engine_oldest(e);
    if (e->lost.code) {
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

ist_status ist_engine_submit(ist_engine *e, const ist_image *images, int count, ist_error *err) {
    double start = ist_clock_ms();
    ist_error own = {0};
    bool idle;
    ist_slot *s = take_free_slot(e, &idle, &own);
    if (!s) {
        if (err) *err = own;
        return own.code;
    }
    upload_layout layout;
    lay_out(e, s, images, count, &layout);
    s->counts = (ist_transfers){0};
    s->sequence = ++e->sequence;
    s->count = count;
    s->mask_words = layout.mask_words;
    s->submit_start = start;
    pthread_mutex_lock(&e->lock);
    bool reset = e->reset_tracks;
    pthread_mutex_unlock(&e->lock);
    ist_status st = IST_OK;
    if (layout.bytes / sizeof(uint32_t) > UINT32_MAX)
        st = ist_fail(err, IST_E_LIMIT, "submit: %zu bytes in one batch", layout.bytes);
    if (!st) st = ist_slot_reserve(e, s, layout.bytes, layout.store_words, err);
    if (!st) {
        fill_upload(e, s, images, count, &layout, reset, idle);
        st = enqueue_frame(e, s, images, layout.bytes, err);
        ist_plan_unbind(e->plan, images[0].cl_buffer); /* may be gone before the next frame */
        if (st) undo(e, s);
    }
    if (!st) e->track_half = !e->track_half;
    s->submit_ms = ist_clock_ms() - start;
    pthread_mutex_lock(&e->lock);
    s->state = st ? IST_SLOT_FREE : IST_SLOT_FLYING;
    if (!st && reset) e->reset_tracks = false;
    pthread_mutex_unlock(&e->lock);
    return st;
}
