/* Images in tiles through the whole frame: what comes back is, bit for bit, what the scalar reference makes of an
 * engine's detections in each tile by itself; a mosaic of the frames that ship gives what the frames give. */
#include "io/image.h"
#include "pipeline/tiles.h"
#include "ref_tiles.h"
#include "support/engines.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 300, ALL = 7000, TILES = 40, CAPACITY = 4096 };

static ist_error err;

static ist_config small_config(void) {
    ist_config c = engines_config("n", false);
    c.input_size = 256;
    c.conf = 0;
    c.max_objects = MOST;
    return c;
}

/* Where tiles are; the first is the whole image. */
static int cut(int w, int h, int tile_w, int tile_h, int step_x, int step_y, ref_tile *tiles) {
    int count = 1;
    tiles[0] = (ref_tile){0, 0, w, h};
    for (int y = 0, last = 0; !last; y += step_y) {
        last = y + tile_h >= h;
        for (int x = 0, end = 0; !end; x += step_x) {
            end = x + tile_w >= w;
            tiles[count++] = (ref_tile){end ? w - tile_w : x, last ? h - tile_h : y, tile_w, tile_h};
        }
    }
    return count;
}

/* What an engine without tiles finds in each of them; how many. */
static int look(ist_engine *e, const ist_image *image, const ref_tile *tiles, int first, int count,
                ref_detection *all) {
    int found = 0;
    size_t pixel = ((size_t)image->format & 15) * ((size_t)image->format >> 4), stride = (size_t)image->width * pixel;
    for (int t = first; t < count; t++) {
        ist_image m = *image;
        m.width = tiles[t].width, m.height = tiles[t].height, m.stride = stride;
        m.pixels = (const uint8_t *)image->pixels + (size_t)tiles[t].y * stride + pixel * (size_t)tiles[t].x;
        const ist_result *r = engines_run(e, &m, 1);
        for (int i = 0; i < r->frames[0].object_count; i++) {
            const ist_object *o = &r->frames[0].objects[i];
            ref_detection *d = &all[found++];
            *d = (ref_detection){o->label, o->query, t, o->score, {0}};
            for (int k = 0; k < 4; k++) d->box[k] = o->box[k] + (float)(k % 2 ? tiles[t].y : tiles[t].x);
        }
        ist_release(e, &r);
    }
    return found;
}

static bool on_cpu(ist_engine *e) {
    ist_engine_info info;
    cr_assert_eq(ist_engine_describe(e, &info, &err), IST_OK);
    return info.device.type == IST_DEVICE_CPU;
}

/* Against the reference, bit for bit; how many stay. On a GPU the size of the batch can decide which kernels run, and
 * with them the order of sums: there tiles come one at a time. */
static int check(const ist_config *config, const ist_tiles *parameters, const ist_image *image, const ref_tile *tiles,
                 int first, int count) {
    static ref_detection all[ALL];
    static int stay[ALL];
    ist_config plain = *config, tiled = *config;
    plain.nms_iou = 0, plain.nms_agnostic = 0, plain.max_objects = MOST;
    if (plain.window) plain.window = IST_WINDOW_GIVEN; /* an automatic one is the reference's: `image` has it */
    ist_tiles p = *parameters;
    tiled.tiles = &p;
    ist_image asked = *image;
    if (tiled.window == IST_WINDOW_AUTO) asked.window_low = asked.window_high = 0;
    ist_engine *e = engines_open(&plain);
    if (!on_cpu(e)) p.batch = 1;
    int found = look(e, image, tiles, first, count, all), taken = found < CAPACITY ? found : CAPACITY;
    ist_close(&e);
    int left = ref_tiles_stay(all, taken, tiles, image->width, image->height,
                              config->nms_iou > 0 ? config->nms_iou : 0.5, config->nms_agnostic, stay);
    int want = left < config->max_objects ? left : config->max_objects;
    e = engines_open(&tiled);
    for (int turn = 0; turn < 2; turn++) { /* what was found in the image before is forgotten */
        const ist_result *r = engines_run(e, &asked, 1);
        const ist_frame *f = &r->frames[0];
        cr_expect(f->window_low == image->window_low && f->window_high == image->window_high);
        cr_expect(r->transfers.writes == 1 && r->transfers.reads == 1 && r->transfers.waits <= 1);
        cr_assert(f->object_count == want && f->dropped == found - taken + left - want,
                  "%d objects and %d dropped, not %d and %d of %d", f->object_count, f->dropped, want,
                  found - taken + left - want, found);
        for (int i = 0; i < want; i++) {
            const ist_object *o = &f->objects[i];
            const ref_detection *d = &all[stay[i]];
            cr_assert(o->label == d->label && o->score == d->score && o->query == d->query,
                      "object %d is %d with %.9g, not %d with %.9g of tile %d", i, o->label, o->score, d->label,
                      d->score, d->tile);
            cr_assert_arr_eq(o->box, d->box, sizeof d->box);
            cr_assert(o->match == -1 && !o->mask.columns);
        }
        ist_release(e, &r);
    }
    ist_close(&e);
    return left;
}

