/* Masks of everything through the public functions: as the published SamAutomaticMaskGenerator answers for the demo's
 * weights (tests/golden/everything.json, made by tests/official/make_everything.py); and what does not depend on
 * batches of points, on the form of the pixels, or on what is in flight. */
#include "io/image.h"
#include "io/rle.h"
#include "support/engines.h"
#include "support/json.h"
#include "support/published.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 256 };

static ist_config config_of(const ist_everything *everything) {
    ist_config c = engines_config("n", true);
    c.detector = NULL;
    c.prompts = IST_PROMPTS_EVERYTHING;
    c.precision = IST_PRECISION_FP32;
    c.segmenter = IST_SOURCE_DIR "/weights/mobile_sam_demo.safetensors";
    c.segmenter_size = SIDE;
    c.everything = everything;
    return c;
}

/* Of pictures that the demo's weights do not know, all masks are taken. */
static ist_everything all_masks(void) {
    ist_everything p = ist_everything_default();
    p.points_per_side = 4;
    p.pred_iou_thresh = p.stability_score_thresh = -1;
    p.box_nms_thresh = 0.9;
    p.max_masks = 64;
    return p;
}

static void same(const ist_frame *a, const ist_frame *b) {
    engines_same(a, b);
    cr_assert_eq(a->dropped, b->dropped);
    for (int i = 0; i < a->object_count; i++) {
        const ist_object *x = &a->objects[i], *y = &b->objects[i];
        cr_assert_arr_eq(x->point, y->point, sizeof x->point);
        cr_assert_arr_eq(x->crop_box, y->crop_box, sizeof x->crop_box);
        cr_assert_eq(x->match, y->match);
    }
}

static void crossed_once(const ist_result *r) {
    cr_expect_eq(r->transfers.writes, 1);
    cr_expect_eq(r->transfers.reads, 1);
    cr_expect_leq(r->transfers.waits, 1);
}

/* ---- against the published code ---- */

static double item(const json_t *array, size_t i) {
    return json_number_value(json_array_get(array, i));
}

