/* Submit: lay out the upload, fill it, enqueue one write, the frame and one read. Nothing waits here but the making of
 * room for images larger than any before, and ist_engine_encode, whose upload has one place only. */
#include "pipeline/trust.h"

#include "base/clock.h"
#include "base/mem.h"
#include "graph/nodes.h"
#include "variants/upload.h"

#include <stdlib.h>
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
    size_t prompts, prompt_data; /* records of all images' prompts, their points and masks */
    int prompt_count;
    size_t bytes;
    size_t store_words; /* per object, of the largest image */
    size_t mask_words;  /* room for masks in the packet */
    size_t logit_words; /* and for low-resolution logits */
    ist_crops_layout *crops; /* of everything, filled in as far as crops go; else NULL */
    ist_tile_layout tiles;   /* of tiles, filled in as far as ist_tiles_of does before the rest is laid out */
} upload_layout;

/* What is submitted: images or, in place of the pixels of the only one, its embedding. */
typedef struct submission {
    const ist_image *images;
    int count;
    const ist_embedding *embedding;
    bool decodes; /* and does not only encode */
    bool most;    /* room is made for as many prompts as an image may have */
    ist_crops_layout *crops; /* of everything: the image's */
} submission;

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

/* Objects that an image may have in this batch: of given prompts they are known. */
static size_t objects_of(const ist_engine *e, const submission *b, const ist_image *m) {
    if (e->config.prompts != IST_PROMPTS_GIVEN || b->most) return (size_t)e->objects;
    return (size_t)m->prompt_count * (size_t)(e->objects / e->config.max_objects);
}

/* Room for the masks of an image. */
static void lay_out_masks(const ist_engine *e, const submission *b, const ist_image *m, upload_layout *l) {
    size_t words = (size_t)m->width * (size_t)ist_div_up(m->height, 32), objects = objects_of(e, b, m);
    size_t side = (size_t)e->config.segmenter_size / IST_LOGIT_PIXELS;
    if (words > l->store_words) l->store_words = words;
    words *= objects;
    l->mask_words += words < IST_PACKET_MASK_WORDS ? words : IST_PACKET_MASK_WORDS;
    if (e->config.low_res) l->logit_words += objects * side * side;
}

/* Tap tables of an image from word `at` on; where they end. */
static size_t lay_out_tables(const ist_engine *e, const ist_slot *s, int i, const ist_image *m, size_t at,
                             upload_layout *l) {
    image_layout *o = &l->images[i];
    o->det_x = at;
    if (e->has_masks) ist_segmenter_size(e->config.segmenter_size, m->width, m->height, &o->seg_w, &o->seg_h);
    o->geometry = geometry_of(e, s, i, m, o);
    o->det_y = o->det_x + o->geometry.words[0];
    at = o->det_y + o->geometry.words[1];
    if (!e->has_masks) return at;
    o->seg_x = at;
    o->seg_y = o->seg_x + o->geometry.words[2];
    return o->seg_y + o->geometry.words[3];
}

static int points_of(const ist_prompt *p) {
    return p->point_count + (p->box ? 2 : p->point_count > 0);
}

/* Prompts of all images from word `at` on; where they end. */
static size_t lay_out_prompts(const submission *b, size_t at, upload_layout *l) {
    l->prompts = at;
    l->prompt_count = 0;
    for (int i = 0; i < b->count; i++) l->prompt_count += b->images[i].prompt_count;
    at = l->prompt_data = at + (size_t)l->prompt_count * IST_PM_WORDS;
    for (int i = 0; i < b->count; i++)
        for (int k = 0; k < b->images[i].prompt_count; k++) {
            const ist_prompt *p = &b->images[i].prompts[k];
            at += (size_t)points_of(p) * IST_POINT_WORDS;
            if (p->mask) at += (size_t)p->mask_width * (size_t)p->mask_height;
        }
    return at;
}