/* For images of all kinds: tiles are inside, of one size, and have every pixel; neighbours share the overlap. */
Test(pipeline_tiles, places) {
    static const int sizes[][2] = {{1, 1},       {640, 640},  {641, 640},  {100, 3000},
                                   {2000, 1500}, {65536, 33}, {1151, 1153}};
    static const int parameters[][3] = {{640, 640, -1}, {640, 480, 0}, {300, 700, 150}, {64, 4000, 32}};
    for (unsigned i = 0; i < 7 * 4; i++) {
        const int w = sizes[i % 7][0], h = sizes[i % 7][1], *of = parameters[i / 7];
        ist_tiles p = ist_tiles_default();
        ist_tile_layout l;
        p.width = of[0], p.height = of[1], p.overlap = of[2];
        if (ist_tiles_of(&p, w, h, &l, &err)) {
            cr_expect_eq(err.code, IST_E_LIMIT);
            cr_expect(w == 65536 && p.width == 64, "%s", err.text);
            continue;
        }
        cr_expect_eq(l.tiles == 1, w <= p.width && h <= p.height);
        for (int axis = 0; axis < 2; axis++) {
            const int side = axis ? h : w, tile = axis ? l.height : l.width, count = axis ? l.rows : l.columns;
            const int overlap = p.overlap < 0 ? of[axis] / 5 : p.overlap;
            int end = 0;
            for (int k = 0; k < count && l.tiles > 1; k++) {
                int at[2];
                ist_tile_place(&l, 1 + (axis ? k * l.columns : k), &at[0], &at[1]);
                cr_assert(at[axis] >= 0 && at[axis] + tile <= side, "%d x %d", w, h);
                if (k) cr_assert(at[axis] > end - tile && end - at[axis] >= overlap, "%d x %d: tile %d", w, h, k);
                if (k && k < count - 1) cr_assert_eq(end - at[axis], overlap);
                end = at[axis] + tile;
            }
            cr_assert(l.tiles == 1 || end == side, "%d x %d: to %d", w, h, end);
        }
    }
}

Test(pipeline_tiles, as_the_reference) {
    ref_tile tiles[TILES];
    ist_config c = small_config();
    ist_tiles p = ist_tiles_default();
    ist_image m = engines_image(400, 300, 5);
    p.width = 200, p.height = 250;
    int count = cut(400, 300, 200, 250, 160, 200, tiles); /* a fifth of each side */
    cr_assert_eq(count, 1 + 3 * 2);
    c.conf = 0.02f;
    check(&c, &p, &m, tiles, 0, count);
    c.nms_iou = 0.3, c.nms_agnostic = 1, c.max_objects = 5;
    p.whole = 0, p.overlap = 30, p.batch = 4; /* groups of four and of two */
    count = cut(400, 300, 200, 250, 170, 220, tiles);
    check(&c, &p, &m, tiles, 1, count);
    free((void *)m.pixels);
}

static int by_value(const void *a, const void *b) {
    return (int)*(const uint16_t *)a - (int)*(const uint16_t *)b;
}

/* 16 bits, brighter from tile to tile: through the whole image's window, found on the device or given, no tile's own.
 */
Test(pipeline_tiles, windows) {
    enum { W = 300, H = 200 };
    static uint16_t deep[W * H], sorted[W * H];
    ref_tile tiles[TILES];
    ist_config c = small_config();
    ist_tiles p = ist_tiles_default();
    ist_image rgb = engines_image(W, H, 8), m = rgb;
    const uint8_t *from = rgb.pixels;
    for (int i = 0; i < W * H; i++)
        sorted[i] = deep[i] = (uint16_t)(5000 + 3 * from[3 * i] + 9 * (i % W) + 4 * (i / W));
    qsort(sorted, W * H, sizeof *sorted, by_value);
    p.width = 150, p.height = 200, p.overlap = 30;
    int count = cut(W, H, 150, 200, 120, 170, tiles);
    cr_assert_eq(count, 1 + 3);
    m.format = IST_GRAY16, m.pixels = deep;
    c.conf = 0.02f;
    for (c.window = IST_WINDOW_GIVEN; c.window <= IST_WINDOW_AUTO; c.window++) {
        bool found = c.window == IST_WINDOW_AUTO;
        m.window_low = found ? sorted[W * H / 200] : 5500,
        m.window_high = found ? sorted[W * H - 1 - W * H / 200] : 8000;
        p.whole = found, p.batch = 1 + found;
        cr_expect_gt(check(&c, &p, &m, tiles, !found, count), 0);
    }
    free((void *)rgb.pixels);
}

