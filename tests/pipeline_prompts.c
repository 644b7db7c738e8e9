/* Given prompts through the public functions: points, boxes, masks and all of them together in one batch, each as the
 * published SamPredictor answers it alone (tests/golden/prompts, made by tests/official/make_prompts.py); and what is
 * asked of an embedding is what is asked of its image, bit for bit. */
#include "support/engines.h"
#include "support/json.h"
#include "support/published.h"

#include <CL/cl.h>
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16, POINTS = 12, MASKS = 3 };

/* What float32 sums in another order may change: PoCL stays within 4e-6 and, rounding of the files included, 7e-5. */
typedef struct limits {
    double score, logit, area, iou;
} limits;
static const limits in_float = {1e-4, 1e-3, 1e-3, 0.999}, in_half = {0.01, 0.1, 0.02, 0.98};

/* A prompt and where its parts lie. */
typedef struct given {
    ist_prompt prompt;
    ist_point points[POINTS];
    float box[4];
    float *mask;
} given;

/* Logits of 6 at (x, y), 0 at distance r, and on: make_prompts.py has the same in the same operations. */
static float *cone(int side, double x, double y, double r) {
    float *v = malloc((size_t)side * (size_t)side * sizeof *v);
    cr_assert_not_null(v);
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) {
            double dx = (j - x) * (j - x), dy = (i - y) * (i - y);
            v[i * side + j] = (float)(6.0 * (1.0 - (dx + dy) / (r * r)));
        }
    return v;
}

static double item(const json_t *array, size_t i) {
    return json_number_value(json_array_get(array, i));
}

static void read_given(const json_t *from, given *g, int side) {
    const json_t *points = json_object_get(from, "points"), *box = json_object_get(from, "box");
    const json_t *mask = json_object_get(from, "cone");
    *g = (given){0};
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *p = json_array_get(points, i);
        cr_assert_lt(i, POINTS);
        g->points[i] =
            (ist_point){(float)item(p, 0), (float)item(p, 1), json_is_true(json_array_get(p, 2)) || item(p, 2) != 0};
    }
    g->prompt.points = g->points;
    g->prompt.point_count = (int)json_array_size(points);
    for (size_t i = 0; i < json_array_size(box); i++) g->box[i] = (float)item(box, i);
    if (box) g->prompt.box = g->box;
    if (!mask) return;
    g->prompt.mask = g->mask = cone(side, item(mask, 0), item(mask, 1), item(mask, 2));
    g->prompt.mask_width = g->prompt.mask_height = side;
}

static ist_config prompts_config(void) {
    ist_config c = engines_config("n", true);
    c.detector = NULL;
    c.prompts = IST_PROMPTS_GIVEN;
    c.precision = IST_PRECISION_FP32;
    c.mask_prompts = 1;
    c.low_res = 1;
    return c;
}

/* ---- against the published code ---- */

static void same_answer(const ist_frame *f, const ist_object *o, const json_t *want, const char *what,
                        const limits *most) {
    double area = published_number(want, "area"), off = fabs(o->area - area), low = 0;
    double iou = published_iou(&o->mask, f, json_object_get(want, "mask"));
    const json_t *logits = json_object_get(want, "low_res");
    cr_assert_not_null(o->low_res);
    for (size_t i = 0; i < json_array_size(logits); i++) {
        size_t at = i * 2654435761u % (256 * 256);
        double d = fabs((double)o->low_res[at] - item(logits, i));
        if (!(d <= low)) low = d;
    }
    cr_expect_float_eq(o->mask_score, published_number(want, "score"), most->score, "%s: score %g", what,
                       o->mask_score);
    cr_expect(off <= 2 || off <= most->area * area, "%s: area %d, published %g", what, o->area, area);
    cr_expect_geq(iou, most->iou, "%s: mask IoU %.5f", what, iou);
    cr_expect_leq(low, most->logit, "%s: a logit is %g off", what, low);
    cr_log_info("%s: score off %.2g, area off %g, IoU %.5f, logits off %.2g\n", what,
                fabs(o->mask_score - published_number(want, "score")), off, iou, low);
}

