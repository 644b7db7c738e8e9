/* Detection: scores, order, threshold, class filter, counts, prompts, against a plain loop over sorted candidates. */
#include "variants/upload.h"
#include "variants/variant.h"
#include "support/external.h"
#include "support/hidden_caps.h"

#include <math.h>
#include <stdlib.h>

typedef struct scene {
    int batch, count, queries, classes, most;
    float conf;
    double iou; /* 0: nothing is suppressed */
    bool agnostic;
    ref_map logits, boxes;
    unsigned char *keep;
    ist_detections det;
    int *objects, *counts, *image_of;
    int total;
    float *prompts;
} scene;

/* Logits are multiples of 1/32 below 8: different ones differ clearly as sigmoids, equal ones tie exactly. */
static void fill(optest *t, scene *s, bool slice) {
    s->logits = optest_zeros(t, s->batch, 1, s->queries, s->classes);
    s->boxes = optest_zeros(t, s->batch, 1, s->queries, 4);
    for (size_t i = 0; i < ref_size(s->logits); i++) s->logits.v[i] = (float)optest_int(t, -250, 60) / 32;
    for (size_t i = 0; i < ref_size(s->boxes); i++) s->boxes.v[i] = optest_uniform(t, -0.1f, 1.1f);
    s->keep = optest_alloc(t, (size_t)s->classes);
    for (int i = 0; i < s->classes; i++) s->keep[i] = (unsigned char)(!slice || optest_int(t, 0, 3) > 0);
}

static uint32_t *upload_of(optest *t, const scene *s, size_t *bytes) {
    *bytes = 4 * (IST_UP_HEADER + (size_t)s->batch * IST_IM_WORDS);
    uint32_t *up = optest_alloc(t, *bytes);
    up[IST_UP_COUNT] = (uint32_t)s->count;
    for (int i = 0; i < s->count; i++) {
        ist_frame_image im = {.width = optest_int(t, 1, 3000),
                              .height = optest_int(t, 1, 3000),
                              .channels = 3,
                              .sample_bytes = 1,
                              .stride = 1};
        ist_upload_image(up, i, &im);
    }
    return up;
}

static void run(optest *t, scene *s, const uint32_t *up, size_t bytes, bool slice) {
    external upload = external_create(t, up, bytes);
    ist_tensor eu = ist_plan_external(t->plan, 3, IST_ELEM_I32);
    ist_tensor logits = optest_in(t, s->logits, IST_ELEM_F32, slice),
               boxes = optest_in(t, s->boxes, IST_ELEM_F32, slice);
    ist_detect node = {.label = "detect",
                       .logits = logits,
                       .boxes = boxes,
                       .upload = eu,
                       .det = {.max_objects = s->most},
                       .conf = s->conf,
                       .keep = slice ? s->keep : NULL,
                       .nms_iou = s->iou,
                       .agnostic = s->agnostic};
    ist_emit(t->plan, IST_NODE_DETECT, &node);
    s->det = node.det;
    EXTERNAL_OK(t, ist_plan_finish(t->plan, &t->err));
    EXTERNAL_OK(t, ist_plan_bind(t->plan, 3, upload.mem, &t->err));
    for (int i = 0; i < t->tensor_count; i++)
        EXTERNAL_OK(t, ist_plan_write_f32(t->plan, t->tensors[i].whole, t->tensors[i].start, &t->err));
    EXTERNAL_OK(t, ist_plan_replay(t->plan, &t->err));
    size_t most = (size_t)s->batch * s->most;
    s->objects = optest_alloc(t, most * IST_DET_WORDS * 4);
    s->counts = optest_alloc(t, (size_t)s->batch * 16);
    s->image_of = optest_alloc(t, most * 4);
    s->prompts = optest_alloc(t, most * 16);
    EXTERNAL_OK(t, ist_plan_read_i32(t->plan, s->det.objects, s->objects, &t->err));
    EXTERNAL_OK(t, ist_plan_read_i32(t->plan, s->det.counts, s->counts, &t->err));
    EXTERNAL_OK(t, ist_plan_read_i32(t->plan, s->det.image_of, s->image_of, &t->err));
    EXTERNAL_OK(t, ist_plan_read_i32(t->plan, s->det.total, &s->total, &t->err));
    EXTERNAL_OK(t, ist_plan_read_f32(t->plan, s->det.boxes, s->prompts, &t->err));
    external_release(t, &upload);
}