/* More detections than there is room for: those of the last tiles are dropped, and counted. */
Test(pipeline_tiles, more_than_there_is_room_for) {
    if (engines_lack_cpu()) return;
    ref_tile tiles[TILES];
    ist_config c = small_config();
    ist_tiles p = ist_tiles_default();
    ist_image m = engines_image(160, 120, 6);
    p.width = p.height = 40, p.overlap = 0;
    int count = cut(160, 120, 40, 40, 40, 40, tiles);
    cr_assert_eq(count, 13);
    p.overlap = 8;
    count = cut(160, 120, 40, 40, 32, 32, tiles);
    cr_assert_geq(count * 300, CAPACITY + 300);
    check(&c, &p, &m, tiles, 0, count);
    free((void *)m.pixels);
}

/* An image that is no larger than a tile is taken as ever. */
Test(pipeline_tiles, small_images) {
    ist_config c = small_config(), plain = small_config();
    ist_tiles p = ist_tiles_default();
    c.conf = plain.conf = 0.02f, plain.nms_iou = 0.5;
    c.max_objects = plain.max_objects = 20;
    ist_image m = engines_image(90, 120, 7);
    for (p.whole = 0; p.whole < 2; p.whole++) {
        p.width = p.height = 120;
        c.tiles = &p;
        ist_engine *e = engines_open(&c), *other = engines_open(&plain);
        const ist_result *a = engines_run(e, &m, 1), *b = engines_run(other, &m, 1);
        cr_assert_gt(a->frames[0].object_count, 0);
        engines_same(&a->frames[0], &b->frames[0]);
        ist_release(e, &a), ist_release(other, &b);
        ist_close(&e), ist_close(&other);
    }
    free((void *)m.pixels);
}

/* ---- the frames that ship ---- */

enum { SIDE = 400, ACROSS = 4, ROW = SIDE * ACROSS * 3 };

/* Four frames of 400 x 400 side by side. */
static ist_image mosaic(void) {
    static uint8_t pixels[SIDE * ROW];
    for (int k = 0; k < ACROSS; k++) {
        char path[200];
        ist_bitmap frame, rgb;
        snprintf(path, sizeof path, IST_SOURCE_DIR "/weights/demo/frame-%03d.png", 9 + k);
        cr_assert_eq(ist_bitmap_read(path, IST_MAX_PIXELS, &frame, &err), IST_OK, "%s", err.text);
        cr_assert_eq(ist_bitmap_as_rgb(&frame, 0, 0, &rgb, &err), IST_OK, "%s", err.text);
        cr_assert(rgb.width == SIDE && rgb.height == SIDE);
        for (int y = 0; y < SIDE; y++)
            memcpy(pixels + y * ROW + 3 * SIDE * k, (uint8_t *)rgb.pixels + y * 3 * SIDE, 3 * SIDE);
        ist_bitmap_free(&frame), ist_bitmap_free(&rgb);
    }
    return (ist_image){.width = SIDE * ACROSS, .height = SIDE, .format = IST_RGB8, .pixels = pixels};
}

static ist_config demo_config(void) {
    ist_config c = ist_config_default();
    c.detector = IST_SOURCE_DIR "/weights/dfine_n_demo.safetensors";
    c.precision = IST_PRECISION_FP32;
    return c;
}

static ist_tiles frame_tiles(void) {
    ist_tiles p = ist_tiles_default();
    p.width = p.height = SIDE, p.overlap = 0, p.whole = 0, p.batch = 3;
    return p;
}

/* In tiles that are the frames, what they give one by one; without, less. */
Test(pipeline_tiles, mosaic) {
    ref_tile tiles[TILES];
    ist_config c = demo_config();
    const ist_tiles p = frame_tiles();
    const ist_image m = mosaic();
    int count = cut(SIDE * ACROSS, SIDE, SIDE, SIDE, SIDE, SIDE, tiles);
    int found = check(&c, &p, &m, tiles, 1, count);
    cr_expect_geq(found, ACROSS);
    ist_engine *e = engines_open(&c);
    const ist_result *r = engines_run(e, &m, 1);
    cr_expect_lt(r->frames[0].object_count, found, "%d without tiles", r->frames[0].object_count);
    ist_release(e, &r);
    ist_close(&e);
}

static bool mask_bit(const ist_mask *m, int x, int y) {
    if (x < m->x0 || x >= m->x0 + m->columns || y < m->y0 || y >= m->y0 + 32 * m->words) return false;
    return m->bits[(x - m->x0) * m->words + (y - m->y0) / 32] >> (y - m->y0) % 32 & 1;
}

