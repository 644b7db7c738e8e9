/* A batch in staging memory: see staging.h. */
#include "pipeline/staging.h"

#include "base/mem.h"
#include "graph/nodes.h"
#include "variants/upload.h"

#include <string.h>

static int channels_of(ist_pixel_format f) {
    return (int)f & 15;
}

static int sample_bytes_of(ist_pixel_format f) {
    return (int)f >> 4;
}

/* Of the tables for an image; what the slot had last is known, since counting taps takes some microseconds. */
static ist_slot_geometry geometry_of(const ist_engine *e, const ist_slot *s, int i, const ist_image *m,
                                     const ist_image_layout *o) {
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
static size_t objects_of(const ist_engine *e, const ist_submission *b, const ist_image *m) {
    if (e->config.prompts != IST_PROMPTS_GIVEN || b->most) return (size_t)e->objects;
    return (size_t)m->prompt_count * (size_t)(e->objects / e->config.max_objects);
}

/* Room for the masks of an image. */
static void lay_out_masks(const ist_engine *e, const ist_submission *b, const ist_image *m, ist_upload_layout *l) {
    size_t words = (size_t)m->width * (size_t)ist_div_up(m->height, 32), objects = objects_of(e, b, m);
    size_t side = (size_t)e->config.segmenter_size / IST_LOGIT_PIXELS;
    if (words > l->store_words) l->store_words = words;
    words *= objects;
    l->mask_words += words < IST_PACKET_MASK_WORDS ? words : IST_PACKET_MASK_WORDS;
    if (e->config.low_res) l->logit_words += objects * side * side;
}

/* Tap tables of an image from word `at` on; where they end. */
static size_t lay_out_tables(const ist_engine *e, const ist_slot *s, int i, const ist_image *m, size_t at,
                             ist_upload_layout *l) {
    ist_image_layout *o = &l->images[i];
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

int ist_points_of(const ist_prompt *p) {
    return p->point_count + (p->box ? 2 : p->point_count > 0);
}

/* Prompts of all images from word `at` on; where they end. */
static size_t lay_out_prompts(const ist_submission *b, size_t at, ist_upload_layout *l) {
    l->prompts = at;
    l->prompt_count = 0;
    for (int i = 0; i < b->count; i++) l->prompt_count += b->images[i].prompt_count;
    at = l->prompt_data = at + (size_t)l->prompt_count * IST_PM_WORDS;
    for (int i = 0; i < b->count; i++)
        for (int k = 0; k < b->images[i].prompt_count; k++) {
            const ist_prompt *p = &b->images[i].prompts[k];
            at += (size_t)ist_points_of(p) * IST_POINT_WORDS;
            if (p->mask) at += (size_t)p->mask_width * (size_t)p->mask_height;
        }
    return at;
}

/* Pixels of all images from word `at` on, where no target or prompt moves them (ist_stage); the word behind them. */
static size_t lay_out_pixels(const ist_submission *b, size_t at, ist_upload_layout *l) {
    size_t byte = at * sizeof(uint32_t);
    for (int i = 0; i < b->count && !b->embedding; i++) {
        const ist_image *m = &b->images[i];
        ist_image_layout *o = &l->images[i];
        o->row_bytes = (size_t)m->width * (size_t)(channels_of(m->format) * sample_bytes_of(m->format));
        o->pixel_byte = m->cl_offset;
        if (m->cl_buffer) continue;
        o->pixel_byte = byte = ist_align_up(byte, 64);
        byte += o->row_bytes * (size_t)m->height;
    }
    return ist_align_up(byte, sizeof(uint32_t)) / sizeof(uint32_t);
}

void ist_staging_lay_out(const ist_engine *e, const ist_slot *s, const ist_submission *b, ist_upload_layout *l) {
    int blocks = b->crops ? e->grids.crops : e->detection ? l->tiles.tiles : b->count;
    size_t at = IST_UP_HEADER + (size_t)blocks * IST_IM_WORDS;
    l->store_words = l->mask_words = l->logit_words = 0;
    l->crops = b->crops;
    for (int i = 0; i < b->count; i++) {
        l->images[i] = (ist_image_layout){0};
        if (!b->embedding) at = lay_out_tables(e, s, i, &b->images[i], at, l);
        if (e->has_masks && b->decodes) lay_out_masks(e, b, &b->images[i], l);
    }
    if (l->crops)
        at = ist_crops_lay_out(&e->grids, e->config.segmenter_size, ist_device_alignment(e->device), at, l->crops);
    if (e->detection)
        at = ist_tiles_lay_out(&l->tiles, e->config.input_width, e->config.input_height,
                               e->has_masks ? e->config.segmenter_size : 0, ist_device_alignment(e->device), at);
    at = lay_out_pixels(b, at, l);
    for (int i = 0; i < b->count; i++) {
        l->images[i].targets = at;
        at += (size_t)b->images[i].target_count * IST_TARGET_WORDS;
    }
    l->bytes = lay_out_prompts(b, at, l) * sizeof(uint32_t);
}

/* Upload and packet of an RGB 1080p batch, at most eight images; the mask store needs no mapping. */
ist_status ist_slot_prepare(ist_engine *e, ist_slot *s, ist_error *err) {
    enum { WIDTH = 1920, HEIGHT = 1080, IMAGES = 8 };
    ist_image images[IMAGES];
    ist_upload_layout layout;
    bool decodes = s != &e->encoding;
    int count = !decodes ? 1 : e->config.batch < IMAGES ? e->config.batch : IMAGES;
    if (WIDTH * HEIGHT > e->config.max_pixels) return IST_OK;
    for (int i = 0; i < count; i++) images[i] = (ist_image){.width = WIDTH, .height = HEIGHT, .format = IST_RGB8};
    if (s->crops) IST_TRY(ist_crops_of(&e->everything, WIDTH, HEIGHT, s->crops->crops, err));
    if (e->detection && ist_tiles_of(&e->tiles, WIDTH, HEIGHT, &layout.tiles, NULL)) return IST_OK;
    const ist_submission b = {.images = images, .count = count, .decodes = decodes, .most = true, .crops = s->crops};
    ist_staging_lay_out(e, NULL, &b, &layout);
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

static void fill_tables(const ist_engine *e, ist_slot *s, const ist_image *images, int count,
                        const ist_upload_layout *l) {
    uint32_t *up = s->staging.data;
    if (same_geometry(s, images, count)) return;
    for (int i = 0; i < count; i++) {
        const ist_image_layout *o = &l->images[i];
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
    record[IST_PM_POINTS] = (uint32_t)ist_points_of(p);
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
    *at += (size_t)(ist_points_of(p) - p->point_count) * IST_POINT_WORDS;
    if (!p->mask) return;
    size_t values = (size_t)p->mask_width * (size_t)p->mask_height;
    record[IST_PM_MASK_AT] = (uint32_t)*at;
    memcpy(up + *at, p->mask, values * sizeof(float));
    *at += values;
}

static void fill_prompts(uint32_t *up, const ist_submission *b, const ist_upload_layout *l) {
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

void ist_staging_fill(const ist_engine *e, ist_slot *s, const ist_submission *b, const ist_upload_layout *l, bool reset,
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
        const ist_image_layout *o = &l->images[i];
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
        if (m->pixels && !o->in_place) copy_pixels(e, (unsigned char *)up + o->pixel_byte, m, o->row_bytes, hurry);
    }
    fill_prompts(up, b, l);
}

/* Targets and prompts that a batch may have at most, so that what is staged is never moved. */
size_t ist_staging_most_words(const ist_engine *e, int count) {
    const ist_config *c = &e->config;
    size_t side = (size_t)c->segmenter_size / IST_LOGIT_PIXELS, prompt = IST_PM_WORDS;
    prompt += (size_t)ist_prompt_points(c) * IST_POINT_WORDS + (c->mask_prompts ? side * side : 0);
    if (c->prompts != IST_PROMPTS_GIVEN) prompt = 0;
    return (size_t)count * ((size_t)c->max_targets * IST_TARGET_WORDS + (size_t)c->max_objects * prompt);
}

ist_status ist_staging_find(ist_engine *e, const ist_slot *s, const ist_submission *b, ist_upload_layout *l,
                            ist_error *err) {
    const uintptr_t begin = (uintptr_t)s->staging.data, end = begin + s->staging.bytes;
    bool any = false;
    for (int i = 0; i < b->count && !b->embedding; i++) {
        const ist_image *m = &b->images[i];
        ist_image_layout *o = &l->images[i];
        size_t stride = m->stride ? m->stride : o->row_bytes;
        const uintptr_t at = (uintptr_t)m->pixels;
        o->in_place = m->pixels && at == begin + o->pixel_byte && stride == o->row_bytes;
        any = any || o->in_place;
        if (o->in_place || !m->pixels || at >= end || at + stride * (size_t)(m->height - 1) + o->row_bytes <= begin)
            continue;
        return ist_fail(err, IST_E_ARGUMENT,
                        "image %d: its pixels lie in memory from ist_stage, but not where that put this image", i);
    }
    if (!any) e->staged = NULL;
    if (any && l->bytes > s->upload_bytes)
        return ist_fail(err, IST_E_ARGUMENT, "submit: a batch of %zu bytes, %zu is what ist_stage made room for",
                        l->bytes, s->upload_bytes);
    return IST_OK;
}