static float float_of(int bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static void expect_object(const optest *t, const scene *s, const uint32_t *im, int image, int slot, int flat, int p) {
    const int *o = s->objects + ((size_t)image * s->most + slot) * IST_DET_WORDS;
    int q = flat / s->classes;
    double want = 1 / (1 + exp(-(double)s->logits.v[(size_t)image * s->queries * s->classes + flat]));
    cr_assert(o[IST_DET_LABEL] == flat % s->classes && o[IST_DET_QUERY] == q,
              "%s: image %d, object %d is %d of %d, not %d of %d", t->name, image, slot, o[IST_DET_LABEL],
              o[IST_DET_QUERY], flat % s->classes, q);
    cr_assert_float_eq(float_of(o[IST_DET_SCORE]), want, 3e-7 * want);
    const float *b = s->boxes.v + ((size_t)image * s->queries + q) * 4;
    for (int k = 0; k < 4; k++) {
        float side = (float)im[k % 2 ? IST_IM_HEIGHT : IST_IM_WIDTH], half = 0.5f * b[2 + k % 2];
        float corner = (k < 2 ? b[k % 2] - half : b[k % 2] + half) * side, got = float_of(o[IST_DET_BOX + k]);
        cr_assert_float_eq(got, corner, 2e-7 * fabs(corner), "%s: corner %d: %g, not %g", t->name, k, got, corner);
        double ratio = (double)im[k % 2 ? IST_IM_SEG_HEIGHT : IST_IM_SEG_WIDTH] / side;
        cr_assert_eq(s->prompts[4 * p + k], (float)(got * ratio), "%s: prompt %.9g, not %.9g", t->name,
                     s->prompts[4 * p + k], got * ratio);
    }
}

static void check(const optest *t, const scene *s, const uint32_t *up, bool filtered) {
    int p = 0, all = s->queries * s->classes, candidates = all < 300 ? all : 300;
    int *order = malloc((size_t)candidates * sizeof *order);
    for (int n = 0; n < s->batch; n++) {
        int found = 0, slot = 0;
        cr_assert_eq(s->counts[4 * n + 2], p);
        const float *v = s->logits.v + (size_t)n * all;
        ref_topk(v, all, candidates, order);
        for (int i = 0; n < s->count && i < candidates; i++) {
            if (!(1 / (1 + exp(-(double)v[order[i]])) > s->conf) || (filtered && !s->keep[order[i] % s->classes]))
                continue;
            found++;
            if (slot == s->most) continue;
            expect_object(t, s, up + IST_UP_HEADER + n * IST_IM_WORDS, n, slot++, order[i], p);
            cr_assert_eq(s->image_of[p++], n);
        }
        cr_assert(s->counts[4 * n] == slot && s->counts[4 * n + 1] == found - slot,
                  "%s, seed %llu: image %d has %d objects and %d dropped, not %d and %d", t->name,
                  (unsigned long long)t->seed, n, s->counts[4 * n], s->counts[4 * n + 1], slot, found - slot);
    }
    cr_assert_eq(s->total, p);
    for (; p < s->batch * s->most; p++)
        cr_assert(s->image_of[p] == 0 && s->prompts[4 * p] == 0 && s->prompts[4 * p + 3] == 0);
    free(order);
}

/* batch, images, queries, classes, max_objects, conf */
static const struct {
    int batch, count, queries, classes, most;
    float conf;
} cases[] = {{1, 1, 300, 80, 16, 0.4f}, {1, 1, 1, 1, 1, 0.0f},      {3, 2, 37, 5, 7, 0.3f},   {2, 2, 20, 3, 60, 0.0f},
             {1, 1, 300, 2, 300, 0.0f}, {2, 1, 84, 17, 16, 0.999f}, {1, 1, 300, 1, 16, 0.5f}, {4, 4, 50, 33, 5, 0.6f}};

static void against_reference(int most_small) {
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (optest_small() && cases[i].queries * cases[i].classes > most_small) continue;
        optest t;
        optest_begin(&t, "detect", i);
        scene s = {.batch = cases[i].batch,
                   .count = cases[i].count,
                   .queries = cases[i].queries,
                   .classes = cases[i].classes,
                   .most = cases[i].most,
                   .conf = cases[i].conf};
        size_t bytes;
        fill(&t, &s, i % 2);
        uint32_t *up = upload_of(&t, &s, &bytes);
        run(&t, &s, up, bytes, i % 2);
        check(&t, &s, up, i % 2);
        optest_end(&t);
    }
}

Test(op_detect, against_reference) {
    against_reference(2000);
}

/* Scores and their order in the one launch of NVIDIA GPUs: the capability is claimed, nvidia/ptx then is plain OpenCL.
 * (oclgrind takes what one group reads from another for a race, since it knows no fence of the device.) */
Test(op_detect, one_launch) {
    setenv("ISTHMUS_CAPS", "+PTX_MMA", 1);
    without = IST_CAP_CPU;
    against_reference(1024);
}

/* ---- suppression ---- */

static scene scene_of(unsigned i, int most) {
    return (scene){.batch = cases[i].batch,
                   .count = cases[i].count,
                   .queries = cases[i].queries,
                   .classes = cases[i].classes,
                   .most = most,
                   .conf = cases[i].conf};
}