static void same_image(ist_engine *e, const json_t *image, const char *key, int masks, const limits *most) {
    const json_t *prompts = json_object_get(image, "prompts");
    int count = (int)json_array_size(prompts);
    given g[MOST];
    ist_prompt list[MOST];
    cr_assert(count > 0 && count <= MOST);
    for (int i = 0; i < count; i++) {
        read_given(json_array_get(prompts, (size_t)i), &g[i], 256);
        list[i] = g[i].prompt;
    }
    ist_image m = published_image(json_object_get(image, "phantom"));
    m.prompts = list;
    m.prompt_count = count;
    const ist_result *r = engines_run(e, &m, 1);
    const ist_frame *f = &r->frames[0];
    cr_assert_eq(f->object_count, count * masks);
    for (int k = 0; k < f->object_count; k++) {
        const json_t *answers = json_object_get(json_array_get(prompts, (size_t)(k / masks)), key);
        char what[80];
        snprintf(what, sizeof what, "%d x %d, prompt %d, mask %d", m.width, m.height, k / masks, k % masks);
        cr_assert_eq(json_array_size(answers), (size_t)masks);
        cr_expect_eq(f->objects[k].match, k / masks);
        cr_expect_eq(f->objects[k].query, k % masks);
        cr_expect_arr_eq(f->objects[k].box, g[k / masks].box, sizeof g->box);
        same_answer(f, &f->objects[k], json_array_get(answers, (size_t)(k % masks)), what, most);
    }
    cr_expect_eq(r->transfers.writes, 1);
    cr_expect_eq(r->transfers.reads, 1);
    cr_expect_leq(r->transfers.waits, 1);
    ist_release(e, &r);
    for (int i = 0; i < count; i++) free(g[i].mask);
    free((void *)m.pixels);
}

static void published(bool multimask, int max_points, ist_precision precision) {
    json_t *golden = load_json(IST_GOLDEN_DIR "/prompts/mobilesam.json");
    const json_t *images = json_object_get(golden, "images");
    ist_config c = prompts_config();
    c.segmenter_size = 1024;
    c.multimask = multimask;
    c.max_points = max_points;
    c.precision = precision;
    ist_engine *e = engines_open(&c);
    size_t count = engines_lack_cpu() ? 1 : json_array_size(images);
    for (size_t i = 0; i < count; i++)
        same_image(e, json_array_get(images, i), multimask ? "multi" : "single", multimask ? MASKS : 1,
                   precision == IST_PRECISION_FP32 ? &in_float : &in_half);
    ist_close(&e);
    json_decref(golden);
}

Test(pipeline_prompts, published_masks) {
    published(false, POINTS, IST_PRECISION_FP32);
}

Test(pipeline_prompts, three_published_masks_of_each) {
    published(true, POINTS, IST_PRECISION_FP32);
}

Test(pipeline_prompts, published_masks_stored_as_half) {
    published(true, POINTS, IST_PRECISION_FP16);
}

/* More places than the kernels with absorbed projections have. */
Test(pipeline_prompts, published_masks_by_plain_nodes) {
    if (!engines_lack_cpu()) published(false, 40, IST_PRECISION_FP32);
}

/* ---- embeddings ---- */

static const ist_point dots[] = {{30, 40, 1}, {90, 20, 0}, {5, 70, 1}, {-9, 200, 1}};
static const float boxes[] = {10, 12, 70, 80.5f, 40, 5, 99, 60};

/* Prompts of every kind but masks, of 7 to 10 tokens. */
static const ist_prompt kinds[] = {
    {.points = dots, .point_count = 1},     {.box = boxes},
    {.points = dots + 1, .point_count = 3}, {.points = dots, .point_count = 1, .box = boxes + 4},
    {.points = dots, .point_count = 4},
};
enum { KINDS = sizeof kinds / sizeof *kinds, SIDE = 256, LOW = SIDE / 4 };

static ist_config small_config(void) {
    ist_config c = prompts_config();
    c.segmenter_size = SIDE;
    c.max_objects = KINDS;
    c.max_points = 4;
    return c;
}

static void same_logits(const ist_object *a, const ist_object *b) {
    cr_assert(a->low_res && b->low_res);
    cr_assert_arr_eq(a->low_res, b->low_res, LOW * LOW * sizeof(float));
}

