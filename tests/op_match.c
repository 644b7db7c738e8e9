/* Matching of detections: tracks over batches of frames, given targets, D-FINE's set, against plain C. */
#include "variants/upload.h"
#include "variants/variant.h"
#include "support/external.h"
#include "support/golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 40, BATCH = 3, EXT_UPLOAD = 0, TARGETS = 30 };

static float float_of(int bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static int bits_of(float f) {
    int i;
    memcpy(&i, &f, 4);
    return i;
}

/* Objects of one frame, as the detector leaves them. */
typedef struct frame {
    int count, words[300 * IST_DET_WORDS];
} frame;

static void put_scored(frame *f, const float box[4], int label, int query, float score) {
    int *o = f->words + f->count++ * IST_DET_WORDS;
    o[IST_DET_LABEL] = label;
    o[IST_DET_SCORE] = bits_of(score);
    o[IST_DET_QUERY] = query;
    for (int k = 0; k < 4; k++) o[IST_DET_BOX + k] = bits_of(box[k]);
}

static void put(frame *f, const float box[4], int label, int query) {
    put_scored(f, box, label, query, 0.5f);
}

static void box_of(const int *words, float box[4]) {
    for (int k = 0; k < 4; k++) box[k] = float_of(words[IST_DET_BOX + k]);
}

/* ---- scalar tracker ---- */

typedef struct track {
    int id, label, age, seen;
    float box[4], speed[4];
} track;

typedef struct tracker {
    track tracks[IST_TRACK_MAX];
    int count, last;
    bool motion;
    float high; /* 0: all objects at once */
} tracker;

/* Pairs that maximise the sum of `gain` [a][b] over pairs above 0. */
static void best_pairs(const double *gain, int a, int b, int *partner) {
    float *cost = malloc(sizeof *cost * (size_t)(a * b + 1));
    double total;
    for (int i = 0; i < a * b; i++) cost[i] = (float)(1 - gain[i]);
    ref_assign(cost, a, b, b, partner, &total);
    for (int i = 0; i < a; i++)
        if (partner[i] >= 0 && !(gain[i * b + partner[i]] > 0)) partner[i] = -1;
    free(cost);
}

/* Where a track is expected. */
static void expect_box(const tracker *s, const track *t, float box[4]) {
    for (int k = 0; k < 4; k++) box[k] = t->box[k] + (s->motion ? t->speed[k] * (float)(t->age + 1) : 0);
}

static bool is_strong(const tracker *s, const frame *f, int o) {
    return s->high <= 0 || float_of(f->words[o * IST_DET_WORDS + IST_DET_SCORE]) > s->high;
}

/* The pairs of both stages, and the IoU of every object with every track. */
static void pair_frame(const tracker *s, const frame *f, float least, double *iou, int *partner) {
    int a = f->count, b = s->count, other[300];
    bool taken[IST_TRACK_MAX] = {false};
    double *gain = calloc((size_t)(a * b + 1), sizeof *gain);
    for (int o = 0; o < a; o++) partner[o] = -1;
    for (int stage = 0; stage < 2; stage++) {
        for (int o = 0; o < a; o++)
            for (int t = 0; t < b; t++) {
                float box[4], at[4];
                box_of(f->words + o * IST_DET_WORDS, box);
                expect_box(s, &s->tracks[t], at);
                double v = iou[o * b + t] = ref_iou(box, at);
                bool may = v >= (double)least && s->tracks[t].label == f->words[o * IST_DET_WORDS] && !taken[t];
                gain[o * b + t] = may && is_strong(s, f, o) == (stage == 0) ? v : 0;
            }
        best_pairs(gain, a, b, other);
        for (int o = 0; o < a; o++)
            if (other[o] >= 0) partner[o] = other[o], taken[other[o]] = true;
    }
    free(gain);
}

static void take_box(tracker *s, track *k, const int *words) {
    float box[4];
    box_of(words, box);
    for (int i = 0; i < 4; i++) {
        float step = (box[i] - k->box[i]) / (float)(k->age + 1);
        if (s->motion) k->speed[i] = k->seen ? 0.5f * (k->speed[i] + step) : step;
        k->box[i] = box[i];
    }
    k->seen++;
}

static void track_frame(tracker *s, const frame *f, float least, int age, int *ids, float *ious) {
    int a = f->count, b = s->count, kept = 0;
    double *gain = calloc((size_t)(a * b + 1), sizeof *gain);
    int *partner = malloc(sizeof *partner * (size_t)(a + 1)), seen[IST_TRACK_MAX];
    pair_frame(s, f, least, gain, partner);
    for (int t = 0; t < b; t++) seen[t] = -1;
    for (int o = 0; o < a; o++) {
        ids[o] = partner[o] < 0 ? 0 : s->tracks[partner[o]].id;
        ious[o] = partner[o] < 0 ? 0 : (float)gain[o * b + partner[o]];
        if (partner[o] >= 0) seen[partner[o]] = o;
    }
    for (int t = 0; t < b; t++) {
        track k = s->tracks[t];
        if (seen[t] >= 0) take_box(s, &k, f->words + seen[t] * IST_DET_WORDS);
        k.age = seen[t] < 0 ? k.age + 1 : 0;
        if (k.age <= age) s->tracks[kept++] = k;
    }
    s->count = kept;
    for (int o = 0; o < a; o++) {
        if (ids[o]) continue;
        if (!is_strong(s, f, o)) {
            ids[o] = -1;
            continue;
        }
        if (s->count == IST_TRACK_MAX) {
            int out = 0;
            for (int t = 1; t < s->count; t++)
                if (s->tracks[t].age > s->tracks[out].age) out = t;
            memmove(s->tracks + out, s->tracks + out + 1, sizeof *s->tracks * (size_t)(--s->count - out));
        }
        track k = {.id = ids[o] = ++s->last, .label = f->words[o * IST_DET_WORDS]};
        box_of(f->words + o * IST_DET_WORDS, k.box);
        s->tracks[s->count++] = k;
    }
    free(gain), free(partner);
}

/* ---- the plan ---- */

typedef struct rig {
    optest t;
    int batch, most;
    ist_tensor objects, counts, match;
    ist_detections det;
    uint32_t *up, half; /* half: IST_UP_TRACK_HALF in every second replay */
    size_t bytes;
    external upload;
} rig;

static void rig_begin(rig *r, const char *name, unsigned salt, int batch, int most, size_t extra_words) {
    memset(r, 0, sizeof *r);
    optest_begin(&r->t, name, salt);
    r->batch = batch, r->most = most;
    r->bytes = 4 * (IST_UP_HEADER + (size_t)batch * IST_IM_WORDS + extra_words);
    r->up = optest_alloc(&r->t, r->bytes);
    int *zeros = optest_alloc(&r->t, sizeof *zeros * (size_t)(batch * most * IST_DET_WORDS));
    r->objects = optest_ints(&r->t, zeros, batch * most * IST_DET_WORDS);
    r->counts = optest_ints(&r->t, zeros, 4 * batch);
    r->det = (ist_detections){.batch = batch, .max_objects = most, .objects = r->objects, .counts = r->counts};
}

/* Records a match of the rig's objects. */
static void rig_match(rig *r, ist_match node) {
    node.upload = ist_plan_external(r->t.plan, EXT_UPLOAD, IST_ELEM_I32);
    node.det = r->det;
    ist_emit(r->t.plan, IST_NODE_MATCH, &node);
    r->match = node.match;
}

static void rig_finish(rig *r) {
    r->upload = external_create(&r->t, r->up, r->bytes);
    EXTERNAL_OK(&r->t, ist_plan_finish(r->t.plan, &r->t.err));
    EXTERNAL_OK(&r->t, ist_plan_bind(r->t.plan, EXT_UPLOAD, r->upload.mem, &r->t.err));
}

/* Replays with these frames; match [batch][most][2]. */
static void rig_run(rig *r, const frame *frames, int count, uint32_t flags, int *match) {
    int *words = calloc((size_t)(r->batch * r->most), IST_DET_WORDS * sizeof *words),
        *counts = calloc((size_t)r->batch, 16);
    for (int i = 0; i < count; i++) {
        memcpy(words + i * r->most * IST_DET_WORDS, frames[i].words,
               sizeof *words * IST_DET_WORDS * (size_t)frames[i].count);
        counts[4 * i] = frames[i].count;
    }
    r->up[IST_UP_COUNT] = (uint32_t)count;
    r->up[IST_UP_FLAGS] = flags | r->half;
    r->half ^= IST_UP_TRACK_HALF;
    ist_frame_scope none = {0};
    EXTERNAL_OK(&r->t, ist_write(r->t.device, none, r->upload.mem, 0, r->bytes, r->up, true, "upload", &r->t.err));
    EXTERNAL_OK(&r->t, ist_plan_write_i32(r->t.plan, r->objects, words, &r->t.err));
    EXTERNAL_OK(&r->t, ist_plan_write_i32(r->t.plan, r->counts, counts, &r->t.err));
    EXTERNAL_OK(&r->t, ist_plan_replay(r->t.plan, &r->t.err));
    EXTERNAL_OK(&r->t, ist_plan_read_i32(r->t.plan, r->match, match, &r->t.err));
    free(words), free(counts);
}

static void rig_end(rig *r) {
    external_read(&r->t, &r->upload);
    external_release(&r->t, &r->upload);
    optest_end(&r->t);
}

static void random_box(optest *t, float span, float box[4]) {
    box[0] = optest_uniform(t, 0, span), box[1] = optest_uniform(t, 0, span);
    box[2] = box[0] + optest_uniform(t, 20, 90), box[3] = box[1] + optest_uniform(t, 20, 90);
}

/* Walkers that drift, hide and come back. */
static void walk(optest *t, float (*boxes)[4], int walkers, frame *f) {
    f->count = 0;
    for (int w = 0; w < walkers; w++) {
        float dx = optest_uniform(t, -12, 12), dy = optest_uniform(t, -12, 12);
        for (int k = 0; k < 4; k++) boxes[w][k] += k % 2 ? dy : dx;
        float score = optest_uniform(t, 0.2f, 0.9f);
        if (optest_int(t, 0, 4)) put_scored(f, boxes[w], w % 3, w, score);
    }
}

static void compare(const rig *r, const frame *f, int image, const int *match, const int *ids, const float *ious) {
    for (int o = 0; o < f->count; o++) {
        const int *m = match + 2 * (image * r->most + o);
        cr_assert_eq(m[0], ids[o], "%s, seed %llu: image %d, object %d has %d, not %d", r->t.name,
                     (unsigned long long)r->t.seed, image, o, m[0], ids[o]);
        cr_assert_float_eq(float_of(m[1]), ious[o], 1e-5);
    }
}

static void walkers_are_tracked(const char *name, bool motion, float high) {
    int walkers = optest_small() ? 6 : 24, rounds = optest_small() ? 3 : 25, match[2 * BATCH * MOST], ids[MOST],
        age = 2;
    float boxes[MOST][4], ious[MOST], least = 0.2f;
    rig r;
    rig_begin(&r, name, 0, BATCH, MOST, 0);
    rig_match(&r, (ist_match){.label = "tracks",
                              .by = IST_MATCH_BY_TRACKS,
                              .track_iou = least,
                              .age = age,
                              .motion = motion,
                              .track_high = high});
    rig_finish(&r);
    tracker s = {.motion = motion, .high = high};
    for (int w = 0; w < walkers; w++) random_box(&r.t, 400, boxes[w]);
    for (int round = 0; round < rounds; round++) {
        frame f[BATCH];
        int count = optest_int(&r.t, 1, BATCH);
        bool reset = round == rounds / 2;
        for (int i = 0; i < count; i++) walk(&r.t, boxes, walkers, &f[i]);
        if (round == 3) f[0].count = 0;
        rig_run(&r, f, count, reset ? IST_UP_RESET_TRACKS : 0, match);
        if (reset) s.count = s.last = 0;
        for (int i = 0; i < count; i++) {
            track_frame(&s, &f[i], least, age, ids, ious);
            compare(&r, &f[i], i, match, ids, ious);
        }
        if (reset && high <= 0) cr_assert_eq(match[0], 1);
    }
    rig_end(&r);
}

Test(op_match, tracks) {
    walkers_are_tracked("tracks", false, 0);
}

Test(op_match, tracks_that_move) {
    walkers_are_tracked("tracks that move", true, 0);
}

Test(op_match, strong_objects_first) {
    walkers_are_tracked("strong objects first", false, 0.5f);
    walkers_are_tracked("strong objects first, that move", true, 0.4f);
}

/* Steps too wide for boxes to meet: only a track that is expected ahead goes on, and over a frame without it, too. */
Test(op_match, a_fast_object_keeps_its_track) {
    for (int motion = 0; motion < 2; motion++) {
        int match[2 * MOST], first = 0;
        rig r;
        rig_begin(&r, "fast", 0, 1, MOST, 0);
        rig_match(&r, (ist_match){
                          .label = "tracks", .by = IST_MATCH_BY_TRACKS, .track_iou = 0.1f, .age = 3, .motion = motion});
        rig_finish(&r);
        for (int i = 0; i < 8; i++) {
            static const float at[8] = {0, 12, 29, 47, 0, 83, 101, 119}; /* it speeds up; it is 20 wide */
            frame f = {.count = 0};
            const float box[4] = {at[i], 10, at[i] + 20, 30};
            if (i != 4) put(&f, box, 1, 0);
            rig_run(&r, &f, 1, 0, match);
            if (i == 0) first = match[0];
            if (i < 2 || (motion && i != 4)) cr_expect_eq(match[0], first, "motion %d, frame %d: track %d", motion, i, match[0]);
            if (i == 2 && !motion) cr_expect_neq(match[0], first);
        }
        rig_end(&r);
    }
}

/* More tracks than there is room for: the ones unseen for longest make room. */
Test(op_match, full_house) {
    if (optest_small()) return;
    enum { MANY = 200 };
    static frame f;
    static int match[2 * MANY], ids[MANY];
    static float ious[MANY];
    static tracker s;
    rig r;
    rig_begin(&r, "full house", 0, 1, MANY, 0);
    rig_match(&r, (ist_match){.label = "tracks", .by = IST_MATCH_BY_TRACKS, .track_iou = 0.3f, .age = 50});
    rig_finish(&r);
    for (int round = 0; round < 4; round++) {
        f.count = 0;
        for (int o = 0; o < MANY; o++) {
            int place = (o + 130 * round) % 450; /* some come back, most do not */
            float box[4] = {(float)(place * 20), 5, (float)(place * 20 + 15), 25};
            put(&f, box, 1, o);
        }
        rig_run(&r, &f, 1, 0, match);
        track_frame(&s, &f, 0.3f, 50, ids, ious);
        compare(&r, &f, 0, match, ids, ious);
    }
    rig_end(&r);
}

static void put_targets(rig *r, int image, int count, size_t at, float (*boxes)[4], const int *labels) {
    ist_upload_image(r->up, image,
                     &(ist_frame_image){.width = 700,
                                        .height = 500,
                                        .channels = 3,
                                        .sample_bytes = 1,
                                        .stride = 1,
                                        .targets = count,
                                        .target_at = (uint32_t)at});
    for (int i = 0; i < count; i++) {
        memcpy(r->up + at + (size_t)i * IST_TARGET_WORDS, boxes[i], 16);
        r->up[at + (size_t)i * IST_TARGET_WORDS + IST_TARGET_LABEL] = (uint32_t)labels[i];
    }
}

Test(op_match, targets) {
    for (unsigned round = 0; round < 6; round++) {
        rig r;
        size_t at = IST_UP_HEADER + 2 * IST_IM_WORDS;
        rig_begin(&r, "targets", round, 2, MOST, 2 * TARGETS * IST_TARGET_WORDS);
        rig_match(&r, (ist_match){.label = "targets", .by = IST_MATCH_BY_TARGETS, .max_targets = TARGETS});
        frame f[2];
        int match[4 * MOST], labels[2][TARGETS], counts[2], partner[MOST];
        float boxes[2][TARGETS][4], ious[MOST];
        for (int i = 0; i < 2; i++) {
            f[i].count = 0;
            counts[i] = round == 5 ? 0 : optest_int(&r.t, 1, optest_small() ? 6 : TARGETS);
            for (int k = 0; k < counts[i]; k++) {
                random_box(&r.t, 200, boxes[i][k]);
                labels[i][k] = optest_int(&r.t, -1, 2);
            }
            for (int o = optest_int(&r.t, round == 4 ? 0 : 1, optest_small() ? 6 : MOST); o > 0; o--) {
                float box[4];
                random_box(&r.t, 200, box);
                put(&f[i], box, optest_int(&r.t, 0, 2), o);
            }
            put_targets(&r, i, counts[i], at + (size_t)i * TARGETS * IST_TARGET_WORDS, boxes[i], labels[i]);
        }
        rig_finish(&r);
        rig_run(&r, f, 2, 0, match);
        for (int i = 0; i < 2; i++) {
            double gain[MOST * TARGETS] = {0};
            for (int o = 0; o < f[i].count; o++)
                for (int k = 0; k < counts[i]; k++) {
                    float box[4];
                    box_of(f[i].words + o * IST_DET_WORDS, box);
                    bool fits = labels[i][k] < 0 || labels[i][k] == f[i].words[o * IST_DET_WORDS];
                    gain[o * counts[i] + k] = fits ? ref_iou(box, boxes[i][k]) : 0;
                }
            best_pairs(gain, f[i].count, counts[i], partner);
            for (int o = 0; o < f[i].count; o++) ious[o] = partner[o] < 0 ? 0 : (float)gain[o * counts[i] + partner[o]];
            compare(&r, &f[i], i, match, partner, ious);
        }
        rig_end(&r);
    }
}

/* ---- D-FINE's set matching on the published cost matrices ---- */

static const float *floats(const ist_weights *golden, const char *key) {
    return ist_weights_find(golden, key)->data;
}

static void check_set(const ist_weights *golden, int targets) {
    enum { Q = 300, C = 80 };
    char key[32];
    optest t;
    optest_begin(&t, "set", (unsigned)targets);
    optest_drop(&t);
    EXTERNAL_OK(&t, ist_plan_begin(t.device, &(ist_plan_options){.guard_bytes = 256, .taps = true}, &t.plan, &t.err));
    ref_map logits = optest_zeros(&t, 1, 1, Q, C), boxes = optest_zeros(&t, 1, 1, Q, 4);
    memcpy(logits.v, floats(golden, "logits"), sizeof(float) * Q * C);
    memcpy(boxes.v, floats(golden, "boxes"), sizeof(float) * Q * 4);
    snprintf(key, sizeof key, "t%d.labels", targets);
    int *labels = golden_ints(golden, key, (size_t)targets);
    snprintf(key, sizeof key, "t%d.boxes", targets);
    const float *given = floats(golden, key);
    size_t at = IST_UP_HEADER + IST_IM_WORDS, bytes = 4 * (at + (size_t)targets * IST_TARGET_WORDS);
    uint32_t *up = optest_alloc(&t, bytes);
    up[IST_UP_COUNT] = 1; /* an image of one pixel: its pixels are the normalised coordinates */
    ist_upload_image(up, 0,
                     &(ist_frame_image){.width = 1,
                                        .height = 1,
                                        .channels = 3,
                                        .sample_bytes = 1,
                                        .stride = 1,
                                        .targets = targets,
                                        .target_at = (uint32_t)at});
    for (int i = 0; i < targets; i++) {
        const float *b = given + 4 * i;
        float corners[4] = {b[0] - b[2] / 2, b[1] - b[3] / 2, b[0] + b[2] / 2, b[1] + b[3] / 2};
        memcpy(up + at + (size_t)i * IST_TARGET_WORDS, corners, 16);
        up[at + (size_t)i * IST_TARGET_WORDS + IST_TARGET_LABEL] = (uint32_t)labels[i];
    }
    external upload = external_create(&t, up, bytes);
    ist_tensor eu = ist_plan_external(t.plan, EXT_UPLOAD, IST_ELEM_I32);
    ist_tensor l = optest_in(&t, logits, IST_ELEM_F32, true), b = optest_in(&t, boxes, IST_ELEM_F32, false);
    ist_detect detect = {.label = "detect", .logits = l, .boxes = b, .upload = eu, .det = {.max_objects = 300}};
    ist_emit(t.plan, IST_NODE_DETECT, &detect);
    ist_detections det = detect.det;
    ist_match set = {.label = "set", .by = IST_MATCH_BY_SET, .upload = eu, .logits = l, .boxes = b, .det = det};
    set.max_targets = targets + 3;
    ist_emit(t.plan, IST_NODE_MATCH, &set);
    ist_tensor match = set.match;
    EXTERNAL_OK(&t, ist_plan_finish(t.plan, &t.err));
    EXTERNAL_OK(&t, ist_plan_bind(t.plan, EXT_UPLOAD, upload.mem, &t.err));
    for (int i = 0; i < t.tensor_count; i++)
        EXTERNAL_OK(&t, ist_plan_write_f32(t.plan, t.tensors[i].whole, t.tensors[i].start, &t.err));
    EXTERNAL_OK(&t, ist_plan_replay(t.plan, &t.err));

    ref_map cost = optest_read(&t, ist_plan_tapped(t.plan, "match.cost"));
    snprintf(key, sizeof key, "t%d.cost", targets);
    const float *want = floats(golden, key);
    for (int q = 0; q < Q; q++)
        for (int i = 0; i < targets; i++)
            cr_assert_float_eq(cost.v[i * Q + q], want[q * targets + i], 2e-5, "query %d, target %d: cost %g, not %g",
                               q, i, cost.v[i * Q + q], want[q * targets + i]);
    snprintf(key, sizeof key, "t%d.rows", targets);
    int *rows = golden_ints(golden, key, (size_t)targets);
    snprintf(key, sizeof key, "t%d.cols", targets);
    int *cols = golden_ints(golden, key, (size_t)targets), target_of[Q], counts[4], taken[Q] = {0};
    for (int q = 0; q < Q; q++) target_of[q] = -1;
    for (int i = 0; i < targets; i++) target_of[rows[i]] = cols[i];
    int *words = optest_alloc(&t, sizeof *words * 300 * IST_DET_WORDS), *got = optest_alloc(&t, sizeof *got * 600);
    EXTERNAL_OK(&t, ist_plan_read_i32(t.plan, det.objects, words, &t.err));
    EXTERNAL_OK(&t, ist_plan_read_i32(t.plan, det.counts, counts, &t.err));
    EXTERNAL_OK(&t, ist_plan_read_i32(t.plan, match, got, &t.err));
    cr_assert_eq(counts[0], 300);
    for (int o = 0; o < 300; o++) {
        int q = words[o * IST_DET_WORDS + IST_DET_QUERY];
        if (got[2 * o] < 0) continue;
        cr_assert_eq(got[2 * o], target_of[q], "object %d of query %d: target %d, not %d", o, q, got[2 * o],
                     target_of[q]);
        cr_assert_eq(taken[q]++, 0);
    }
    for (int o = 0; o < 300; o++) {
        int q = words[o * IST_DET_WORDS + IST_DET_QUERY];
        cr_assert(target_of[q] < 0 || taken[q], "query %d is target %d, but none of its objects says so", q,
                  target_of[q]);
    }
    external_release(&t, &upload);
    free(labels), free(rows), free(cols);
    optest_end(&t);
}

Test(op_match, published_cost) {
    ist_weights *golden = golden_open("matcher");
    check_set(golden, 1);
    if (!optest_small()) check_set(golden, 5);
    if (!optest_small()) check_set(golden, 100);
    ist_weights_close(&golden);
}