static void same_mask(const ist_frame *f, const ist_object *o, const json_t *want, const char *what) {
    const json_t *box = json_object_get(want, "bbox"), *crop = json_object_get(want, "crop_box");
    const json_t *point = json_array_get(json_object_get(want, "point_coords"), 0);
    const char *text = published_string(json_object_get(want, "segmentation"), "counts");
    const uint64_t pixels = (uint64_t)f->width * (uint64_t)f->height;
    ist_error err = {0};
    ist_rle own = {0}, theirs = {0};
    cr_assert_eq(ist_rle_encode(&o->mask, f->width, f->height, &own, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_rle_parse(text, strlen(text), pixels, &theirs, &err), IST_OK, "%s", err.text);
    const double both = (double)ist_rle_overlap(&own, &theirs);
    const double either = (double)(ist_rle_area(&own) + ist_rle_area(&theirs)) - both;
    cr_expect_geq(either ? both / either : 1, 0.999, "%s: mask IoU %g of %g", what, both, either);
    cr_expect_float_eq(o->mask_score, published_number(want, "predicted_iou"), 1e-3, "%s: IoU %g", what, o->mask_score);
    const json_t *stability = json_object_get(want, "stability_score"); /* null: of 0 / 0 pixels */
    cr_expect_float_eq(o->stability, json_is_null(stability) ? 0 : json_number_value(stability), 1e-3,
                       "%s: stability %g", what, o->stability);
    cr_expect_eq(o->score, o->mask_score);
    for (size_t i = 0; i < 2; i++) {
        cr_expect_float_eq(o->point[i], item(point, i), 1e-6, "%s: point[%zu] %.9g", what, i, o->point[i]);
        cr_expect_eq(o->crop_box[i], (int)item(crop, i), "%s: crop[%zu]", what, i);
        cr_expect_eq(o->crop_box[i + 2] - o->crop_box[i], (int)item(crop, i + 2), "%s: size of the crop", what);
        cr_expect_float_eq(o->box[i], item(box, i), 0.5, "%s: box[%zu] %g", what, i, o->box[i]);
        cr_expect_float_eq(o->box[i + 2] - o->box[i], item(box, i + 2), 0.5, "%s: size of the box", what);
    }
    ist_rle_free(&own);
    ist_rle_free(&theirs);
}

static int integer_or(const json_t *o, const char *key, int none) {
    const json_t *v = json_object_get(o, key);
    return v ? (int)json_integer_value(v) : none;
}

static double number_or(const json_t *o, const char *key, double none) {
    const json_t *v = json_object_get(o, key);
    return v ? json_number_value(v) : none;
}

static ist_everything parameters_of(const json_t *from) {
    ist_everything p = ist_everything_default();
    p.points_per_side = integer_or(from, "points_per_side", p.points_per_side);
    p.points_per_batch = integer_or(from, "points_per_batch", p.points_per_batch);
    p.pred_iou_thresh = number_or(from, "pred_iou_thresh", p.pred_iou_thresh);
    p.stability_score_thresh = number_or(from, "stability_score_thresh", p.stability_score_thresh);
    p.stability_score_offset = number_or(from, "stability_score_offset", p.stability_score_offset);
    p.box_nms_thresh = number_or(from, "box_nms_thresh", p.box_nms_thresh);
    p.crop_n_layers = integer_or(from, "crop_n_layers", p.crop_n_layers);
    p.min_mask_region_area = integer_or(from, "min_mask_region_area", p.min_mask_region_area);
    p.max_masks = 64;
    return p;
}

/* A part of a picture: its rows are not packed. */
static void published(const json_t *from) {
    char path[512], what[100];
    const json_t *part = json_object_get(from, "part"), *masks = json_object_get(from, "masks");
    const int x = (int)item(part, 0), y = (int)item(part, 1);
    ist_everything p = parameters_of(json_object_get(from, "parameters"));
    ist_config c = config_of(&p);
    ist_bitmap picture;
    ist_error err = {0};
    c.segmenter_size = 1024;
    snprintf(path, sizeof path, IST_SOURCE_DIR "/apps/frames/%s", published_string(from, "frame"));
    cr_assert_eq(ist_bitmap_read(path, 1 << 24, &picture, &err), IST_OK, "%s", err.text);
    const size_t pixel = (size_t)(ist_format_channels(picture.format) * ist_format_bytes(picture.format));
    ist_image m = {.width = (int)item(part, 2) - x,
                   .height = (int)item(part, 3) - y,
                   .format = picture.format,
                   .stride = picture.stride,
                   .pixels = (const char *)picture.pixels + (size_t)y * picture.stride + (size_t)x * pixel};
    ist_engine *e = engines_open(&c);
    const ist_result *r = engines_run(e, &m, 1);
    const ist_frame *f = &r->frames[0];
    cr_assert_eq((size_t)f->object_count, json_array_size(masks), "%s: %d masks, published %zu",
                 published_string(from, "name"), f->object_count, json_array_size(masks));
    cr_expect_eq(f->dropped, 0);
    crossed_once(r);
    for (int i = 0; i < f->object_count; i++) {
        snprintf(what, sizeof what, "%s, mask %d", published_string(from, "name"), i);
        same_mask(f, &f->objects[i], json_array_get(masks, (size_t)i), what);
    }
    ist_release(e, &r);
    ist_close(&e);
    ist_bitmap_free(&picture);
}

Test(pipeline_everything, published_masks) {
    json_t *golden = load_json(IST_GOLDEN_DIR "/everything.json");
    const json_t *cases = json_object_get(golden, "cases");
    const size_t count = engines_lack_cpu() ? 1 : json_array_size(cases);
    cr_assert_geq(json_array_size(cases), 5);
    for (size_t i = 0; i < count; i++) published(json_array_get(cases, i));
    json_decref(golden);
}

/* ---- the same bits ---- */

/* The same masks; where an image has few prompts in a batch CPUs compute its decoder another way, with other last bits.
 */
static void alike(const ist_frame *a, const ist_frame *b) {
    cr_assert_eq(a->object_count, b->object_count, "%d and %d masks", a->object_count, b->object_count);
    cr_assert_eq(a->dropped, b->dropped);
    for (int i = 0; i < a->object_count; i++) {
        const ist_object *x = &a->objects[i], *y = &b->objects[i];
        cr_assert(x->match == y->match && x->query == y->query, "mask %d is that of point %d, and %d", i, x->match,
                  y->match);
        cr_assert_arr_eq(x->point, y->point, sizeof x->point);
        cr_assert_arr_eq(x->crop_box, y->crop_box, sizeof x->crop_box);
        cr_expect_float_eq(x->score, y->score, 1e-5, "mask %d: %.9g and %.9g", i, x->score, y->score);
        cr_expect_leq(abs(x->area - y->area), 2 + x->area / 1000, "mask %d", i);
    }
}

Test(pipeline_everything, batches_of_points_change_nothing) {
    ist_everything p = all_masks(), few = p;
    p.crop_n_layers = few.crop_n_layers = 1;
    p.points_per_side = few.points_per_side = 3;
    p.min_mask_region_area = few.min_mask_region_area = 20;
    few.points_per_batch = 7;
    ist_config c = config_of(&p), narrow = config_of(&few);
    c.frames_in_flight = 3;
    ist_engine *e = engines_open(&c), *other = engines_open(&narrow);
    ist_image m = engines_image(150, 121, 5);
    const ist_result *first = engines_run(e, &m, 1), *again = engines_run(e, &m, 1), *r = engines_run(other, &m, 1);
    cr_assert_gt(first->frames[0].object_count, 3);
    same(&first->frames[0], &again->frames[0]);
    alike(&first->frames[0], &r->frames[0]);
    crossed_once(first);
    crossed_once(again);
    crossed_once(r);
    ist_release(e, &first);
    ist_release(e, &again);
    ist_release(other, &r);
    ist_close(&e);
    ist_close(&other);
    free((void *)m.pixels);
}

/* Objects are those of the image's own points and crops, their boxes those of the masks. */
static void consistent(const ist_frame *f, const ist_everything *p) {
    for (int i = 0; i < f->object_count; i++) {
        const ist_object *o = &f->objects[i];
        cr_assert(o->match >= 0 && o->query >= 0 && o->query < 3 && !o->label);
        cr_expect_eq(o->score, o->mask_score);
        if (!p->crop_n_layers) cr_assert_arr_eq(o->crop_box, ((int[4]){0, 0, f->width, f->height}), sizeof o->crop_box);
        for (int k = 0; k < 2; k++) cr_expect(o->point[k] > o->crop_box[k] && o->point[k] < o->crop_box[k + 2]);
        for (int k = 0; k < 4 && o->area; k++) cr_expect_eq(o->box[k], (float)o->mask_box[k]);
        if (i && !p->crop_n_layers) cr_expect_leq(o->score, f->objects[i - 1].score);
    }
}

/* One engine: two batches in flight, gray of 8 and 16 bits, rows with room between them. */
Test(pipeline_everything, frames_in_flight_and_pixel_formats) {
    ist_everything p = all_masks();
    ist_config c = config_of(&p);
    ist_engine *e = engines_open(&c);
    ist_error err = {0};
    const ist_result *r, *next;
    enum { W = 130, H = 97, WIDE = W + 13 };
    ist_image m[2] = {engines_image(W, H, 5), engines_image(64, 200, 6)};
    for (int i = 0; i < 2; i++) cr_assert_eq(ist_submit(e, &m[i], 1, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_submit(e, &m[0], 1, &err), IST_E_STATE);
    cr_assert_eq(ist_receive(e, &r, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_receive(e, &next, &err), IST_OK, "%s", err.text);
    cr_assert_eq(r->frames[0].tag, 5);
    cr_assert_eq(next->frames[0].tag, 6);
    cr_assert(r->frames[0].object_count > 2 && next->frames[0].object_count > 2);
    consistent(&r->frames[0], &p);
    consistent(&next->frames[0], &p);
    ist_release(e, &r);
    r = engines_run(e, &m[1], 1);
    same(&next->frames[0], &r->frames[0]);
    ist_release(e, &r);
    ist_release(e, &next);

    uint8_t *gray = malloc((size_t)WIDE * H), *rgb = malloc((size_t)3 * W * H);
    uint16_t *deep = malloc(sizeof *deep * WIDE * H);
    cr_assert(gray && rgb && deep);
    memset(gray, 0xa5, (size_t)WIDE * H);
    memset(deep, 0xa5, sizeof *deep * WIDE * H);
    for (int k = 0; k < W * H; k++) {
        const uint8_t v = ((const uint8_t *)m[0].pixels)[3 * k];
        gray[k / W * WIDE + k % W] = rgb[3 * k] = rgb[3 * k + 1] = rgb[3 * k + 2] = v;
        deep[k / W * WIDE + k % W] = (uint16_t)(257 * v);
    }
    ist_image plain = {.width = W, .height = H, .format = IST_RGB8, .pixels = rgb};
    ist_image forms[] = {
        {.width = W, .height = H, .format = IST_GRAY8, .stride = WIDE, .pixels = gray},
        {.width = W, .height = H, .format = IST_GRAY16, .stride = WIDE * sizeof *deep, .pixels = deep}};
    r = engines_run(e, &plain, 1);
    for (int i = 0; i < 2; i++) {
        next = engines_run(e, &forms[i], 1);
        same(&r->frames[0], &next->frames[0]);
        ist_release(e, &next);
    }
    ist_release(e, &r);
    ist_close(&e);
    free(gray);
    free(rgb);
    free(deep);
    for (int i = 0; i < 2; i++) free((void *)m[i].pixels);
}

/* ---- none, and too many ---- */

Test(pipeline_everything, none_and_too_many) {
    enum { FEW = 3 };
    ist_everything p = all_masks(), none = p, few = p;
    none.pred_iou_thresh = 1e6;
    few.max_masks = FEW;
    ist_config c = config_of(&p), no = config_of(&none), some = config_of(&few);
    ist_engine *e = engines_open(&c), *nothing = engines_open(&no), *less = engines_open(&some);
    ist_image m = engines_image(140, 111, 7);
    const ist_result *all = engines_run(e, &m, 1), *r = engines_run(nothing, &m, 1), *first = engines_run(less, &m, 1);
    const ist_frame *f = &first->frames[0];
    cr_assert_gt(all->frames[0].object_count, FEW);
    cr_assert_eq(all->frames[0].dropped, 0);
    cr_assert_eq(r->frames[0].object_count, 0);
    cr_assert_eq(r->frames[0].dropped, 0);
    cr_assert_eq(r->frames[0].width, 140);
    crossed_once(r);
    cr_assert_eq(f->object_count, FEW);
    cr_assert_eq(f->dropped, all->frames[0].object_count - FEW);
    ist_frame part = all->frames[0];
    part.object_count = FEW;
    part.dropped = f->dropped;
    same(&part, f);
    ist_release(e, &all);
    ist_release(nothing, &r);
    ist_release(less, &first);
    ist_close(&e);
    ist_close(&nothing);
    ist_close(&less);
    free((void *)m.pixels);
}

/* ---- what is refused ---- */

Test(pipeline_everything, an_image_too_small_for_its_crops) {
    ist_everything p = all_masks();
    p.points_per_side = 2;
    p.crop_n_layers = 1;
    p.struct_size = offsetof(ist_everything, min_mask_region_area); /* as an older caller: what follows has defaults */
    p.min_mask_region_area = p.max_masks = -1;
    ist_config c = config_of(&p);
    ist_engine *e = engines_open(&c);
    ist_error err = {0};
    ist_embedding *k = NULL;
    ist_image m = engines_image(90, 70, 8), line = engines_image(40, 1, 9);
    const ist_result *want = engines_run(e, &m, 1), *r;
    cr_assert_eq(ist_submit(e, &line, 1, &err), IST_E_INPUT);
    cr_assert(strstr(err.text, "40 x 1") && strstr(err.text, "crop layer 1"), "%s", err.text);
    cr_assert_eq(ist_receive(e, &r, &err), IST_E_STATE);
    cr_assert_eq(ist_encode(e, &m, &k, &err), IST_E_STATE);
    cr_assert_null(k);
    r = engines_run(e, &m, 1);
    same(&want->frames[0], &r->frames[0]);
    ist_release(e, &r);
    ist_release(e, &want);
    ist_close(&e);
    free((void *)m.pixels);
    free((void *)line.pixels);
}

static void refused(const ist_config *c, ist_status code, const char *words) {
    ist_engine *e = NULL;
    ist_error err = {0};
    cr_expect_eq(ist_open(c, &e, &err), code, "%s: %s", words, err.text);
    cr_expect_null(e);
    cr_expect(strstr(err.text, words), "no \"%s\" in \"%s\"", words, err.text);
    ist_close(&e);
}

Test(pipeline_everything, parameters_out_of_range) {
#define WHOLE(name, value)                                                                                             \
    { #name, offsetof(ist_everything, name), false, value }
#define REAL(name, value)                                                                                              \
    { #name, offsetof(ist_everything, name), true, value }
    static const struct {
        const char *name;
        size_t at;
        bool real;
        double value;
    } bad[] = {
        WHOLE(points_per_side, 0),
        WHOLE(points_per_side, 129),
        WHOLE(points_per_batch, 0),
        WHOLE(points_per_batch, 257),
        REAL(pred_iou_thresh, NAN),
        REAL(pred_iou_thresh, INFINITY),
        REAL(stability_score_thresh, NAN),
        REAL(stability_score_thresh, -2e6),
        REAL(stability_score_offset, NAN),
        REAL(stability_score_offset, -0.1),
        REAL(box_nms_thresh, NAN),
        REAL(box_nms_thresh, -0.1),
        REAL(box_nms_thresh, 1.1),
        WHOLE(crop_n_layers, -1),
        WHOLE(crop_n_layers, 4),
        REAL(crop_nms_thresh, NAN),
        REAL(crop_nms_thresh, 1.5),
        REAL(crop_overlap_ratio, NAN),
        REAL(crop_overlap_ratio, 1),
        REAL(crop_overlap_ratio, -0.1),
        WHOLE(min_mask_region_area, -1),
        WHOLE(crop_n_points_downscale_factor, 0),
        WHOLE(max_masks, 0),
        WHOLE(max_masks, 4097),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ist_everything p = ist_everything_default();
        const ist_config c = config_of(&p);
        const int whole = bad[i].real ? 0 : (int)bad[i].value;
        char name[80];
        memcpy((char *)&p + bad[i].at, bad[i].real ? (const void *)&bad[i].value : &whole,
               bad[i].real ? sizeof(double) : sizeof whole);
        snprintf(name, sizeof name, "config.everything.%s", bad[i].name);
        refused(&c, IST_E_ARGUMENT, name);
    }
}

Test(pipeline_everything, configurations_refused) {
    ist_everything p = ist_everything_default();
    ist_config c = config_of(&p), other;
    p.points_per_side = 3, p.crop_n_layers = 2, p.crop_n_points_downscale_factor = 2;
    refused(&c, IST_E_ARGUMENT, "crop layer 2");
    p = ist_everything_default();
    p.points_per_side = 128, p.crop_n_layers = 3;
    refused(&c, IST_E_LIMIT, "points in 85 crops");
    static const size_t sizes[] = {0, sizeof(size_t) - 1, sizeof(ist_everything) + 1};
    for (int i = 0; i < 3; i++) {
        p = ist_everything_default();
        p.struct_size = sizes[i];
        refused(&c, IST_E_ARGUMENT, "ist_everything_default()");
    }
    p = ist_everything_default();
    other = c;
    other.batch = 2;
    refused(&other, IST_E_ARGUMENT, "config.batch is 2");
    other = c;
    other.prompts = IST_PROMPTS_GIVEN;
    refused(&other, IST_E_ARGUMENT, "IST_PROMPTS_EVERYTHING");
    other = c;
    other.multimask = 1;
    refused(&other, IST_E_ARGUMENT, "multimask");
    other = c;
    other.segmenter = NULL;
    refused(&other, IST_E_ARGUMENT, "everything");
}