static const ist_result *ask(ist_engine *e, const ist_embedding *k, const ist_prompt *prompts, int count,
                             uint64_t tag) {
    ist_error err = {0};
    const ist_result *r = NULL;
    cr_assert_eq(ist_submit_prompts(e, k, prompts, count, tag, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_receive(e, &r, &err), IST_OK, "%s", err.text);
    cr_assert_eq(r->frame_count, 1);
    cr_assert_eq(r->frames[0].tag, tag);
    cr_expect_eq(r->transfers.writes, 1);
    cr_expect_eq(r->transfers.reads, 1);
    cr_expect_leq(r->transfers.waits, 1);
    return r;
}

static ist_embedding *encode(ist_engine *e, const ist_image *m) {
    ist_error err = {0};
    ist_embedding *k = NULL;
    ist_transfers moved;
    cr_assert_eq(ist_encode(e, m, &k, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_embedding_transfers(k, &moved, &err), IST_OK);
    cr_expect_eq(moved.writes, 1);
    cr_expect_eq(moved.reads, 0);
    cr_expect_leq(moved.waits, 1);
    return k;
}

/* Several images' embeddings, asked by turns and in other batches than their images were: the same bits. */
Test(pipeline_prompts, embeddings_answer_as_images_do) {
    enum { IMAGES = 3 };
    ist_config c = small_config();
    c.frames_in_flight = 4; /* three stay out, for comparison */
    ist_engine *e = engines_open(&c);
    ist_image m[IMAGES] = {engines_image(100, 81, 5), engines_image(64, 200, 6), engines_image(300, 299, 7)};
    const ist_result *want[IMAGES];
    ist_embedding *k[IMAGES];
    for (int i = 0; i < IMAGES; i++) {
        m[i].prompts = kinds;
        m[i].prompt_count = KINDS;
        want[i] = engines_run(e, &m[i], 1);
        k[i] = encode(e, &m[i]);
    }
    cr_expect_gt(want[0]->frames[0].objects[0].area + want[1]->frames[0].objects[0].area, 0);
    for (int i = 0; i < IMAGES * KINDS; i++) { /* one by one */
        int image = i % IMAGES, prompt = i / IMAGES;
        const ist_result *r = ask(e, k[image], &kinds[prompt], 1, (uint64_t)i);
        ist_object a = want[image]->frames[0].objects[prompt], b = r->frames[0].objects[0];
        cr_assert_eq(r->frames[0].width, m[image].width);
        cr_assert_eq(r->frames[0].object_count, 1);
        same_logits(&a, &b);
        ist_frame x = {.object_count = 1, .objects = &a}, y = {.object_count = 1, .objects = &b};
        engines_same(&x, &y);
        ist_release(e, &r);
    }
    for (int i = IMAGES - 1; i >= 0; i--) { /* all at once */
        const ist_result *r = ask(e, k[i], kinds, KINDS, 9);
        engines_same(&want[i]->frames[0], &r->frames[0]);
        ist_release(e, &r);
    }
    for (int i = 0; i < IMAGES; i++) {
        ist_release(e, &want[i]);
        free((void *)m[i].pixels);
    }
    ist_embedding_release(e, &k[1]); /* the others end with their engine */
    cr_expect_null(k[1]);
    ist_close(&e);
}

static int launches;
cl_int __real_clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *offset,
                                     const size_t *global, const size_t *local, cl_uint waits, const cl_event *wait,
                                     cl_event *event);
cl_int __wrap_clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *offset,
                                     const size_t *global, const size_t *local, cl_uint waits, const cl_event *wait,
                                     cl_event *event);
cl_int __wrap_clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *offset,
                                     const size_t *global, const size_t *local, cl_uint waits, const cl_event *wait,
                                     cl_event *event) {
    launches++;
    return __real_clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, waits, wait, event);
}

/* Prompts of few points do not wait for room that is for many, and none at all need no decoder: what is launched. */
Test(pipeline_prompts, a_click_launches_what_it_needs) {
    static const int first[] = {0, 1, 3, 2, 4, 0}, counts[] = {1, 1, 1, 1, 1, KINDS};
    enum { CASES = sizeof counts / sizeof *counts };
    ist_config c = small_config(), narrow = c;
    narrow.max_points = 1;
    ist_engine *e = engines_open(&c), *least = engines_open(&narrow);
    ist_image m = engines_image(100, 81, 5);
    ist_embedding *k = encode(e, &m), *own = encode(least, &m);
    int made[CASES];
    for (int i = 0; i < CASES; i++) {
        launches = 0;
        const ist_result *r = ask(e, k, kinds + first[i], counts[i], 1);
        made[i] = launches;
        ist_release(e, &r);
    }
    launches = 0;
    const ist_result *r = ask(least, own, kinds, 1, 1);
    ist_release(least, &r);
    cr_expect_eq(made[0], launches, "a click: %d launches, %d where one point is the most", made[0], launches);
    cr_expect_eq(made[1], made[0], "a box");
    cr_expect_eq(made[2], made[0], "a box and a point");
    cr_expect_eq(made[4], made[3], "three points and four");
    cr_expect_gt(made[5], made[3], "points few and many");
    cr_expect_gt(made[5], made[0], "points few and many");
    free((void *)m.pixels);
    ist_close(&e);
    ist_close(&least);
}

