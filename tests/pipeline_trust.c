/* Scores and states of tracks against scalar code, on made-up frames whose objects are written into packets by hand (a
 * structure that fades, leaves and comes back, with the states it must have; shapes at borders; many tracks), and on
 * what an engine finds. */
#include "ref_trust.h"
#include "support/engines.h"

#include "base/mem.h"
#include "base/sample_window.h"
#include "pipeline/trust.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OBJECTS = 40, LOW = 5000, HIGH = 40000 /* window of 16-bit frames */ };

static ist_error err;

/* ---- a stage by itself: an engine of nothing else, and a slot whose packet is written here ---- */

typedef struct stage {
    ist_engine engine;
    ist_slot slot;
    ist_trust_options options;
    uint32_t *packet;
    ref_trust ref;
    int width, height;
    size_t stored; /* mask words that go into the packet; the others go into the store */
} stage;

static stage stage_open(int width, int height, bool tracks, size_t stored) {
    stage s = {.options = ist_trust_default(), .width = width, .height = height, .stored = stored};
    s.options.weights = 1;
    s.engine.config = ist_config_default();
    s.engine.config.match = tracks ? IST_MATCH_TRACKS : IST_MATCH_NONE;
    s.engine.config.track_age = 6;
    s.engine.objects = OBJECTS;
    s.engine.has_masks = true;
    cr_assert_eq(ist_device_open(&(ist_device_options){.spec = NULL}, &s.engine.device, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_trust_open(&s.engine, &s.options, &s.engine.trust, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_trust_reserve(&s.engine, s.engine.trust, width, height, &err), IST_OK, "%s", err.text);
    s.slot.mask_words = stored ? stored : 1;
    s.slot.weight_words = ist_trust_weight_words(s.engine.trust, width, height);
    size_t bytes = ist_slot_packet_bytes(&s.engine, &s.slot);
    size_t store = (size_t)OBJECTS * (size_t)width * (size_t)ist_div_up(height, 32) * sizeof(uint32_t);
    cr_assert_eq(ist_buffer_create(s.engine.device, bytes, "packet", &s.slot.packet, &err), IST_OK);
    cr_assert_eq(ist_buffer_create(s.engine.device, store, "store", &s.slot.store, &err), IST_OK);
    cr_assert_eq(
        ist_buffer_create(s.engine.device, 4096 + 3u * (size_t)(width * height), "upload", &s.slot.upload, &err),
        IST_OK);
    s.packet = calloc(1, bytes);
    s.slot.landing.data = s.packet;
    s.slot.frames = calloc(1, sizeof *s.slot.frames);
    return s;
}

static void stage_close(stage *s) {
    ist_trust_close(&s->engine, &s->engine.trust);
    ist_buffer_release(s->engine.device, &s->slot.packet);
    ist_buffer_release(s->engine.device, &s->slot.store);
    ist_buffer_release(s->engine.device, &s->slot.upload);
    ist_device_close(&s->engine.device);
    free(s->packet);
    free(s->slot.frames);
    ref_trust_free(&s->ref);
}

/* An object from a picture of its mask; the words are the caller's to free. */
static ist_object make_object(const stage *s, const unsigned char *mask, float score, int track, const float box[4]) {
    int x0 = s->width, y0 = s->height, x1 = -1, y1 = -1, area = 0;
    for (int y = 0; y < s->height; y++)
        for (int x = 0; x < s->width; x++)
            if (mask[y * s->width + x]) {
                x0 = x < x0 ? x : x0, x1 = x > x1 ? x : x1, y0 = y < y0 ? y : y0, y1 = y > y1 ? y : y1;
                area++;
            }
    ist_object o = {.score = score, .match = track, .area = area};
    if (box)
        memcpy(o.box, box, sizeof o.box);
    else if (area)
        o.box[0] = (float)x0, o.box[1] = (float)y0, o.box[2] = (float)x1 + 1, o.box[3] = (float)y1 + 1;
    if (!area) return o;
    o.mask_box[0] = x0, o.mask_box[1] = y0, o.mask_box[2] = x1, o.mask_box[3] = y1;
    int top = y0 / 32, words = y1 / 32 - top + 1, columns = x1 - x0 + 1;
    uint32_t *bits = calloc((size_t)(columns * words), sizeof *bits);
    for (int x = x0; x <= x1; x++)
        for (int y = y0; y <= y1; y++)
            if (mask[y * s->width + x]) bits[(x - x0) * words + y / 32 - top] |= 1u << (y % 32);
    o.mask = (ist_mask){.x0 = x0, .y0 = 32 * top, .columns = columns, .words = words, .bits = bits};
    return o;
}

static void put_float(uint32_t *at, float v) {
    memcpy(at, &v, sizeof v);
}

static void put_object(uint32_t *r, const ist_object *o, size_t at) {
    put_float(r + IST_OB_SCORE, o->score);
    for (int i = 0; i < 4; i++)
        put_float(r + IST_OB_BOX + i, o->box[i]), r[IST_OB_MASK_BOX + i] = (uint32_t)o->mask_box[i];
    r[IST_OB_MATCH] = (uint32_t)o->match;
    r[IST_OB_AREA] = (uint32_t)o->area;
    r[IST_OB_X0] = (uint32_t)o->mask.x0, r[IST_OB_Y0] = (uint32_t)o->mask.y0;
    r[IST_OB_COLUMNS] = (uint32_t)o->mask.columns, r[IST_OB_COLUMN_WORDS] = (uint32_t)o->mask.words;
    r[IST_OB_OFFSET] = (uint32_t)at;
}

/* Writes packet and store as the frame's kernels would; a mask lies in one of them. */
static void put_packet(stage *s, const ist_object *objects, int count) {
    size_t at = 0, kept = 0;
    size_t words = (size_t)OBJECTS * (size_t)s->width * (size_t)ist_div_up(s->height, 32);
    uint32_t *masks = s->packet + ist_packet_masks_at(1, OBJECTS), *store = calloc(words, sizeof *store);
    memset(s->packet, 0, ist_slot_packet_bytes(&s->engine, &s->slot));
    s->packet[IST_PK_HEADER + IST_PI_OBJECTS] = (uint32_t)count;
    for (int k = 0; k < count; k++) {
        size_t n = (size_t)(objects[k].mask.columns * objects[k].mask.words);
        put_object(s->packet + ist_packet_objects_at(1) + (size_t)k * IST_OB_WORDS, &objects[k], at);
        bool fits = kept == at && at + n <= s->stored;
        if (n) memcpy(fits ? masks + at : store + (at - kept), objects[k].mask.bits, n * sizeof *masks);
        at += n;
        if (fits) kept = at;
    }
    s->packet[IST_PK_MASK_WORDS] = (uint32_t)at;
    s->packet[IST_PK_STORED_WORDS] = (uint32_t)kept;
    ist_device *d = s->engine.device;
    cr_assert_eq(ist_write(d, (ist_frame_scope){0}, s->slot.packet, 0, ist_slot_packet_bytes(&s->engine, &s->slot),
                           s->packet, true, "packet", &err),
                 IST_OK);
    cr_assert_eq(
        ist_write(d, (ist_frame_scope){0}, s->slot.store, 0, words * sizeof *store, store, true, "store", &err),
        IST_OK);
    free(store);
}

static void put_pixels(stage *s, const ist_image *m) {
    int channels = (int)m->format & 15, bytes = (int)m->format >> 4;
    size_t row = (size_t)(m->width * channels * bytes);
    uint32_t head[256] = {[IST_UP_COUNT] = 1};
    uint32_t *im = head + IST_UP_HEADER;
    im[IST_IM_WIDTH] = (uint32_t)m->width, im[IST_IM_HEIGHT] = (uint32_t)m->height;
    im[IST_IM_CHANNELS] = (uint32_t)channels, im[IST_IM_SAMPLE] = (uint32_t)bytes;
    im[IST_IM_OFFSET_LOW] = sizeof head, im[IST_IM_STRIDE] = (uint32_t)row;
    im[IST_IM_LOW] = LOW, im[IST_IM_HIGH] = HIGH;
    ist_device *d = s->engine.device;
    cr_assert_eq(ist_write(d, (ist_frame_scope){0}, s->slot.upload, 0, sizeof head, head, true, "upload", &err),
                 IST_OK);
    cr_assert_eq(ist_write(d, (ist_frame_scope){0}, s->slot.upload, sizeof head, row * (size_t)m->height, m->pixels,
                           true, "pixels", &err),
                 IST_OK);
}

static void same_scores(const ist_trust *got, const ist_trust *want, const char *where) {
    const float a[9] = {got->sharpness,  got->contrast, got->continuity, got->stability, got->geometry,
                        got->appearance, got->depth,    got->s,          got->c};
    const float b[9] = {want->sharpness,  want->contrast, want->continuity, want->stability, want->geometry,
                        want->appearance, want->depth,    want->s,          want->c};
    cr_assert_eq(got->track, want->track, "%s", where);
    cr_assert_eq(got->object, want->object, "%s, track %d", where, got->track);
    for (int i = 0; i < 9; i++)
        cr_assert_lt(fabsf(a[i] - b[i]), 2e-5f, "%s, track %d, score %d: %.7g, want %.7g", where, got->track, i,
                     (double)a[i], (double)b[i]);
    cr_assert_eq(got->state, want->state, "%s, track %d: state %d, want %d", where, got->track, got->state,
                 want->state);
}

static void same_weights(const stage *s, const ist_trust *t, const ist_object *o) {
    size_t n = (size_t)(s->width * s->height);
    unsigned char *all = malloc(4 * n), *mask = all + 3 * n;
    for (int y = 0; y < s->height; y++)
        for (int x = 0; x < s->width; x++) mask[y * s->width + x] = ref_trust_bit(&o->mask, x, y);
    ref_trust_weights(mask, s->width, s->height, all, all + n, all + 2 * n);
    const ist_mask *got[3] = {&t->edge, &t->in, &t->out};
    for (int i = 0; i < 3; i++)
        for (int y = 0; y < 32 * ist_div_up(s->height, 32); y++)
            for (int x = 0; x < s->width; x++)
                cr_assert_eq(ref_trust_bit(got[i], x, y),
                             y < s->height && all[(size_t)i * n + (size_t)(y * s->width + x)], "weight %d at %d, %d", i,
                             x, y);
    free(all);
}

/* One frame through the device and through the reference; its tracks are in s->slot.frames[0]. Frees the masks. */
static void judge(stage *s, const ist_image *m, const unsigned char *gray, ist_object *objects, int count,
                  const char *where) {
    ist_trust want[REF_TRUST_TRACKS];
    put_pixels(s, m);
    put_packet(s, objects, count);
    cr_assert_eq(ist_trust_enqueue(&s->engine, s->engine.trust, &s->slot, m, false, &err), IST_OK, "%s", err.text);
    ist_trust_advance(s->engine.trust);
    cr_assert_eq(ist_read(s->engine.device, (ist_frame_scope){0}, s->slot.packet, 0,
                          ist_slot_packet_bytes(&s->engine, &s->slot), s->packet, NULL, "packet", &err),
                 IST_OK);
    *s->slot.frames = (ist_frame){.width = m->width, .height = m->height, .object_count = count};
    cr_assert_eq(ist_trust_unpack(&s->engine, s->engine.trust, &s->slot, &err), IST_OK, "%s", err.text);
    int judged =
        ref_trust_frame(&s->ref, gray, m->width, m->height, objects, count, s->engine.config.match == IST_MATCH_TRACKS,
                        s->engine.config.track_age, &s->options, want);
    cr_assert_eq(s->slot.frames->trust_count, judged, "%s", where);
    for (int i = 0; i < judged; i++) {
        same_scores(&s->slot.trust[i], &want[i], where);
        if (want[i].object >= 0) same_weights(s, &s->slot.trust[i], &objects[want[i].object]);
    }
    for (int k = 0; k < count; k++) free((void *)(uintptr_t)objects[k].mask.bits);
}

/* ---- a structure that fades, leaves and comes back ---- */

typedef struct scene {
    const char *what;
    float score;          /* of the detection; 0: there is none */
    int contrast;         /* gray levels above its surroundings */
    int x;                /* where the bar is */
    bool torn;            /* only every third column of its mask is there */
    ist_visibility state; /* by hand */
} scene;

/* tau_conf 0.5, theta_on 0.6, theta_off 0.4, theta_cont 0.5; lost after 3 low frames. */
static const scene video[] = {
    {"it comes: nothing to compare with, C is small", 0.9f, 120, 20, false, IST_RELOCALIZING},
    {"clear, and where it was", 0.9f, 120, 20, false, IST_VISIBLE},
    {"it moves a little", 0.9f, 110, 21, false, IST_VISIBLE},
    {"it fades: S is between the thresholds", 0.8f, 4, 21, false, IST_VISIBLE},
    {"it has faded, its mask falls to pieces", 0.7f, 0, 21, true, IST_RELOCALIZING},
    {"clear again", 0.9f, 120, 21, false, IST_VISIBLE},
    {"the detector doubts", 0.45f, 120, 21, false, IST_RELOCALIZING},
    {"it is sure again", 0.9f, 120, 21, false, IST_VISIBLE},
    {"it leaves", 0, 0, 0, false, IST_RELOCALIZING},
    {"gone, one", 0, 0, 0, false, IST_RELOCALIZING},
    {"gone, two", 0, 0, 0, false, IST_RELOCALIZING},
    {"gone, three", 0, 0, 0, false, IST_LOST},
    {"gone", 0, 0, 0, false, IST_LOST},
    {"doubtful: not enough", 0.5f, 120, 21, false, IST_LOST},
    {"it comes back elsewhere", 0.9f, 120, 60, false, IST_RELOCALIZING},
    {"and stays there", 0.9f, 120, 60, false, IST_VISIBLE},
};

/* A bar of 6 rows and 30 columns with a rim, over noise that is the same in every frame. */
static void draw(int w, int h, const scene *f, unsigned char *gray, unsigned char *mask) {
    uint32_t seed = 77;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            bool bar = f->score > 0 && x >= f->x && x < f->x + 30 && y >= 40 && y < 46;
            seed = seed * 1664525u + 1013904223u;
            gray[y * w + x] = (unsigned char)(60 + (seed >> 30) + (uint32_t)(bar ? f->contrast : 0));
            mask[y * w + x] = bar && (!f->torn || (x - f->x) % 3 == 0);
        }
}

static void play(bool tracks) {
    enum { W = 101, H = 75 };
    stage s = stage_open(W, H, tracks, 1000);
    unsigned char gray[W * H], mask[W * H];
    s.options.n_lost = 3;
    ist_trust_close(&s.engine, &s.engine.trust);
    cr_assert_eq(ist_trust_open(&s.engine, &s.options, &s.engine.trust, &err), IST_OK);
    cr_assert_eq(ist_trust_reserve(&s.engine, s.engine.trust, W, H, &err), IST_OK);
    for (size_t i = 0; i < sizeof video / sizeof *video; i++) {
        draw(W, H, &video[i], gray, mask);
        const ist_image m = {.width = W, .height = H, .format = IST_GRAY8, .pixels = gray};
        ist_object o = make_object(&s, mask, video[i].score, tracks ? 7 : -1, NULL);
        judge(&s, &m, gray, &o, video[i].score > 0, video[i].what);
        cr_assert_eq(s.slot.frames->trust_count, 1, "%s", video[i].what);
        cr_assert_eq(s.slot.trust[0].state, video[i].state, "frame %zu, %s: state %d, S %.3f, C %.3f", i, video[i].what,
                     s.slot.trust[0].state, (double)s.slot.trust[0].s, (double)s.slot.trust[0].c);
        cr_assert_eq(s.slot.trust[0].track, tracks ? 7 : 1);
    }
    stage_close(&s);
}

Test(pipeline_trust, a_structure_that_fades_leaves_and_comes_back, .timeout = 300) {
    play(true);
}

Test(pipeline_trust, the_best_object_without_a_tracker, .timeout = 300) {
    play(false);
}

/* ---- random shapes ---- */

static uint32_t draw_number(uint32_t *seed, uint32_t below) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

/* Blobs of ellipses, at borders too, with holes; some empty, some of everything. */
static void random_mask(uint32_t *seed, int w, int h, unsigned char *mask) {
    memset(mask, 0, (size_t)(w * h));
    uint32_t kind = draw_number(seed, 12);
    if (kind == 0) return;
    if (kind == 1) memset(mask, 1, (size_t)(w * h));
    for (int e = 0; e < 3 && kind > 1; e++) {
        int cx = (int)draw_number(seed, (uint32_t)w + 8) - 4, cy = (int)draw_number(seed, (uint32_t)h + 8) - 4;
        int rx = 1 + (int)draw_number(seed, 12), ry = 1 + (int)draw_number(seed, 20);
        for (int y = 0; y < h; y++)
            for (int x = 0; x < w; x++)
                if ((x - cx) * (x - cx) * ry * ry + (y - cy) * (y - cy) * rx * rx <= rx * rx * ry * ry)
                    mask[y * w + x] = e < 2 || kind % 2;
    }
}

/* Pillow's L of RGB. */
static unsigned char luma(const unsigned char *p) {
    return (unsigned char)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
}

static void random_frames(int w, int h, ist_pixel_format format, size_t stored, int most) {
    stage s = stage_open(w, h, true, stored);
    size_t n = (size_t)(w * h);
    unsigned char *gray = malloc(n), *mask = malloc(n), *rgb = malloc(3 * n);
    uint16_t *wide = malloc(2 * n);
    uint32_t seed = (uint32_t)(w * 1000 + h);
    for (int f = 0; f < 8; f++) {
        ist_object objects[OBJECTS];
        char where[64];
        int count = (int)draw_number(&seed, (uint32_t)most + 1);
        for (size_t i = 0; i < n; i++) {
            for (int c = 0; c < 3; c++)
                rgb[3 * i + (size_t)c] = (unsigned char)(draw_number(&seed, 60) + (f % 2 ? i % 190 : i % 150));
            wide[i] = (uint16_t)draw_number(&seed, 65536);
            gray[i] = format == IST_RGB8     ? luma(rgb + 3 * i)
                      : format == IST_GRAY16 ? ist_through_window(wide[i], LOW, HIGH)
                                             : rgb[i];
        }
        const ist_image m = {.width = w,
                             .height = h,
                             .format = format,
                             .pixels = format == IST_RGB8     ? rgb
                                       : format == IST_GRAY16 ? (void *)wide
                                                              : gray};
        for (int k = 0; k < count; k++) {
            const float box[4] = {(float)draw_number(&seed, 20) + 0.25f, (float)draw_number(&seed, 20), (float)w - 3.5f,
                                  (float)h - (float)draw_number(&seed, 9)};
            random_mask(&seed, w, h, mask);
            objects[k] = make_object(&s, mask, 0.3f + 0.01f * (float)draw_number(&seed, 65), k * 3 + 1 + f / 4, box);
            if (k % 5 == 4) objects[k].match = -1;
        }
        snprintf(where, sizeof where, "%d x %d, frame %d, %d objects", w, h, f, count);
        judge(&s, &m, gray, objects, count, where);
    }
    stage_close(&s);
    free(gray), free(mask), free(rgb), free(wide);
}

Test(pipeline_trust, random_shapes_agree_with_scalar_code, .timeout = 300) {
    random_frames(65, 64, IST_GRAY8, 100000, 6);
    random_frames(33, 31, IST_RGB8, 40, 5); /* masks beyond the packet */
    random_frames(47, 97, IST_GRAY16, 0, 4);
    random_frames(5, 3, IST_GRAY8, 100, 3);
    random_frames(1, 40, IST_GRAY8, 100, 2);
}

/* More tracks than are judged: the first ones are, those that have gone make room. */
Test(pipeline_trust, more_tracks_than_there_is_room_for, .timeout = 300) {
    enum { W = 40, H = 33 };
    stage s = stage_open(W, H, true, 100000);
    unsigned char gray[W * H], mask[W * H];
    uint32_t seed = 3;
    for (int i = 0; i < W * H; i++) gray[i] = (unsigned char)draw_number(&seed, 256);
    const ist_image m = {.width = W, .height = H, .format = IST_GRAY8, .pixels = gray};
    for (int f = 0; f < 2; f++) {
        ist_object objects[OBJECTS];
        put_pixels(&s, &m);
        for (int k = 0; k < OBJECTS; k++) {
            memset(mask, 0, sizeof mask);
            for (int y = 3; y < 12; y++) memset(mask + y * W + k % 30, 1, 6);
            objects[k] = make_object(&s, mask, 0.9f, f * 100 + k + 1, NULL);
        }
        put_packet(&s, objects, f ? 5 : OBJECTS);
        cr_assert_eq(ist_trust_enqueue(&s.engine, s.engine.trust, &s.slot, &m, false, &err), IST_OK, "%s", err.text);
        ist_trust_advance(s.engine.trust);
        cr_assert_eq(ist_read(s.engine.device, (ist_frame_scope){0}, s.slot.packet, 0,
                              ist_slot_packet_bytes(&s.engine, &s.slot), s.packet, NULL, "packet", &err),
                     IST_OK);
        *s.slot.frames = (ist_frame){.width = W, .height = H, .object_count = OBJECTS};
        cr_assert_eq(ist_trust_unpack(&s.engine, s.engine.trust, &s.slot, &err), IST_OK, "%s", err.text);
        cr_assert_eq(s.slot.frames->trust_count, IST_TRUST_TRACKS);
        int fresh = 0;
        for (int i = 0; i < IST_TRUST_TRACKS; i++) {
            const ist_trust *t = &s.slot.trust[i];
            if (f == 0) cr_expect(t->track == i + 1 && t->object == i);
            if (f == 0 || t->track <= 100) continue;
            cr_expect_eq(t->object, t->track - 101);
            fresh++;
        }
        if (f == 1) cr_expect_eq(fresh, 5);
        for (int k = 0; k < OBJECTS; k++) free((void *)(uintptr_t)objects[k].mask.bits);
    }
    stage_close(&s);
}

/* ---- an engine ---- */

/* What an engine finds in a few frames, judged again by scalar code; the same bits twice, one crossing each way. */
Test(pipeline_trust, an_engine_judges_what_it_finds, .timeout = 600) {
    enum { FRAMES = 5 };
    static const int sizes[FRAMES][2] = {{160, 120}, {160, 120}, {160, 120}, {90, 121}, {90, 121}};
    ist_trust_options options = ist_trust_default();
    ist_config c = engines_config("n", true);
    c.segmenter_size = 256;
    c.conf = 0;
    c.max_objects = 5;
    c.match = IST_MATCH_TRACKS;
    c.trust = &options;
    options.tau_conf = 0;
    ist_trust before[FRAMES][IST_TRUST_TRACKS];
    for (int run = 0; run < 2; run++) {
        ist_engine *e = engines_open(&c);
        ref_trust ref = {0};
        for (int f = 0; f < FRAMES; f++) {
            ist_image m = engines_image(sizes[f][0], sizes[f][1], 30);
            size_t n = (size_t)(m.width * m.height);
            unsigned char *gray = malloc(n), *rgb = (unsigned char *)(uintptr_t)m.pixels;
            for (size_t i = 0; i < n; i++) {
                rgb[3 * i] = (unsigned char)(rgb[3 * i] ^ (f & 1));
                gray[i] = luma(rgb + 3 * i);
            }
            const ist_result *r = engines_run(e, &m, 1);
            ist_trust want[REF_TRUST_TRACKS];
            int judged = ref_trust_frame(&ref, gray, m.width, m.height, r->frames[0].objects, r->frames[0].object_count,
                                         true, c.track_age, &options, want);
            cr_assert_eq(r->frames[0].trust_count, judged);
            cr_assert_gt(judged, 0);
            for (int i = 0; i < judged; i++) {
                same_scores(&r->frames[0].trust[i], &want[i], "engine");
                cr_assert_eq(r->frames[0].trust[i].edge.columns, 0, "weights were not asked for");
            }
            if (run) cr_assert_arr_eq(before[f], r->frames[0].trust, (size_t)judged * sizeof **before, "frame %d", f);
            memcpy(before[f], r->frames[0].trust, (size_t)judged * sizeof **before);
            cr_assert(r->transfers.writes == 1 && r->transfers.reads == 1 && r->transfers.waits <= 1);
            ist_release(e, &r);
            free(gray);
            free(rgb);
        }
        ref_trust_free(&ref);
        ist_close(&e);
    }
}

Test(pipeline_trust, what_it_needs, .timeout = 600) {
    ist_trust_options options = ist_trust_default();
    ist_engine *e = NULL;
    ist_config c = engines_config("n", false);
    c.trust = &options;
    cr_expect_eq(ist_open(&c, &e, &err), IST_E_ARGUMENT);
    cr_expect_not_null(strstr(err.text, "config.trust needs a detector, a segmenter and a batch of 1"), "%s", err.text);
    c = engines_config("n", true);
    c.trust = &options;
    c.batch = 2;
    cr_expect_eq(ist_open(&c, &e, &err), IST_E_ARGUMENT);
    c.batch = 1;
    options.theta_off = 0.7f;
    cr_expect_eq(ist_open(&c, &e, &err), IST_E_ARGUMENT);
    cr_expect_not_null(strstr(err.text, "trust.theta_off is 0.7, want 0..0.6"), "%s", err.text);
    options = (ist_trust_options){.struct_size = 1};
    cr_expect_eq(ist_open(&c, &e, &err), IST_E_ARGUMENT);
    cr_expect_not_null(strstr(err.text, "ist_trust_default"), "%s", err.text);
}