/* Pixels in which the object's mask is not that of `of` in the frame whose left edge is at `left`. */
static int difference(const ist_object *o, const ist_object *of, int left) {
    int differ = 0;
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE * ACROSS; x++)
            differ += mask_bit(&o->mask, x, y) != (x >= left && mask_bit(&of->mask, x - left, y));
    return differ;
}

/* Whether an object is that of the frame whose left edge is at `left`: but for the order of sums, where that may
 * change. */
static bool is_of(const ist_object *o, const ist_object *of, int left, bool bits) {
    if (bits) return o->score == of->score && o->query == of->query;
    for (int k = 0; k < 4; k++)
        if (fabsf(o->box[k] - of->box[k] - (float)(k % 2 ? 0 : left)) > 2) return false;
    return o->label == of->label && fabsf(o->score - of->score) < 0.02f;
}

/* Masks are those that the frames have; prompts lose a bit on their way through the image's coordinates. */
Test(pipeline_tiles, masks) {
    ist_config c = demo_config();
    const ist_tiles p = frame_tiles();
    const ist_image m = mosaic();
    c.segmenter = IST_SOURCE_DIR "/weights/mobile_sam_demo.safetensors";
    c.segmenter_size = 256;
    c.nms_iou = 0.5;
    ist_engine *single = engines_open(&c);
    const bool bits = on_cpu(single);
    c.tiles = &p;
    ist_engine *e = engines_open(&c);
    const ist_result *r = engines_run(e, &m, 1);
    const ist_frame *f = &r->frames[0];
    int seen = 0;
    cr_expect(r->transfers.writes == 1 && r->transfers.reads == 1 && r->transfers.waits <= 1);
    for (int k = 0; k < ACROSS; k++) {
        const ist_image frame = {.width = SIDE,
                                 .height = SIDE,
                                 .format = IST_RGB8,
                                 .stride = ROW,
                                 .pixels = (const uint8_t *)m.pixels + 3 * SIDE * k};
        const ist_result *own = engines_run(single, &frame, 1);
        for (int i = 0; i < f->object_count; i++)
            for (int j = 0; j < own->frames[0].object_count; j++) {
                const ist_object *o = &f->objects[i], *of = &own->frames[0].objects[j];
                if (!is_of(o, of, SIDE * k, bits)) continue;
                seen++;
                cr_expect(of->area > 50 && abs(o->area - of->area) * 100 <= of->area, "%d and %d pixels", o->area,
                          of->area);
                cr_expect_leq(difference(o, of, SIDE * k) * 100, of->area, "frame %d: %d of %d pixels differ", k,
                              difference(o, of, SIDE * k), of->area);
                cr_expect(o->mask_score > 0 && fabsf(o->mask_score - of->mask_score) < 1e-2f);
            }
        ist_release(single, &own);
    }
    cr_expect(seen == f->object_count && seen >= ACROSS, "%d of %d", seen, f->object_count);
    ist_release(e, &r);
    ist_close(&e), ist_close(&single);
}

Test(pipeline_tiles, refused) {
    ist_config c = small_config();
    ist_tiles p = ist_tiles_default();
    ist_engine *e = NULL;
    c.tiles = &p;
#define BAD(change, want)                                                                                              \
    do {                                                                                                               \
        p = ist_tiles_default();                                                                                       \
        change;                                                                                                        \
        cr_assert_eq(ist_open(&c, &e, &err), IST_E_ARGUMENT);                                                          \
        cr_expect(strstr(err.text, want), "%s", err.text);                                                             \
    } while (0)
    BAD(p.width = 31, "config.tiles are of 31 x 640 pixels, want 32 to 65536 on a side");
    BAD(p.overlap = 321, "tiles.overlap is 321, want at most 320, half of a tile's shorter side");
    BAD(p.overlap = -2, "tiles.overlap is -2");
    BAD(p.whole = 2, "tiles.whole is 2");
    BAD(p.batch = 0, "tiles.batch is 0, want 1..64");
    BAD(p.batch = 65, "tiles.batch is 65, want 1..64");
    BAD(p.struct_size = 3, "config.tiles: start from ist_tiles_default()");
    BAD(c.batch = 2, "config.tiles need a detector, a batch of 1");
    c.batch = 1;
    BAD(c.match = IST_MATCH_TARGETS_SET, "neither trust nor IST_MATCH_TARGETS_SET");
#undef BAD
    c.match = IST_MATCH_NONE;
    p = ist_tiles_default();
    p.width = p.height = 32, p.overlap = 16;
    e = engines_open(&c);
    ist_image m = engines_image(1024, 600, 1);
    cr_assert_eq(ist_submit(e, &m, 1, &err), IST_E_LIMIT);
    cr_expect_str_eq(err.text, "1024 x 600 pixels are 2332 tiles of 32 x 32 with the whole, at most 1024", "%s",
                     err.text);
    ist_close(&e);
    free((void *)m.pixels);
}