/* A batch of several images, each with prompts of its own, one without any. */
Test(pipeline_prompts, each_image_has_its_own) {
    enum { IMAGES = 3 };
    ist_config c = small_config();
    c.batch = IMAGES;
    c.multimask = 1;
    ist_engine *e = engines_open(&c);
    ist_image m[IMAGES] = {engines_image(100, 81, 5), engines_image(64, 200, 6), engines_image(90, 90, 7)};
    m[0].prompts = kinds + 1, m[0].prompt_count = 3;
    m[2].prompts = kinds, m[2].prompt_count = KINDS;
    const ist_result *all = engines_run(e, m, IMAGES);
    cr_assert_eq(all->frames[0].object_count, 9);
    cr_assert_eq(all->frames[1].object_count, 0);
    cr_assert_eq(all->frames[2].object_count, 3 * KINDS);
    for (int i = 0; i < IMAGES; i += 2) {
        const ist_result *alone = engines_run(e, &m[i], 1);
        engines_same(&alone->frames[0], &all->frames[i]);
        for (int o = 0; o < alone->frames[0].object_count; o++)
            same_logits(&alone->frames[0].objects[o], &all->frames[i].objects[o]);
        ist_release(e, &alone);
    }
    ist_release(e, &all);
    for (int i = 0; i < IMAGES; i++) free((void *)m[i].pixels);
    ist_close(&e);
}

/* An answer's logits are a mask prompt; an engine that takes those answers prompts without one as another does. */
Test(pipeline_prompts, an_answer_is_a_prompt) {
    ist_config c = small_config(), plain = c;
    plain.mask_prompts = plain.low_res = 0;
    ist_engine *e = engines_open(&c), *without = engines_open(&plain);
    ist_image m = engines_image(120, 100, 8);
    ist_embedding *k = encode(e, &m);
    m.prompts = kinds;
    m.prompt_count = KINDS;
    const ist_result *first = ask(e, k, kinds, KINDS, 1), *other = engines_run(without, &m, 1);
    for (int i = 0; i < KINDS; i++) {
        const ist_object *a = &first->frames[0].objects[i], *b = &other->frames[0].objects[i];
        cr_expect_float_eq(a->mask_score, b->mask_score, 1e-4);
        cr_expect_leq(abs(a->area - b->area), 2 + a->area / 1000);
        cr_expect_null(b->low_res);
    }
    ist_prompt again = kinds[0];
    again.mask = first->frames[0].objects[0].low_res;
    again.mask_width = again.mask_height = LOW;
    const ist_result *second = ask(e, k, &again, 1, 2);
    const ist_object *a = &first->frames[0].objects[0], *b = &second->frames[0].objects[0];
    cr_expect(memcmp(a->low_res, b->low_res, LOW * LOW * sizeof(float)), "the mask changed nothing");
    ist_release(e, &first);
    ist_release(e, &second);
    ist_release(without, &other);
    free((void *)m.pixels);
    ist_close(&e);
    ist_close(&without);
}

static uint64_t device_bytes(ist_engine *e) {
    ist_engine_info info;
    ist_error err;
    cr_assert_eq(ist_engine_describe(e, &info, &err), IST_OK, "%s", err.text);
    return info.device_bytes;
}

/* As many as were asked for, and memory comes back. */
Test(pipeline_prompts, embeddings_are_bounded) {
    enum { MOST_ALIVE = 3, ROUNDS = 4 };
    const size_t each = (SIDE / 16) * (SIDE / 16) * 256 * sizeof(float);
    ist_error err = {0};
    ist_config c = small_config();
    c.max_embeddings = MOST_ALIVE;
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(50, 40, 9);
    ist_embedding *k[MOST_ALIVE], *more = NULL;
    k[0] = encode(e, &m);
    const ist_result *r = ask(e, k[0], kinds, 1, 0); /* makes room for the image */
    ist_release(e, &r);
    ist_embedding_release(e, &k[0]);
    uint64_t before = device_bytes(e);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < MOST_ALIVE; i++) k[i] = encode(e, &m);
        cr_expect_eq(device_bytes(e), before + MOST_ALIVE * each);
        cr_assert_eq(ist_encode(e, &m, &more, &err), IST_E_LIMIT);
        cr_assert_null(more);
        cr_expect(strstr(err.text, "3 embeddings") && strstr(err.text, "max_embeddings"), "%s", err.text);
        cr_assert_eq(ist_submit_prompts(e, k[2], kinds, 1, 0, &err), IST_OK, "%s", err.text);
        for (int i = 0; i < MOST_ALIVE; i++) ist_embedding_release(e, &k[(i + round) % MOST_ALIVE]);
        cr_assert_eq(ist_receive(e, &r, &err), IST_OK, "%s", err.text); /* submitted before it was released */
        cr_expect_eq(r->frames[0].object_count, 1);
        ist_release(e, &r);
        cr_expect_eq(device_bytes(e), before);
    }
    free((void *)m.pixels);
    ist_close(&e);
}