/* The same detections for the same i. */
static void detect(optest *t, scene *s, unsigned i) {
    size_t bytes;
    optest_begin(t, "suppression", i);
    fill(t, s, i % 2);
    uint32_t *up = upload_of(t, s, &bytes);
    run(t, s, up, bytes, i % 2);
}

/* What the reference keeps of the rows of an image, which are by falling score. */
static int kept_of(const int *rows, int count, const scene *s, int *index) {
    float boxes[300 * 4], scores[300];
    int labels[300];
    for (int k = 0; k < count; k++) {
        memcpy(boxes + 4 * k, rows + k * IST_DET_WORDS + IST_DET_BOX, 16);
        memcpy(scores + k, rows + k * IST_DET_WORDS + IST_DET_SCORE, 4);
        labels[k] = rows[k * IST_DET_WORDS + IST_DET_LABEL];
    }
    return ref_nms(boxes, scores, s->agnostic ? NULL : labels, count, s->iou, index);
}

/* Objects and counts are those that stay of all detections, bit for bit. True where one was suppressed. */
static bool suppressed(unsigned i, double iou, bool agnostic) {
    optest t;
    scene all = scene_of(i, 300), s = scene_of(i, cases[i].most);
    int index[300], p = 0;
    bool some = false;
    detect(&t, &all, i);
    const size_t size = (size_t)all.batch * 300 * IST_DET_WORDS * 4;
    int *rows = malloc(size), counts[16];
    memcpy(rows, all.objects, size);
    memcpy(counts, all.counts, (size_t)all.batch * 16);
    optest_end(&t);
    s.iou = iou;
    s.agnostic = agnostic;
    detect(&t, &s, i);
    for (int n = 0; n < s.batch; n++) {
        const int *found = rows + n * 300 * IST_DET_WORDS, *c = s.counts + 4 * n;
        int stay = kept_of(found, counts[4 * n], &s, index), objects = stay < s.most ? stay : s.most;
        cr_assert(c[0] == objects && c[1] == stay - objects && c[2] == p,
                  "image %d of case %u: %d objects, %d dropped, from %d on, not %d, %d, %d", n, i, c[0], c[1], c[2],
                  objects, stay - objects, p);
        for (int k = 0; k < objects; k++, p++) {
            const int *o = s.objects + (n * s.most + k) * IST_DET_WORDS;
            cr_assert_arr_eq(o, found + index[k] * IST_DET_WORDS, 4 * IST_DET_WORDS, "image %d, object %d", n, k);
            cr_assert_eq(s.image_of[p], n);
        }
        some = some || stay < counts[4 * n];
    }
    cr_assert_eq(s.total, p);
    optest_end(&t);
    free(rows);
    return some;
}

static void suppress_all(int most_small) {
    int some = 0;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (optest_small() && cases[i].queries * cases[i].classes > most_small) continue;
        some += suppressed(i, 0.5, false);
        some += suppressed(i, 0.2, true);
    }
    cr_assert_gt(some, optest_small() ? 0 : 8, "%d runs suppressed a detection", some);
}

Test(op_detect, suppression) {
    suppress_all(1024);
}

Test(op_detect, suppression_by_lanes) {
    without = IST_CAP_CPU;
    suppress_all(200);
}

/* NaN and infinite logits: NaN is never an object, +inf is a score of 1, nothing else is disturbed. */
Test(op_detect, damaged_logits) {
    optest t;
    optest_begin(&t, "damaged logits", 0);
    scene s = {.batch = 1, .count = 1, .queries = 40, .classes = 3, .most = 16, .conf = 0.1f};
    size_t bytes;
    fill(&t, &s, false);
    for (int i = 0; i < 120; i += 2) s.logits.v[i] = NAN;
    s.logits.v[7] = INFINITY;
    s.logits.v[9] = -INFINITY;
    uint32_t *up = upload_of(&t, &s, &bytes);
    run(&t, &s, up, bytes, false);
    check(&t, &s, up, false);
    cr_assert_eq(float_of(s.objects[IST_DET_SCORE]), 1.0f);
    cr_assert_eq(s.objects[IST_DET_QUERY], 2);
    optest_end(&t);
}

Test(op_detect, nothing_but_nan) {
    optest t;
    optest_begin(&t, "all NaN", 0);
    scene s = {.batch = 1, .count = 1, .queries = 30, .classes = 20, .most = 4, .conf = 0.0f};
    size_t bytes;
    fill(&t, &s, false);
    for (size_t i = 0; i < ref_size(s.logits); i++) s.logits.v[i] = NAN;
    uint32_t *up = upload_of(&t, &s, &bytes);
    run(&t, &s, up, bytes, false);
    cr_assert(s.total == 0 && s.counts[0] == 0 && s.counts[1] == 0);
    optest_end(&t);
}