/* Tables first: they stay where they are from frame to frame as long as the sizes do. Then targets and prompts, then
 * pixels. `s` is the slot that the batch goes to, or NULL. */
static void lay_out(const ist_engine *e, const ist_slot *s, const submission *b, upload_layout *l) {
    int blocks = b->crops ? e->grids.crops : e->detection ? l->tiles.tiles : b->count;
    size_t at = IST_UP_HEADER + (size_t)blocks * IST_IM_WORDS;
    l->store_words = l->mask_words = l->logit_words = 0;
    l->crops = b->crops;
    for (int i = 0; i < b->count; i++) {
        l->images[i] = (image_layout){0};
        if (!b->embedding) at = lay_out_tables(e, s, i, &b->images[i], at, l);
        if (e->has_masks && b->decodes) lay_out_masks(e, b, &b->images[i], l);
    }
    if (l->crops)
        at = ist_crops_lay_out(&e->grids, e->config.segmenter_size, ist_device_alignment(e->device), at, l->crops);
    if (e->detection)
        at = ist_tiles_lay_out(&l->tiles, e->config.input_width, e->config.input_height,
                               e->has_masks ? e->config.segmenter_size : 0, ist_device_alignment(e->device), at);
    for (int i = 0; i < b->count; i++) {
        l->images[i].targets = at;
        at += (size_t)b->images[i].target_count * IST_TARGET_WORDS;
    }
    at = lay_out_prompts(b, at, l);
    size_t byte = at * sizeof(uint32_t);
    for (int i = 0; i < b->count && !b->embedding; i++) {
        const ist_image *m = &b->images[i];
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
    bool decodes = s != &e->encoding;
    int count = !decodes ? 1 : e->config.batch < IMAGES ? e->config.batch : IMAGES;
    if (WIDTH * HEIGHT > e->config.max_pixels) return IST_OK;
    for (int i = 0; i < count; i++) images[i] = (ist_image){.width = WIDTH, .height = HEIGHT, .format = IST_RGB8};
    if (s->crops) IST_TRY(ist_crops_of(&e->everything, WIDTH, HEIGHT, s->crops->crops, err));
    if (e->detection && ist_tiles_of(&e->tiles, WIDTH, HEIGHT, &layout.tiles, NULL)) return IST_OK;
    const submission b = {.images = images, .count = count, .decodes = decodes, .most = true, .crops = s->crops};
    lay_out(e, NULL, &b, &layout);
    s->mask_words = layout.mask_words;
    s->weight_words = 0;
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

static void fill_box(uint32_t *record, uint32_t *point, const float *box) {
    memcpy(record + IST_PM_BOX, box, 4 * sizeof(float));
    for (uint32_t c = 0; c < 2; c++, point += IST_POINT_WORDS) {
        memcpy(point + IST_POINT_X, box + 2 * c, 2 * sizeof(float));
        point[IST_POINT_LABEL] = 2 + c;
    }
}

/* A prompt with its points and mask, which go to word *at and on. As SamPredictor has it: points without a box are
 * followed by one that is padding. */
static void fill_prompt(uint32_t *up, uint32_t *record, const ist_prompt *p, size_t *at) {
    memset(record, 0, IST_PM_WORDS * sizeof *record);
    record[IST_PM_POINTS] = (uint32_t)points_of(p);
    record[IST_PM_POINT_AT] = (uint32_t)*at;
    for (int k = 0; k < p->point_count; k++, *at += IST_POINT_WORDS) {
        memcpy(up + *at + IST_POINT_X, &p->points[k].x, sizeof(float));
        memcpy(up + *at + IST_POINT_Y, &p->points[k].y, sizeof(float));
        up[*at + IST_POINT_LABEL] = (uint32_t)p->points[k].label;
    }
    static const uint32_t padding[IST_POINT_WORDS] = {[IST_POINT_LABEL] = UINT32_MAX /* -1 */};
    if (p->box)
        fill_box(record, up + *at, p->box);
    else if (p->point_count)
        memcpy(up + *at, padding, sizeof padding);
    *at += (size_t)(points_of(p) - p->point_count) * IST_POINT_WORDS;
    if (!p->mask) return;
    size_t values = (size_t)p->mask_width * (size_t)p->mask_height;
    record[IST_PM_MASK_AT] = (uint32_t)*at;
    memcpy(up + *at, p->mask, values * sizeof(float));
    *at += values;
}

static void fill_prompts(uint32_t *up, const submission *b, const upload_layout *l) {
    size_t at = l->prompt_data;
    uint32_t *record = up + l->prompts, first = 0;
    up[IST_UP_PROMPTS] = (uint32_t)l->prompt_count;
    up[IST_UP_PROMPT_AT] = (uint32_t)l->prompts;
    for (int i = 0; i < b->count; i++) {
        uint32_t *im = up + IST_UP_HEADER + (size_t)i * IST_IM_WORDS;
        im[IST_IM_PROMPTS] = (uint32_t)b->images[i].prompt_count;
        im[IST_IM_PROMPT] = first;
        first += im[IST_IM_PROMPTS];
        for (int k = 0; k < b->images[i].prompt_count; k++, record += IST_PM_WORDS) {
            fill_prompt(up, record, &b->images[i].prompts[k], &at);
            record[IST_PM_IMAGE] = (uint32_t)i;
        }
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

/* Of a 16-bit image, for its block and its frame; whether the device finds it. */
static bool fill_window(const ist_engine *e, const ist_image *m, ist_frame_image *block, ist_frame *frame) {
    if (block->sample_bytes != 2) return false;
    bool given = m->window_low || m->window_high;
    block->automatic = !given && e->config.window == IST_WINDOW_AUTO;
    block->low = m->window_low, block->high = m->window_high;
    if (block->automatic) return true;
    frame->window_low = m->window_low, frame->window_high = given ? m->window_high : UINT16_MAX;
    return false;
}

static void fill_upload(const ist_engine *e, ist_slot *s, const submission *b, const upload_layout *l, bool reset,
                        bool hurry) {
    uint32_t *up = s->staging.data;
    const ist_image *images = b->images;
    int count = b->count;
    bool tables = !same_geometry(s, images, count);
    if (b->embedding)
        s->geometry_count = 0; /* what lies where tables were is something else now */
    else
        fill_tables(e, s, images, count, l);
    memset(up, 0, IST_UP_HEADER * sizeof *up);
    up[IST_UP_COUNT] = (uint32_t)count;
    up[IST_UP_FLAGS] = (reset ? IST_UP_RESET_TRACKS : 0u) | (e->track_half ? IST_UP_TRACK_HALF : 0u);
    up[IST_UP_PACKET_WORDS] = (uint32_t)s->mask_words;
    up[IST_UP_STORE_WORDS] = (uint32_t)s->store_words;
    if (e->cleaning) up[IST_UP_CLEANERS] = (uint32_t)ist_everything_cleaners(&images[0]);
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
        s->frames[i] = (ist_frame){.tag = m->tag, .timestamp = m->timestamp, .width = m->width, .height = m->height};
        s->automatic[i] = fill_window(e, m, &block, &s->frames[i]);
        ist_upload_image(up, i, &block);
        if (l->crops) ist_crops_fill(up, &e->grids, l->crops, &block, e->config.resize_order, tables);
        if (e->detection)
            ist_tiles_fill(up, &l->tiles, &block, e->config.input_width, e->config.input_height, e->config.resize_order,
                           e->tiles.whole, tables);
        fill_targets(up + o->targets, m);
        if (m->pixels) copy_pixels(e, (unsigned char *)up + o->pixel_byte, m, o->row_bytes, hurry);
    }
    fill_prompts(up, b, l);
}

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
static unsigned left_out(const submission *b) {
    unsigned out = 1u << IST_SECTION_FEW | 1u << IST_SECTION_MANY;
    for (int i = 0; i < b->count; i++)
        for (int k = 0; k < b->images[i].prompt_count; k++)
            out &= ~(1u << (points_of(&b->images[i].prompts[k]) > IST_FEW_PLACES ? IST_SECTION_MANY : IST_SECTION_FEW));
    return out;
}

static ist_status enqueue_plans(ist_engine *e, ist_slot *s, const submission *b, ist_frame_scope scope, ist_error *err) {
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

static ist_status enqueue_frame(ist_engine *e, ist_slot *s, const submission *b, size_t bytes, bool reset,
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

/* *idle: the device has nothing to do until this batch arrives. */
static ist_slot *take_free_slot(ist_engine *e, bool *idle, ist_error *err) {
    ist_slot *slot = NULL;
    pthread_mutex_lock(&e->lock);
    *idle = !ist_engine_oldest(e);
    bool full = !e->lost.code;
    for (int i = 0; i < e->config.frames_in_flight; i++) full = full && e->slots[i].state != IST_SLOT_FREE;
    pthread_mutex_unlock(&e->lock);
    if (full && (slot = reclaim_slot(e))) return slot;
    pthread_mutex_lock(&e->lock);
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

static void forget_pixels(ist_engine *e, cl_mem pixels) {
    if (e->detection) ist_plan_unbind(e->detection, pixels);
    ist_plan_unbind(e->encoder ? e->encoder : e->plan, pixels);
}

static ist_status submit(ist_engine *e, submission *b, ist_error *err) {
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
    upload_layout layout;
    if (e->selection) *(b->crops = s->crops) = crops;
    layout.tiles = tiles;
    lay_out(e, s, b, &layout);
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
        fill_upload(e, s, b, &layout, reset, idle);
        st = enqueue_frame(e, s, b, layout.bytes, reset, err);
        if (b->images[0].cl_buffer) /* may be gone before the next frame */
            forget_pixels(e, b->images[0].cl_buffer);
        if (st) undo(e, s);
    }
    if (!st) e->track_half = !e->track_half;
    if (!st && e->trust) ist_trust_advance(e->trust);
    s->submit_ms = ist_clock_ms() - start;
    pthread_mutex_lock(&e->lock);
    s->state = st ? IST_SLOT_FREE : IST_SLOT_FLYING;
    if (!st && reset) e->reset_tracks = false;
    pthread_mutex_unlock(&e->lock);
    return st;
}

ist_status ist_engine_submit(ist_engine *e, const ist_image *images, int count, ist_error *err) {
    return submit(e, &(submission){.images = images, .count = count, .decodes = true}, err);
}

ist_status ist_engine_submit_prompts(ist_engine *e, const ist_embedding *embedding, const ist_prompt *prompts,
                                     int count, uint64_t tag, ist_error *err) {
    const ist_image image = {.width = embedding->width,
                             .height = embedding->height,
                             .format = IST_RGB8,
                             .prompts = prompts,
                             .prompt_count = count,
                             .tag = tag};
    return submit(e, &(submission){.images = &image, .count = 1, .embedding = embedding, .decodes = true}, err);
}

/* ---- embeddings ---- */

static ist_status encode(ist_engine *e, ist_embedding *k, const ist_image *image, ist_error *err) {
    ist_slot *s = &e->encoding;
    ist_frame_scope scope = {++e->sequence, &k->counts};
    upload_layout layout;
    ist_image bare = *image; /* what is to be found in it comes later */
    bare.prompt_count = bare.target_count = 0;
    const submission b = {.images = &bare, .count = 1};
    lay_out(e, s, &b, &layout);
    s->mask_words = s->logit_words = 0;
    if (layout.bytes / sizeof(uint32_t) > UINT32_MAX)
        return ist_fail(err, IST_E_LIMIT, "encode: %zu bytes in one image", layout.bytes);
    IST_TRY(ist_slot_reserve(e, s, layout.bytes, 0, err));
    fill_upload(e, s, &b, &layout, false, true);
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
